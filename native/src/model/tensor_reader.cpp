#include "model/tensor_reader.h"

#include <algorithm>

#include "base/cpu.h"
#include "base/threads.h"

namespace aima::model {
namespace {

/// Asked of the system ahead of the block being read: one worker alone then keeps a fast disk busy.
constexpr std::uint64_t read_ahead = std::uint64_t{8} << 20;

constexpr std::uint64_t large_tensor = std::uint64_t{32} << 20;

}  // namespace

void Meter::add(std::uint64_t bytes) {
  if (watch_.stop != nullptr && watch_.stop->load(std::memory_order_relaxed)) throw base::Cancelled();
  const std::uint64_t done = done_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (!watch_.progress || telling_.exchange(true, std::memory_order_acquire)) return;
  watch_.progress(done, total_);
  telling_.store(false, std::memory_order_release);
}

const base::ReadFile& TensorReader::file(std::size_t shard) {
  if (!file_ || shard_ != shard) file_.emplace(checkpoint_.shard(shard).path);
  shard_ = shard;
  return *file_;
}

void TensorReader::blocks(std::size_t shard, Range range, std::byte* into, BlockUse use) {
  const base::ReadFile& source = file(shard);
  if (into == nullptr) buffer_.resize(read_block);
  std::uint64_t asked = range.begin;
  for (std::uint64_t at = range.begin; at < range.end; at += read_block) {
    if (at + read_ahead >= asked && asked < range.end) {
      const std::uint64_t more = std::min(2 * read_ahead, range.end - asked);
      source.will_read(asked, more);
      asked += more;
    }
    const std::uint64_t count = std::min(read_block, range.end - at);
    const std::span<std::byte> block(into == nullptr ? buffer_.data() : into + (at - range.begin), count);
    source.read_at(at, block);
    use(block);
  }
}

std::string TensorReader::read(const Tensor& tensor, std::byte* into) {
  digest_.reset();
  blocks(tensor.shard, {tensor.begin, tensor.begin + tensor.bytes}, into,
         [&](std::span<const std::byte> block) {
           digest_.add(block);
           meter_.add(block.size());
         });
  return digest_.hex();
}

std::string TensorReader::stream(const Tensor& tensor, BlockUse use) {
  digest_.reset();
  blocks(tensor.shard, {tensor.begin, tensor.begin + tensor.bytes}, nullptr,
         [&](std::span<const std::byte> block) {
           digest_.add(block);
           use(block);
           meter_.add(block.size());
         });
  return digest_.hex();
}

std::string TensorReader::digest(const Tensor& tensor, const std::byte* data) {
  digest_.reset();
  for (std::uint64_t at = 0; at < tensor.bytes; at += read_block) {
    const std::uint64_t count = std::min(read_block, tensor.bytes - at);
    digest_.add({data + at, count});
    meter_.add(count);
  }
  return digest_.hex();
}

std::tuple<std::uint64_t, std::size_t, std::uint64_t> work_order(const Tensor& tensor) {
  const std::uint64_t large = tensor.bytes >= large_tensor ? tensor.bytes : 0;
  return {~large, tensor.shard, tensor.begin};
}

int load_workers(int asked) { return asked > 0 ? asked : std::clamp(base::usable_cores(), 4, 8); }

}  // namespace aima::model
