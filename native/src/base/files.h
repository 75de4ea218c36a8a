/// Files: read whole, mapped, or written so that readers see all of it or nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace aima::base {

/// A file open for reading at any offset, by any number of threads. Movable.
class ReadFile {
 public:
  /// Throws Error (usage) when the file cannot be opened or is not a regular file.
  explicit ReadFile(std::filesystem::path path);
  ReadFile(ReadFile&& other) noexcept;
  ReadFile& operator=(ReadFile&& other) noexcept;
  ReadFile(const ReadFile&) = delete;
  ReadFile& operator=(const ReadFile&) = delete;
  ~ReadFile();

  std::uint64_t size() const { return size_; }  ///< bytes, as it was when opened
  const std::filesystem::path& path() const { return path_; }

  /// Fills `into` from `offset` on. Throws Error (failed) naming file and offset when the system cannot read
  /// there, or the file ends before.
  void read_at(std::uint64_t offset, std::span<std::byte> into) const;
  /// Tells the system that this range will be read soon. Only a hint.
  void will_read(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::filesystem::path path_;
  std::uint64_t size_ = 0;
  int fd_ = -1;
};

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

/// Whether something is at `path`. Throws Error (usage) where that cannot be told or reached: a symbolic link
/// that leads nowhere or in a circle, a folder that may not be searched. Such a file is damaged, not absent.
bool is_there(const std::filesystem::path& path);

/// The file's text. Throws Error (usage) when it cannot be read or is longer than `limit` bytes.
std::string read_text(const std::filesystem::path& path, std::size_t limit = std::size_t{64} << 20);

/// A file under a temporary name beside `path`, renamed onto it by `commit`, removed if that never happens.
/// What `path` names is replaced only where it is a regular file (or a link to one, which stays); a device,
/// a FIFO or a folder is refused.
class AtomicFile {
 public:
  /// `option`: what the user named the path with, for messages. Throws Error (usage) for a path that no file
  /// can be put at, Error (failed) when the temporary file cannot be made.
  explicit AtomicFile(const std::filesystem::path& path, std::string_view option = {});
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void append(std::span<const std::byte> data);
  /// Overwrites bytes that were appended before.
  void rewrite(std::int64_t offset, std::span<const std::byte> data);
  void commit();

 private:
  void forget() noexcept;

  std::filesystem::path path_;
  std::string temporary_;
  int slot_ = -1;  ///< in the list of what remove_temporary_files removes
  int fd_ = -1;
};

/// Removes the temporary files of all AtomicFiles that were not committed, for a process that is about to
/// end. May be called by a signal handler.
void remove_temporary_files() noexcept;

}  // namespace aima::base
