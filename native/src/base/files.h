/// Files: read whole, mapped, or written so that readers see all of it or nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace aima::base {

/// A file mapped read-only for the life of the object. Movable.
class MappedFile {
 public:
  /// Throws Error (usage) when the file cannot be opened or is not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The file's text. Throws Error (usage) when it cannot be read or is longer than `limit` bytes.
std::string read_text(const std::filesystem::path& path, std::size_t limit = std::size_t{64} << 20);

/// A file under a temporary name beside `path`, renamed onto it by `commit`, removed if that never happens.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void append(std::span<const std::byte> data);
  /// Overwrites bytes that were appended before.
  void rewrite(std::int64_t offset, std::span<const std::byte> data);
  void commit();

 private:
  std::filesystem::path path_;
  std::string temporary_;
  int fd_ = -1;
};

}  // namespace aima::base
