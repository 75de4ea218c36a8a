#define _GNU_SOURCE
#include "message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fail(int code, const char* what, const char* where, const char* why, const char* hint) {
  if (where) where = printable(where);
  dprintf(STDERR_FILENO, "error: %s%s%s\n", where ? where : "", where ? ": " : "", what);
  if (why) dprintf(STDERR_FILENO, "  why: %s\n", why);
  if (hint) dprintf(STDERR_FILENO, "  hint: %s\n", hint);
  exit(code);
}

const char* printable(const char* text) {
  static const char kDigits[] = "0123456789abcdef";
  char* const shown = malloc(4 * strlen(text) + 1);
  if (!shown) return "?";
  char* end = shown;
  for (const char* at = text; *at; ++at) {
    const unsigned char byte = (unsigned char)*at;
    if (byte >= 0x20 && byte != 0x7f) {
      *end++ = *at;
      continue;
    }
    *end++ = '\\';
    *end++ = 'x';
    *end++ = kDigits[byte >> 4];
    *end++ = kDigits[byte & 15];
  }
  *end = '\0';
  return shown;
}

void* take(unsigned long size) {
  void* memory = malloc(size ? size : 1);
  if (!memory) fail(EXIT_WORK_FAILED, "out of memory", NULL, NULL, NULL);
  return memory;
}

char* join(const char* first, const char* second) {
  const size_t head = strlen(first);
  const size_t tail = strlen(second);
  char* both = take(head + tail + 1);
  memcpy(both, first, head);
  memcpy(both + head, second, tail + 1);
  return both;
}
