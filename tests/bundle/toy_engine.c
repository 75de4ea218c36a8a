// Stands in for the engine in tests of launcher and sealed run: says what it was started with, and opens what
// it is told to open.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <unistd.h>

extern char** environ;

static void text(const char* value) {
  putchar('"');
  for (; *value; ++value) {
    const unsigned char c = (unsigned char)*value;
    if (c < 32 || c == '"' || c == '\\' || c > 126) {
      printf("\\u%04x", c);
    } else {
      putchar(c);
    }
  }
  putchar('"');
}

static void list(const char* name, char** values) {
  printf("\"%s\": [", name);
  for (int i = 0; values[i]; ++i) {
    if (i) putchar(',');
    text(values[i]);
  }
  printf("]");
}

static int show(char** argv) {
  char exe[4096] = "", comm[32] = "";
  if (readlink("/proc/self/exe", exe, sizeof exe - 1) < 0) return 1;
  prctl(PR_GET_NAME, comm);
  printf("{");
  list("argv", argv);
  printf(", ");
  list("env", environ);
  printf(", \"exe\": ");
  text(exe);
  printf(", \"execfn\": ");
  text((const char*)getauxval(AT_EXECFN));
  printf(", \"comm\": ");
  text(comm);
  printf("}\n");
  return 0;
}

static int hip(void) {
  void* const library = dlopen("libamdhip64.so.7", RTLD_NOW | RTLD_LOCAL);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  int (*const count_devices)(int*) = (int (*)(int*))dlsym(library, "hipGetDeviceCount");
  int count = -1;
  const int code = count_devices(&count);
  printf("{\"code\": %d, \"count\": %d}\n", code, count);
  return 0;
}

int main(int argc, char** argv) {
  const char* const word = argc > 1 ? argv[1] : "show";
  int code = 0;
  if (strcmp(word, "--version") == 0) {
    puts("toy 1");
  } else if (strcmp(word, "doctor") == 0) {
    const char* const foreign = getenv("TOY_OPENS");
    if (foreign && !dlopen(foreign, RTLD_NOW)) fprintf(stderr, "%s\n", dlerror());
    if (foreign) usleep(300000);
    puts("{\"schema\": \"aima/doctor/v1\"}");
  } else if (strcmp(word, "generate") == 0) {
    puts("{\"text\": \" The quick brown fox.\"}");
  } else if (strcmp(word, "open") == 0) {
    code = dlopen(argv[2], RTLD_NOW) ? 0 : 1;
    if (code) puts(dlerror());
  } else if (strcmp(word, "hip") == 0) {
    code = hip();
  } else {
    code = show(argv);
  }
  fflush(stdout);
  _exit(code);
}
