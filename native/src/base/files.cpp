#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace aima::base {
namespace {

/// Closes the descriptor on every way out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

[[noreturn]] void throw_input(std::string what, const std::filesystem::path& path, int errno_value) {
  throw_usage(
      {.what = std::move(what), .where = path.string(), .why = std::generic_category().message(errno_value)});
}

std::size_t regular_size(int fd, const std::filesystem::path& path) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) throw_input("the file cannot be examined", path, errno);
  if (!S_ISREG(status.st_mode)) throw_usage({.what = "not a regular file", .where = path.string()});
  return static_cast<std::size_t>(status.st_size);
}

int open_for_reading(const std::filesystem::path& path) {
  // O_NONBLOCK: a FIFO must not make the process wait until someone writes; it is refused below.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) throw_input("the file cannot be opened", path, errno);
  return fd;
}

}  // namespace

ReadFile::ReadFile(std::filesystem::path path) : path_(std::move(path)) {
  Descriptor fd(open_for_reading(path_));
  size_ = regular_size(fd.get(), path_);
  fd_ = fd.release();
}

ReadFile::ReadFile(ReadFile&& other) noexcept
    : path_(std::move(other.path_)), size_(other.size_), fd_(std::exchange(other.fd_, -1)) {}

ReadFile& ReadFile::operator=(ReadFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

ReadFile::~ReadFile() {
  if (fd_ >= 0) ::close(fd_);
}

void ReadFile::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = ::pread(fd_, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const std::string why = got < 0 ? std::generic_category().message(errno)
                                      : "the file ends there: it was cut after it was opened";
      throw Error({.what = "the file cannot be read at byte " + std::to_string(offset),
                   .where = path_.string(),
                   .why = why});
    }
    offset += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

void ReadFile::will_read(std::uint64_t offset, std::uint64_t bytes) const {
  ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor fd(open_for_reading(path));
  size_ = regular_size(fd.get(), path);
  if (size_ == 0) return;
  const void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    const int cause = errno;
    if (cause == ENOMEM) throw_system("the file cannot be mapped", path.string(), cause);
    throw_input("the file cannot be mapped", path, cause);
  }
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

bool is_there(const std::filesystem::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0) return true;
  const int cause = errno;
  if (::lstat(path.c_str(), &status) == 0) throw_input("the symbolic link cannot be followed", path, cause);
  if (errno == ENOENT || errno == ENOTDIR) return false;
  throw_input("the file cannot be examined", path, errno);
}

std::string read_text(const std::filesystem::path& path, std::size_t limit) {
  const Descriptor fd(open_for_reading(path));
  const std::size_t size = regular_size(fd.get(), path);
  if (size > limit) {
    throw_usage(
        {.what = "the file is too long",
         .where = path.string(),
         .why = std::to_string(size) + " bytes; at most " + std::to_string(limit) + " make sense here"});
  }
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(fd.get(), text.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_input("the file cannot be read", path, errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

namespace {

/// Names of temporary files, as remove_temporary_files sees them.
constinit std::array<std::atomic<const char*>, 16> temporaries = {};

int take_slot(const char* name) {
  for (std::size_t i = 0; i < temporaries.size(); ++i) {
    const char* empty = nullptr;
    if (temporaries[i].compare_exchange_strong(empty, name)) return static_cast<int>(i);
  }
  return -1;  // that many at a time: this one stays behind if a signal ends the process
}

/// Where a file that is to be `path` has to be put. rename() would replace a device as readily as a file, so
/// only what is a regular file or nothing at all passes.
std::filesystem::path checked_target(const std::filesystem::path& path, std::string_view option) {
  const std::string where = std::string(option) + (option.empty() ? "" : " ") + "`" + path.string() + "`";
  const std::filesystem::path name = path.filename();
  if (name.empty() || name == "." || name == "..")
    throw_usage({.what = "no file can be written there", .where = where, .why = "the path names no file"});
  if (!is_there(path)) return path;
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) throw_input("the file cannot be examined", path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw_usage({.what = "no file can be written there",
                 .where = where,
                 .why = S_ISDIR(status.st_mode) ? "it is a folder" : "it is a device, a FIFO or a socket",
                 .hint = "only a new name or a regular file is accepted"});
  }
  std::error_code error;
  std::filesystem::path real = std::filesystem::canonical(path, error);
  if (error) throw_input("the file cannot be examined", path, error.value());
  return real;
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path, std::string_view option)
    : path_(checked_target(path, option)),
      temporary_((path_.parent_path() / ("." + path_.filename().string() + ".XXXXXX")).string()),
      slot_(take_slot(temporary_.c_str())),
      fd_(::mkstemp(temporary_.data())) {
  if (fd_ >= 0) return;
  const int cause = errno;
  forget();
  throw_system("the file cannot be created", path_.string(), cause);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
  forget();
}

void AtomicFile::forget() noexcept {
  if (slot_ >= 0) temporaries[static_cast<std::size_t>(std::exchange(slot_, -1))] = nullptr;
}

void remove_temporary_files() noexcept {
  for (const std::atomic<const char*>& name : temporaries) {
    if (const char* const path = name.load()) ::unlink(path);
  }
}

void AtomicFile::append(std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t put = ::write(fd_, data.data(), data.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw_system("the file cannot be written", path_.string(), errno);
    data = data.subspan(static_cast<std::size_t>(put));
  }
}

void AtomicFile::rewrite(std::int64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t put = ::pwrite(fd_, data.data(), data.size(), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw_system("the file cannot be written", path_.string(), errno);
    data = data.subspan(static_cast<std::size_t>(put));
    offset += put;
  }
}

void AtomicFile::commit() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  const bool failed = ::fchmod(fd_, 0666 & ~mask) != 0 || ::close(std::exchange(fd_, -1)) != 0 ||
                      ::rename(temporary_.c_str(), path_.c_str()) != 0;
  const int cause = errno;
  if (failed) ::unlink(temporary_.c_str());
  forget();
  if (failed) throw_system("the file cannot be put in place", path_.string(), cause);
}

}  // namespace aima::base
