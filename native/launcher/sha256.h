/// SHA-256 (FIPS 180-4), plain C: the launcher is one static file without libraries.
#ifndef AIMA_LAUNCHER_SHA256_H
#define AIMA_LAUNCHER_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
  uint32_t state[8];
  uint64_t bytes;
  unsigned char block[64];
};

void sha256_start(struct sha256* hash);
void sha256_add(struct sha256* hash, const void* data, size_t size);

/// The digest as 64 lower-case hex digits and a NUL.
void sha256_end(struct sha256* hash, char hex[65]);

#endif
