/// A folder's safetensors files: what tensors there are, and where. The tensors themselves are not touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/safetensors.h"

namespace aima::model {

/// One file of a checkpoint.
struct Shard {
  std::string path;
  std::string name;  ///< within the folder
  std::uint64_t bytes = 0;
};

class Checkpoint {
 public:
  /// model.safetensors, or the shards of model.safetensors.index.json. Reads the headers alone. Throws
  /// base::Error (usage) when neither is there, a shard is missing or broken, a tensor lies in two shards, or
  /// the index does not agree with the shards.
  static Checkpoint open(const std::filesystem::path& folder);

  const Tensor* find(std::string_view name) const;
  const TensorMap& tensors() const { return tensors_; }
  const std::string& where() const { return where_; }
  std::size_t file_count() const { return shards_.size(); }
  const Shard& shard(std::size_t index) const { return *shards_[index]; }
  std::uint64_t bytes() const;  ///< of all tensors

 private:
  void add_file(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& folder, const std::filesystem::path& index);

  std::string where_;
  std::vector<std::unique_ptr<Shard>> shards_;  ///< unique_ptr: tensors point at the paths
  TensorMap tensors_;
};

}  // namespace aima::model
