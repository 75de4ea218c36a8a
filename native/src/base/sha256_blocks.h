/// The inner loops of SHA-256. No C++ library header here: one of the files is for one instruction set.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace aima::base {

/// First 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2).
extern const uint32_t sha256_rounds[64];

/// Takes `blocks` blocks of 64 bytes into the state of 8 words.
void sha256_portable(uint32_t* state, const unsigned char* data, size_t blocks);
/// The same; needs SHA, SSSE3 and SSE4.1.
void sha256_ni(uint32_t* state, const unsigned char* data, size_t blocks);

}  // namespace aima::base
