/// The list has one line for each file, folder and link, sorted by the bytes of the path, itself left out:
///
///     aima-manifest-v1 COUNT
///     f 0755 SIZE SHA256 PATH
///     d 0755 0 - PATH            (the bundle itself is ".")
///     l 0777 0 - PATH<TAB>TARGET
///
/// Nothing in it is believed: sizes, counts and depths are bounded, and a line that does not fit is an error.
#define _GNU_SOURCE
#include "verify.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"
#include "sha256.h"

static const char kList[] = "share/aima/manifest.txt";
static const char kHeader[] = "aima-manifest-v1 ";
enum { MAX_LIST = 16 << 20, MAX_ENTRIES = 100000, MAX_DEPTH = 32, MAX_PATH = 4096 };

struct entry {
  char type;
  bool seen;
  unsigned mode;
  unsigned long long size;
  const char* sha256;
  const char* path;
  const char* target;
};

struct check {
  struct entry* entries;
  size_t count;
  unsigned umask;  ///< permission bits that whoever extracted the bundle took away everywhere
  unsigned long differences;
  unsigned long long bytes;
};

static void differs(struct check* check, const char* path, const char* how) {
  ++check->differences;
  printf("%s: %s\n", printable(path), how);
}

static char* read_list(int root, size_t* size, char hex[65]) {
  const int file = openat(root, kList, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0 && errno == ENOENT) {
    fail(EXIT_CHECK_FAILED, "the list of the bundle is missing", kList, NULL, "extract the archive again");
  }
  if (file < 0) fail(EXIT_WORK_FAILED, "cannot read the list of the bundle", kList, strerror(errno), NULL);
  struct stat status;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    fail(EXIT_CHECK_FAILED, "the list of the bundle is not a regular file", kList, NULL,
         "extract the archive again");
  }
  char* const text = take(MAX_LIST + 1);
  size_t used = 0;
  for (;;) {
    const ssize_t got = read(file, text + used, MAX_LIST + 1 - used);
    if (got < 0) fail(EXIT_WORK_FAILED, "cannot read the list of the bundle", kList, strerror(errno), NULL);
    if (got == 0) break;
    used += (size_t)got;
    if (used > MAX_LIST) fail(EXIT_WORK_FAILED, "the list of the bundle is too long", kList, NULL, NULL);
  }
  close(file);
  text[used] = '\0';
  struct sha256 hash;
  sha256_start(&hash);
  sha256_add(&hash, text, used);
  sha256_end(&hash, hex);
  *size = used;
  return text;
}

_Noreturn static void bad_line(unsigned long line) {
  char where[64];
  snprintf(where, sizeof where, "%s:%lu", kList, line);
  fail(EXIT_CHECK_FAILED, "the list of the bundle is damaged", where, NULL, "extract the archive again");
}

/// The text up to the next space, which is replaced by a NUL; null if there is none before the end.
static char* field(char** at) {
  char* const start = *at;
  char* const space = strchr(start, ' ');
  if (!space || space == start) return NULL;
  *space = '\0';
  *at = space + 1;
  return start;
}

static bool number(const char* text, int base, unsigned long long limit, unsigned long long* value) {
  char* end;
  if (*text < '0' || *text > '9') return false;
  errno = 0;
  *value = strtoull(text, &end, base);
  return !errno && !*end && *value <= limit;
}

static bool parse_line(char* line, struct entry* entry) {
  char* at = line;
  char* const type = field(&at);
  char* const mode = type ? field(&at) : NULL;
  char* const size = mode ? field(&at) : NULL;
  char* const sha256 = size ? field(&at) : NULL;
  if (!sha256 || type[1] || !strchr("fdl", type[0]) || !*at) return false;
  unsigned long long bits;
  if (!number(mode, 8, 07777, &bits) || !number(size, 10, 1ULL << 48, &entry->size)) return false;
  if (type[0] == 'f' ? strlen(sha256) != 64 : strcmp(sha256, "-") != 0) return false;
  char* const tab = strchr(at, '\t');
  if ((tab != NULL) != (type[0] == 'l')) return false;
  if (tab) *tab = '\0';
  if (*at == '/' || strlen(at) >= MAX_PATH) return false;
  entry->type = type[0];
  entry->mode = (unsigned)bits;
  entry->sha256 = sha256;
  entry->path = at;
  entry->target = tab ? tab + 1 : NULL;
  entry->seen = false;
  return true;
}

static void parse_list(char* text, size_t size, struct check* check) {
  if (strlen(text) != size || strncmp(text, kHeader, sizeof kHeader - 1) != 0) bad_line(1);
  char* line = text + sizeof kHeader - 1;
  char* end = strchr(line, '\n');
  unsigned long long count;
  if (!end) bad_line(1);
  *end = '\0';
  if (!number(line, 10, MAX_ENTRIES, &count)) bad_line(1);
  check->entries = take(count * sizeof *check->entries);
  for (check->count = 0; check->count < count; ++check->count) {
    line = end + 1;
    end = strchr(line, '\n');
    if (!end) bad_line(check->count + 2);
    *end = '\0';
    struct entry* const entry = &check->entries[check->count];
    if (!parse_line(line, entry)) bad_line(check->count + 2);
    if (check->count && strcmp(entry[-1].path, entry->path) >= 0) bad_line(check->count + 2);
  }
  if (end[1]) bad_line(check->count + 2);
}

static struct entry* find(const struct check* check, const char* path) {
  size_t low = 0;
  size_t high = check->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const int order = strcmp(path, check->entries[middle].path);
    if (order == 0) return &check->entries[middle];
    if (order < 0) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return NULL;
}

static char type_of(mode_t mode) {
  return S_ISREG(mode) ? 'f' : S_ISDIR(mode) ? 'd' : S_ISLNK(mode) ? 'l' : '?';
}

static void check_content(struct check* check, const struct entry* entry, int folder, const char* name) {
  const int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) {
    differs(check, entry->path, strerror(errno));
    return;
  }
  static unsigned char data[1 << 16];
  struct sha256 hash;
  sha256_start(&hash);
  ssize_t got;
  while ((got = read(file, data, sizeof data)) > 0) {
    sha256_add(&hash, data, (size_t)got);
    check->bytes += (unsigned long long)got;
  }
  const int error = errno;
  close(file);
  char hex[65];
  sha256_end(&hash, hex);
  if (got < 0) {
    differs(check, entry->path, strerror(error));
  } else if (strcmp(hex, entry->sha256) != 0) {
    differs(check, entry->path, "the content differs");
  }
}

static void check_entry(struct check* check, struct entry* entry, const struct stat* status, int folder,
                        const char* name) {
  entry->seen = true;
  if (type_of(status->st_mode) != entry->type) {
    differs(check, entry->path, "is of another type");
    return;
  }
  if (entry->type != 'l' && (status->st_mode & 07777) != (entry->mode & ~check->umask)) {
    differs(check, entry->path, "the mode differs");
  }
  if (entry->type == 'l') {
    char target[MAX_PATH];
    const ssize_t length = readlinkat(folder, name, target, sizeof target - 1);
    if (length < 0 || strlen(entry->target) != (size_t)length ||
        memcmp(entry->target, target, (size_t)length) != 0) {
      differs(check, entry->path, "the link leads elsewhere");
    }
  } else if (entry->type == 'f' && (unsigned long long)status->st_size != entry->size) {
    differs(check, entry->path, "the size differs");
  } else if (entry->type == 'f') {
    check_content(check, entry, folder, name);
  }
}

/// Everything in the folder `path` (open as `fd`, closed here); the depth bounds the recursion.
static void walk(struct check* check, int fd, const char* path, int depth) {
  DIR* const folder = fdopendir(fd);
  if (!folder || depth > MAX_DEPTH) {
    differs(check, path, folder ? "is nested too deeply" : strerror(errno));
    if (folder) closedir(folder);
    return;
  }
  const struct dirent* item;
  while ((item = readdir(folder))) {
    if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0) continue;
    char name[MAX_PATH];
    const bool top = strcmp(path, ".") == 0;
    const int length = snprintf(name, sizeof name, "%s%s%s", top ? "" : path, top ? "" : "/", item->d_name);
    struct stat status;
    if (length >= MAX_PATH || fstatat(fd, item->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
      differs(check, path, "holds something that cannot be looked at");
      continue;
    }
    if (strcmp(name, kList) == 0) continue;
    struct entry* const entry = find(check, name);
    if (!entry) {
      differs(check, name, "is not in the list");
    } else {
      check_entry(check, entry, &status, fd, item->d_name);
    }
    if (S_ISDIR(status.st_mode)) {
      const int below = openat(fd, item->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
      if (below < 0) {
        differs(check, name, strerror(errno));
      } else {
        walk(check, below, name, depth + 1);
      }
    }
  }
  closedir(folder);
}

int verify_bundle(int root_fd) {
  struct check check = {0};
  size_t size;
  char hex[65];
  char* const text = read_list(root_fd, &size, hex);
  parse_list(text, size, &check);
  const int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat status;
  struct entry* const top = find(&check, ".");
  if (fd < 0 || fstat(fd, &status) != 0) {
    fail(EXIT_WORK_FAILED, "cannot read the bundle", NULL, strerror(errno), NULL);
  }
  if (!top) bad_line(2);
  // A umask of group and others at extraction is no change, as long as it shows everywhere alike.
  check.umask = top->mode & ~status.st_mode & 077;
  check_entry(&check, top, &status, fd, ".");
  walk(&check, fd, ".", 0);
  for (size_t i = 0; i < check.count; ++i) {
    if (!check.entries[i].seen) differs(&check, check.entries[i].path, "is missing");
  }
  errno = 0;
  printf("%s: %zu entries, %llu bytes, list sha256 %s\n", check.differences ? "BUNDLE DIFFERS" : "bundle ok",
         check.count, check.bytes, hex);
  if (fflush(stdout) != 0 || ferror(stdout)) {
    fail(EXIT_WORK_FAILED, "the output cannot be written", "stdout", errno ? strerror(errno) : NULL, NULL);
  }
  return check.differences ? EXIT_CHECK_FAILED : 0;
}
