/// A HIP runtime of four functions. Compiled with VERSION, DEVICES, ERROR; or with CRASH, or without the last one.
#include <signal.h>

int hipRuntimeGetVersion(int* version) {
  *version = 70253211;
  return 0;
}

int hipGetDeviceCount(int* count) {
#ifdef CRASH
  raise(SIGSEGV);
#endif
  *count = DEVICES;
  return ERROR;
}

const char* hipGetErrorName(int error) { return error == 0 ? "hipSuccess" : "hipErrorFake"; }

#ifndef INCOMPLETE
const char* hipGetErrorString(int error) { return error == 0 ? "no error" : "a made-up error"; }
#endif
