#define _GNU_SOURCE
#include "message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fail(int code, const char* what, const char* where, const char* why, const char* hint) {
  dprintf(STDERR_FILENO, "error: %s%s%s\n", where ? where : "", where ? ": " : "", what);
  if (why) dprintf(STDERR_FILENO, "  why: %s\n", why);
  if (hint) dprintf(STDERR_FILENO, "  hint: %s\n", hint);
  exit(code);
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
