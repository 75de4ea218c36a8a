/// A large block of anonymous memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aima::base {

/// Zeroed memory that begins at a multiple of 2 MiB, with huge pages asked for. Pages are taken as they are
/// touched. Movable.
class Pages {
 public:
  Pages() = default;
  /// Throws Error (failed) naming `purpose` when the system does not give `bytes`.
  Pages(std::uint64_t bytes, const char* purpose);
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();

  std::byte* data() const { return data_; }  ///< null when empty
  std::uint64_t size() const { return size_; }

 private:
  void* mapping_ = nullptr;
  std::size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace aima::base
