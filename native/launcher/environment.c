#define _GNU_SOURCE
#include "environment.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "message.h"

/// Taken out. A name that ends in '*' stands for all that begin so. Everything here either makes the loader
/// or a library open files that are not in the bundle, or makes the runtime mistake the GPU for another.
static const char* const kDropped[] = {
    // The loader: foreign objects in our process, foreign search paths in its children.
    "LD_*",
    "GLIBC_TUNABLES",
    // The C library's data.
    "LOCPATH",
    "NLSPATH",
    "GETCONF_DIR",
    // Tools that HSA and HIP would load, and models of hardware.
    "HSA_TOOLS_*",
    "HSA_MODEL_*",
    "HSA_ENABLE_DTIF",
    "ROCP_*",
    "ROCPROFILER_*",
    // Another chip than the one that is there.
    "HSA_OVERRIDE_GFX_VERSION*",
    // Kernels and compilers of another ROCm.
    "ROCM_KPACK_*",
    "ROCBLAS_TENSILE_LIBPATH",
    "HIPBLASLT_TENSILE_LIBPATH",
    "HIPBLASLT_EXT_OP_LIBRARY_PATH",
    "HIP_DEVICE_LIB_PATH",
    "DEVICE_LIB_PATH",
    "HIP_CLANG_PATH",
    "LLVM_PATH",
    "AMD_COMGR_*",
    "HIPRTC_COMPILE_OPTIONS_APPEND",
    "HIPRTC_LINK_OPTIONS_APPEND",
    "AMD_OCL_*",
    "LOADER_OPTIONS_APPEND",
    // Ours: only the launcher speaks here.
    "AIMA_DROPPED_ENV",
};

struct setting {
  const char* name;
  const char* value;
  bool below_root;  ///< the value is a path inside the bundle
};

/// Put in. HIP's and ROCm's roots are the bundle, so that nothing looks in /opt/rocm.
static const struct setting kSet[] = {
    {"GCONV_PATH", "/share/aima/gconv", true},  // an empty folder: no cache of the host's converters
    {"LC_ALL", "C", false},                     // the one locale that needs no files
    {"AMDGPU_ASIC_ID_TABLE_PATHS", "/share/libdrm", true},
    {"ROCM_PATH", "", true},
    {"HIP_PATH", "", true},
    {"AMD_COMGR_CACHE", "0", false},  // nothing is compiled at run time
};

enum { DROPPED = sizeof kDropped / sizeof *kDropped, SETTINGS = sizeof kSet / sizeof *kSet };

static bool matches(const char* pattern, const char* name, size_t length) {
  const size_t size = strlen(pattern);
  if (pattern[size - 1] == '*') return length >= size - 1 && strncmp(name, pattern, size - 1) == 0;
  return length == size && strncmp(name, pattern, size) == 0;
}

/// True if `name` is an element of the comma-separated `list`.
static bool listed(const char* list, const char* name, size_t length) {
  while (*list) {
    const size_t element = strcspn(list, ",");
    if (element == length && strncmp(list, name, length) == 0) return true;
    list += element + (list[element] == ',');
  }
  return false;
}

static bool dropped(const char* name, size_t length) {
  for (int i = 0; i < DROPPED; ++i) {
    if (matches(kDropped[i], name, length)) return true;
  }
  return false;
}

static const struct setting* setting_of(const char* name, size_t length) {
  for (int i = 0; i < SETTINGS; ++i) {
    if (matches(kSet[i].name, name, length)) return &kSet[i];
  }
  return NULL;
}

static char* assignment(const struct setting* setting, const char* root) {
  char* const name = join(setting->name, "=");
  return join(setting->below_root ? join(name, root) : name, setting->value);
}

static const char* value_of(char* const* environment, const char* name) {
  const size_t length = strlen(name);
  for (; *environment; ++environment) {
    if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=') {
      return *environment + length + 1;
    }
  }
  return "";
}

char** engine_environment(char* const* old, const char* root) {
  size_t count = 0;
  size_t bytes = 0;
  for (; old[count]; ++count) bytes += strlen(old[count]) + 1;
  char** made = take((count + SETTINGS + 2) * sizeof *made);
  char* const report = take(sizeof "AIMA_DROPPED_ENV=" + bytes);
  char* end = stpcpy(report, "AIMA_DROPPED_ENV=");
  char* const first = end;
  const char* const keep = value_of(old, "AIMA_KEEP_ENV");
  bool kept_setting[SETTINGS] = {false};
  size_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t length = strcspn(old[i], "=");
    const struct setting* const setting = setting_of(old[i], length);
    const bool keeping = listed(keep, old[i], length);
    if (keeping && setting) kept_setting[setting - kSet] = true;
    if (keeping || !(setting || dropped(old[i], length))) {
      made[next++] = old[i];
      continue;
    }
    const bool same = setting && strcmp(old[i], assignment(setting, root)) == 0;
    const bool ours = matches("AIMA_DROPPED_ENV", old[i], length);
    if (same || ours) continue;
    if (end != first) *end++ = ',';
    end = mempcpy(end, old[i], length);
  }
  *end = '\0';
  for (int i = 0; i < SETTINGS; ++i) {
    if (!kept_setting[i]) made[next++] = assignment(&kSet[i], root);
  }
  if (end != first) made[next++] = report;
  made[next] = NULL;
  return made;
}
