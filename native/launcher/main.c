/// bin/aima-engine: starts the engine on the bundle's own loader and C library, whatever the host has.
///
/// 1. Find the bundle: the parent of the folder of this file (/proc/self/exe, else AT_EXECFN).
/// 2. Make the environment (environment.c).
/// 3. Become libexec/aima-engine, a copy of the bundled loader, with the engine as its program.
///
/// Everything is told to the loader by options, since options beat the environment. The loader splits its
/// library path at ':' and ';' and expands '$'; where the bundle's own path holds one of them, an open folder
/// stands for it as /proc/self/fd/N.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "environment.h"
#include "message.h"
#include "verify.h"

extern char** environ;

static const char kLoader[] = "/libexec/aima-engine";
static const char kEngine[] = "/libexec/aima-engine.real";
static const char kHostLibc[] = "/libexec/host-libc";  ///< there in bundles that run on the host's C library
enum { LONGEST_BELOW_ROOT = 96 };

/// `path` without its last component; null if it has none.
static char* parent(const char* path) {
  const char* const slash = strrchr(path, '/');
  if (!slash || slash == path) return NULL;
  char* const folder = join(path, "");
  folder[slash - path] = '\0';
  return folder;
}

/// The bundle around the file `path`, or null if there is none.
static char* root_around(const char* path) {
  char* const bin = parent(path);
  char* const root = bin ? parent(bin) : NULL;
  return root && access(join(root, kEngine), F_OK) == 0 ? root : NULL;
}

static char* find_root(void) {
  char exe[PATH_MAX];
  errno = 0;
  const ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
  bool too_long = errno == ENAMETOOLONG;
  if (length > 0) {
    exe[length] = '\0';
    char* const root = root_around(exe);
    if (root) return root;
  }
  const char* const started = (const char*)getauxval(AT_EXECFN);
  errno = 0;
  char* const real = started ? realpath(started, NULL) : NULL;
  too_long = too_long || errno == ENAMETOOLONG;
  char* const root = real ? root_around(real) : NULL;
  if (root) return root;
  if (length < 0 && too_long) {
    fail(EXIT_WORK_FAILED, "the bundle's path is too long", NULL, NULL, "move it to a shorter path");
  }
  fail(EXIT_WORK_FAILED, "no bundle around this program", length > 0 ? exe : started,
       "../libexec/aima-engine.real is not there",
       "keep the extracted folder together; from elsewhere use a symbolic link, not a copy or a hard link");
}

/// A descriptor of the folder above the standard three, inherited by the engine.
static int open_folder(const char* root) {
  const int low = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
  const int fd = low < 0 ? -1 : fcntl(low, F_DUPFD, 3);
  if (fd < 0) fail(EXIT_WORK_FAILED, "cannot open the bundle", root, strerror(errno), NULL);
  close(low);
  return fd;
}

/// The root as the loader's lists can name it.
static const char* listable(const char* root) {
  if (!strpbrk(root, ":;$")) return root;
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", open_folder(root));
  if (access(name, F_OK) != 0) {
    fail(EXIT_WORK_FAILED, "cannot run from a path with ':', ';' or '$' here", root, "/proc is not mounted",
         "move the bundle to a path without them");
  }
  return join(name, "");
}

/// A file system that forbids programs makes the loader fail far from the cause; say it here.
static void refuse_noexec(const char* root) {
  static const char* const kFolders[] = {"/libexec", "/lib"};
  for (int i = 0; i < 2; ++i) {
    const char* const folder = join(root, kFolders[i]);
    struct statvfs status;
    if (statvfs(folder, &status) == 0 && (status.f_flag & ST_NOEXEC)) {
      fail(EXIT_WORK_FAILED, "programs cannot run from this file system", folder,
           "it is mounted with `noexec`", "move the bundle to another file system");
    }
  }
}

_Noreturn static void explain_exec(const char* path, int error) {
  const char* hint = NULL;
  if (error == ENOENT) hint = "the bundle is incomplete: extract the archive again";
  if (error == EACCES) hint = "check the modes of the extracted files, and mount options";
  if (error == EPERM) hint = "a policy daemon (fapolicyd, SELinux) may forbid it: allow this folder there";
  if (error == ENOEXEC)
    hint = "this is not an x86-64 Linux host, or the file is damaged: try --verify-bundle";
  fail(EXIT_WORK_FAILED, "cannot start", path, strerror(error), hint);
}

_Noreturn static void start(const char* root, int argc, char** argv) {
  const char* const name = argc > 0 ? argv[0] : "aima-engine";
  const int rest = argc > 1 ? argc - 1 : 0;
  const char* const engine = join(root, kEngine);
  if (access(join(root, kHostLibc), F_OK) == 0) {
    // The host's loader and libraries, and so the host's environment.
    const char** const arguments = take(((size_t)rest + 2) * sizeof *arguments);
    arguments[0] = name;
    for (int i = 0; i <= rest; ++i) arguments[1 + i] = i < rest ? argv[1 + i] : NULL;
    execve(engine, (char* const*)arguments, environ);
    explain_exec(engine, errno);
  }
  const char* const listed = listable(root);
  const char* const loader = join(root, kLoader);
  const char* const options[] = {loader,
                                 "--inhibit-cache",
                                 "--glibc-hwcaps-mask",
                                 "",
                                 "--library-path",
                                 join(listed, "/lib"),
                                 "--argv0",
                                 name,
                                 engine};
  enum { OPTIONS = sizeof options / sizeof *options };
  const char** const arguments = take(((size_t)OPTIONS + (size_t)rest + 1) * sizeof *arguments);
  memcpy(arguments, options, sizeof options);
  for (int i = 0; i <= rest; ++i) arguments[OPTIONS + i] = i < rest ? argv[1 + i] : NULL;
  execve(loader, (char* const*)arguments, engine_environment(environ, listed));
  explain_exec(loader, errno);
}

int main(int argc, char** argv) {
  char* const root = find_root();
  if (strlen(root) + LONGEST_BELOW_ROOT > PATH_MAX) {
    fail(EXIT_WORK_FAILED, "the bundle's path is too long", NULL, NULL, "move it to a shorter path");
  }
  if (argc > 1 && strcmp(argv[1], "--verify-bundle") == 0) {
    if (argc > 2) fail(EXIT_WRONG_USE, "`--verify-bundle` takes nothing else", NULL, NULL, NULL);
    signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of the write, not the end of the process
    return verify_bundle(open_folder(root));
  }
  refuse_noexec(root);
  start(root, argc, argv);
}
