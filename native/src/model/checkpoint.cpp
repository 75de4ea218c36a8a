#include "model/checkpoint.h"

#include <map>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace aima::model {
namespace {

using base::json::Object;

[[noreturn]] void refuse(std::string what, std::string_view file, std::string why = {}) {
  base::throw_usage({.what = std::move(what), .where = std::string(file), .why = std::move(why)});
}

/// How the file begins, up to the end of its header.
std::vector<std::byte> read_head(const base::ReadFile& file, std::string_view name) {
  std::vector<std::byte> head(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), 32)));
  file.read_at(0, head);
  const std::uint64_t length = header_length(head, file.size(), name);
  const std::size_t known = std::min<std::size_t>(head.size(), 8 + length);
  head.resize(8 + length);
  file.read_at(known, std::span(head).subspan(known));
  return head;
}

}  // namespace

void Checkpoint::add_file(const std::filesystem::path& path) {
  const base::ReadFile file(path);
  shards_.push_back(std::make_unique<Shard>(
      Shard{.path = path.string(), .name = path.filename().string(), .bytes = file.size()}));
  const Shard& shard = *shards_.back();
  for (auto& [name, tensor] : parse_safetensors(read_head(file, shard.path), shard.bytes, shard.path)) {
    tensor.shard = shards_.size() - 1;
    const auto [place, added] = tensors_.emplace(name, std::move(tensor));
    if (!added) refuse("the tensor `" + name + "` is also in " + std::string(place->second.file), shard.path);
  }
}

void Checkpoint::open_index(const std::filesystem::path& folder, const std::filesystem::path& index) {
  const boost::json::value document = base::json::parse(base::read_text(index), index.string());
  const Object map = Object(document, index.string()).object("weight_map");
  std::map<std::string, std::size_t> shards;
  for (const auto& field : map.raw()) {
    const std::string shard(map.string(field.key()));
    if (shard.empty() || shard.front() == '.' || shard.find('/') != std::string::npos) {
      map.refuse(field.key(), "the name of a file in the same folder is expected here");
    }
    ++shards[shard];
  }
  for (const auto& [shard, count] : shards) {
    if (base::is_there(folder / shard)) continue;
    refuse("the shard " + shard + " is missing", index.string(),
           "the index places " + std::to_string(count) + " tensors there");
  }
  for (const auto& [shard, count] : shards) add_file(folder / shard);
  for (const auto& field : map.raw()) {
    const Tensor* tensor = find(field.key());
    const std::string shard = (folder / std::string(map.string(field.key()))).string();
    if (tensor == nullptr || tensor->file != shard)
      map.refuse(field.key(), "the shard does not hold this tensor", shard);
  }
}

Checkpoint Checkpoint::open(const std::filesystem::path& folder) {
  Checkpoint checkpoint;
  const std::filesystem::path single = folder / "model.safetensors";
  const std::filesystem::path index = folder / "model.safetensors.index.json";
  if (base::is_there(single)) {
    checkpoint.where_ = single.string();
    checkpoint.add_file(single);
  } else if (base::is_there(index)) {
    checkpoint.where_ = index.string();
    checkpoint.open_index(folder, index);
  } else {
    refuse("the folder has neither model.safetensors nor model.safetensors.index.json", folder.string());
  }
  return checkpoint;
}

const Tensor* Checkpoint::find(std::string_view name) const {
  const auto place = tensors_.find(name);
  return place == tensors_.end() ? nullptr : &place->second;
}

std::uint64_t Checkpoint::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors_) sum += tensor.bytes;
  return sum;
}

}  // namespace aima::model
