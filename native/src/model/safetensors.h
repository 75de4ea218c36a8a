/// Reads safetensors files: one, or shards with an index. Nothing is trusted before it is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace aima::model {

enum class DType { bf16, f16, f32, other };

std::string_view name_of(DType dtype);

/// A tensor as it lies in a mapped file. `data` is aligned to nothing.
struct Tensor {
  DType dtype = DType::other;
  std::string dtype_name;           ///< as the file spells it, for messages
  std::vector<std::int64_t> shape;  ///< row-major
  std::span<const std::byte> data;
  std::string_view file;  ///< name of the file, for messages
};

/// Checks a header and returns its tensors, with `data` pointing into `bytes` (the whole file). Throws
/// base::Error (usage): file shorter than its header says, malformed or duplicate entries, offsets out of
/// range, overlapping or with gaps, a size that does not follow from shape and dtype, bytes after the last
/// tensor.
std::map<std::string, Tensor, std::less<>> parse_safetensors(std::span<const std::byte> bytes,
                                                             std::string_view file);

/// All tensors of a checkpoint folder, mapped.
class Checkpoint {
 public:
  /// model.safetensors, or the shards of model.safetensors.index.json. Throws base::Error (usage) when
  /// neither is there, a shard is missing or broken, or the index does not agree with the shards.
  static Checkpoint open(const std::filesystem::path& folder);

  const Tensor* find(std::string_view name) const;
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  const std::string& where() const { return where_; }
  std::size_t file_count() const { return files_.size(); }
  std::size_t bytes() const;  ///< of all tensors

 private:
  struct File {
    std::string name;
    base::MappedFile map;
  };

  void add_file(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& folder, const std::filesystem::path& index);

  std::string where_;
  std::vector<std::unique_ptr<File>> files_;  ///< unique_ptr: tensors point at the names
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace aima::model
