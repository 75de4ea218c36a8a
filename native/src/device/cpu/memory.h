/// Memory of the CPU device: aligned, not initialised, freed with its owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace aima::device::cpu {

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

/// `count` values of a plain type, aligned to 64 bytes. Pages that are never touched cost nothing.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t count) : count_(count) {
    const std::size_t bytes = (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    data_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
    if (bytes != 0 && data_ == nullptr) throw std::bad_alloc();
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::int64_t size() const { return count_; }

 private:
  std::unique_ptr<T, FreeDeleter> data_;
  std::int64_t count_ = 0;
};

/// Memory of the operation at hand: a part for all, which the operation asks for before its loops, and one
/// for each worker of the thread pool. They grow as needed.
class Scratch {
 public:
  explicit Scratch(int workers) : buffers_(static_cast<std::size_t>(workers)) {}

  float* floats(int worker, std::int64_t count) {
    Buffer<float>& buffer = buffers_[static_cast<std::size_t>(worker)];
    if (buffer.size() < count) buffer = Buffer<float>(count);
    return buffer.data();
  }
  std::byte* shared(std::int64_t bytes) {
    if (shared_.size() < bytes) shared_ = Buffer<std::byte>(bytes);
    return shared_.data();
  }

 private:
  std::vector<Buffer<float>> buffers_;
  Buffer<std::byte> shared_;
};

}  // namespace aima::device::cpu
