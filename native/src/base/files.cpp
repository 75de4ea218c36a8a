#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw_input("the file cannot be opened", path, errno);
  return fd;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor fd(open_for_reading(path));
  size_ = regular_size(fd.get(), path);
  if (size_ == 0) return;
  const void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) throw_input("the file cannot be mapped", path, errno);
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

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)),
      temporary_((path_.parent_path() / ("." + path_.filename().string() + ".XXXXXX")).string()),
      fd_(::mkstemp(temporary_.data())) {
  if (fd_ < 0) throw_system("the file cannot be created", path_.string(), errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
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
  if (!failed) return;
  const int cause = errno;
  ::unlink(temporary_.c_str());
  throw_system("the file cannot be put in place", path_.string(), cause);
}

}  // namespace aima::base
