/// Streams tensors out of a checkpoint's files, with their digests.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/digest.h"
#include "base/files.h"
#include "model/checkpoint.h"

namespace aima::model {

/// Bytes read at a time: they are still in the core's own cache when they are digested.
inline constexpr std::uint64_t read_block = std::uint64_t{1} << 20;

/// Calls `progress` (may be empty) now and then from one thread at a time, and looks at `stop` (may be null).
struct Watch {
  const std::atomic<bool>* stop = nullptr;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
};

/// Bytes done by all workers of one load.
class Meter {
 public:
  Meter(const Watch& watch, std::uint64_t total) : watch_(watch), total_(total) {}
  /// Throws base::Cancelled when the stop flag is up.
  void add(std::uint64_t bytes);

 private:
  const Watch& watch_;
  std::uint64_t total_;
  std::atomic<std::uint64_t> done_{0};
  std::atomic<bool> telling_{false};
};

using BlockUse = const std::function<void(std::span<const std::byte>)>&;

/// Bytes `begin`..`end`-1 of a file.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// One worker's view of the files: its own descriptors, so that the system's read-ahead follows each worker,
/// and its own buffer.
class TensorReader {
 public:
  TensorReader(const Checkpoint& checkpoint, Meter& meter) : checkpoint_(checkpoint), meter_(meter) {}

  /// Reads the tensor straight to `into`, which holds its bytes. Returns its digest.
  std::string read(const Tensor& tensor, std::byte* into);
  /// Hands the tensor's bytes to `use`, block by block, each a whole number of elements. Returns its digest.
  std::string stream(const Tensor& tensor, BlockUse use);
  /// Digests a tensor that lies at `data`.
  std::string digest(const Tensor& tensor, const std::byte* data);

  /// Reads a range of a shard block by block, to `into` or (null) into a buffer, and hands each block to
  /// `use`. Not counted as progress.
  void blocks(std::size_t shard, Range range, std::byte* into, BlockUse use);

 private:
  const base::ReadFile& file(std::size_t shard);

  const Checkpoint& checkpoint_;
  Meter& meter_;
  std::optional<base::ReadFile> file_;
  std::size_t shard_ = 0;
  std::vector<std::byte> buffer_;
  base::Digest digest_;
};

/// Sorts tensors into the order in which workers take them: large ones first, so that none is left over at
/// the end; the rest as they lie in the files.
std::tuple<std::uint64_t, std::size_t, std::uint64_t> work_order(const Tensor& tensor);

/// Workers for a load: `asked`, or (0) one per usable core, 4 to 8.
int load_workers(int asked);

}  // namespace aima::model
