/// Holds a model's tensors in memory: read by several workers, or mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/pages.h"
#include "model/checkpoint.h"
#include "model/tensor_reader.h"

namespace aima::model {

enum class Method {
  read,  ///< copied once from the files into anonymous memory with huge pages
  mmap,  ///< left in the page cache; pages come in as they are used
};

constexpr std::string_view name_of(Method method) { return method == Method::read ? "read" : "mmap"; }

struct LoadOptions {
  Method method = Method::read;
  int workers = 0;      ///< 0: as many as `load_workers` says
  bool digest = false;  ///< digest mapped tensors too, which brings all of them in; those read always are
  Watch watch = {};
};

/// A tensor that is needed, and as what. `name` and `tensor` belong to the checkpoint.
struct Wanted {
  std::string_view name;
  const Tensor* tensor = nullptr;
  DType dtype = DType::bf16;  ///< in memory: another than the file's means converted while it is read
  bool passing = false;       ///< needed only until `release_passing`
};

/// What a load took; bytes and seconds.
struct LoadReport {
  Method method = Method::read;
  int workers = 0;
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;  ///< of the tensors wanted, as they lie in the files
  std::uint64_t read_bytes =
      0;               ///< of those, read or digested while loading; the rest is mapped and untouched
  double seconds = 0;  ///< for read_bytes
  std::uint64_t held_bytes = 0;    ///< anonymous memory
  std::uint64_t mapped_bytes = 0;  ///< of file, in the page cache once used
};

/// What the tensors will take, known before any of it is taken.
struct StoreSize {
  std::uint64_t held_bytes = 0;     ///< anonymous memory that stays
  std::uint64_t passing_bytes = 0;  ///< anonymous memory needed while loading
  std::uint64_t mapped_bytes = 0;   ///< tensors that stay in mapped files
};

StoreSize store_size(std::span<const Wanted> wanted, Method method);

class TensorStore {
 public:
  /// Throws base::Error: memory or a file cannot be had (failed), naming file and offset; base::Cancelled
  /// when told to stop.
  TensorStore(const Checkpoint& checkpoint, std::span<const Wanted> wanted, const LoadOptions& options);

  /// The tensor's first byte, in the dtype asked for; `name` must have been wanted.
  const std::byte* find(std::string_view name) const;
  const LoadReport& report() const { return report_; }
  /// XXH3-128 by tensor name, of those that were read or digested.
  const std::map<std::string, std::string, std::less<>>& digests() const { return digests_; }
  /// Gives back the memory of `passing` tensors.
  void release_passing();

 private:
  struct Job;
  std::vector<Job> place(const Checkpoint& checkpoint, std::span<const Wanted> wanted,
                         const LoadOptions& options);
  void map_file(const Shard& shard, std::size_t index);
  void run(const Checkpoint& checkpoint, std::vector<Job> jobs, const LoadOptions& options);

  base::Pages held_;
  base::Pages passing_;
  std::map<std::size_t, base::MappedFile> files_;  ///< by shard
  std::map<std::string, const std::byte*, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> digests_;
  LoadReport report_;
};

}  // namespace aima::model
