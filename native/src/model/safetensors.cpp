#include "model/safetensors.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/numbers.h"

namespace aima::model {
namespace {

using base::json::Object;
using TensorMap = std::map<std::string, Tensor, std::less<>>;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::uint64_t max_header = 100'000'000;  // the format's own limit
constexpr std::size_t max_dimensions = 8;

struct KnownType {
  std::string_view name;
  DType dtype;
  std::uint64_t bytes;
};

constexpr KnownType known_types[] = {
    {"BF16", DType::bf16, 2},  {"F16", DType::f16, 2},       {"F32", DType::f32, 4},
    {"F64", DType::other, 8},  {"I64", DType::other, 8},     {"I32", DType::other, 4},
    {"I16", DType::other, 2},  {"I8", DType::other, 1},      {"U64", DType::other, 8},
    {"U32", DType::other, 4},  {"U16", DType::other, 2},     {"U8", DType::other, 1},
    {"BOOL", DType::other, 1}, {"F8_E4M3", DType::other, 1}, {"F8_E5M2", DType::other, 1},
};

[[noreturn]] void refuse(std::string what, std::string_view file, std::string why = {}) {
  base::throw_usage({.what = std::move(what), .where = std::string(file), .why = std::move(why)});
}

std::string_view header_text(std::span<const std::byte> bytes, std::string_view file) {
  const std::string size = std::to_string(bytes.size()) + " bytes";
  if (bytes.size() < 8) refuse("the safetensors file is truncated", file, "it has only " + size);
  const auto length = base::load_unaligned<std::uint64_t>(bytes.data());
  if (length > max_header) {
    refuse("not a safetensors file", file, "its header claims " + std::to_string(length) + " bytes");
  }
  if (length > bytes.size() - 8) {
    refuse("the safetensors file is truncated", file,
           "its header has " + std::to_string(length) + " bytes, the file " + size);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  if (text.empty() || text.front() != '{')
    refuse("not a safetensors file", file, "its header is not a JSON object");
  return text;
}

/// A non-negative integer of the list `key`, or nothing.
std::optional<std::uint64_t> natural(const boost::json::value& value) {
  if (value.is_uint64()) return value.get_uint64();
  if (value.is_int64() && value.get_int64() >= 0) return static_cast<std::uint64_t>(value.get_int64());
  return std::nullopt;
}

/// a * b, or nothing when that does not fit.
std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Range read_range(const Object& entry) {
  const auto& offsets = entry.array("data_offsets");
  const auto begin = offsets.size() == 2 ? natural(offsets[0]) : std::nullopt;
  const auto end = offsets.size() == 2 ? natural(offsets[1]) : std::nullopt;
  if (!begin || !end || *begin > *end)
    entry.refuse("data_offsets", "two ascending offsets are expected here");
  return {*begin, *end};
}

std::vector<std::int64_t> read_shape(const Object& entry) {
  std::vector<std::int64_t> shape;
  for (const auto& value : entry.array("shape")) {
    const auto size = natural(value);
    if (!size || *size > (std::uint64_t{1} << 48))
      entry.refuse("shape", "sizes from 0 to 2^48 are expected here");
    shape.push_back(static_cast<std::int64_t>(*size));
  }
  if (shape.size() > max_dimensions) entry.refuse("shape", "more than 8 dimensions");
  return shape;
}

Tensor read_entry(const Object& entry, std::span<const std::byte> data, std::string_view file) {
  for (const auto& field : entry.raw()) {
    const std::string_view key = field.key();
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      entry.refuse(key, "unknown field of a tensor");
  }
  Tensor tensor;
  tensor.file = file;
  tensor.dtype_name = entry.string("dtype");
  const auto* type = std::ranges::find(known_types, tensor.dtype_name, &KnownType::name);
  if (type == std::end(known_types)) entry.refuse("dtype", "unknown dtype `" + tensor.dtype_name + "`");
  tensor.dtype = type->dtype;
  tensor.shape = read_shape(entry);
  std::optional<std::uint64_t> size = type->bytes;
  for (const std::int64_t dimension : tensor.shape) {
    if (size) size = product(*size, static_cast<std::uint64_t>(dimension));
  }
  const Range range = read_range(entry);
  if (!size || *size != range.end - range.begin) {
    entry.refuse(
        "data_offsets", "the offsets span " + std::to_string(range.end - range.begin) + " bytes",
        size ? "shape and dtype give " + std::to_string(*size) : "shape and dtype give more than 2^64");
  }
  if (range.end > data.size()) {
    entry.refuse("data_offsets", "the data lies outside the file",
                 "it ends at " + std::to_string(range.end) + " of " + std::to_string(data.size()) +
                     " data bytes; is the file truncated?");
  }
  tensor.data = data.subspan(range.begin, range.end - range.begin);
  return tensor;
}

/// The format demands that tensors cover the data without overlap, gap or rest.
void check_cover(const TensorMap& tensors, std::span<const std::byte> data, std::string_view file) {
  std::vector<const TensorMap::value_type*> order;
  for (const auto& entry : tensors) order.push_back(&entry);
  std::ranges::sort(order, {},
                    [](const auto* e) { return std::pair(e->second.data.data(), e->second.data.size()); });
  const std::byte* end = data.data();
  for (const auto* entry : order) {
    const std::byte* begin = entry->second.data.data();
    if (begin < end) refuse("the tensor `" + entry->first + "` overlaps another", file);
    if (begin > end) refuse("there is a gap before the tensor `" + entry->first + "`", file);
    end = begin + entry->second.data.size();
  }
  const std::byte* file_end = data.data() + data.size();
  if (end != file_end) refuse(std::to_string(file_end - end) + " bytes follow the last tensor", file);
}

}  // namespace

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::f32:
      return "F32";
    case DType::other:
      break;
  }
  return "another dtype";
}

TensorMap parse_safetensors(std::span<const std::byte> bytes, std::string_view file) {
  const std::string_view header = header_text(bytes, file);
  const boost::json::value document = base::json::parse(header, std::string(file) + " (header)");
  const std::span<const std::byte> data = bytes.subspan(8 + header.size());
  TensorMap tensors;
  for (const auto& field : document.get_object()) {
    const std::string_view name = field.key();
    if (name == "__metadata__") continue;
    const Object entry(field.value(), std::string(file) + ": " + std::string(name));
    tensors.emplace(name, read_entry(entry, data, file));
  }
  check_cover(tensors, data, file);
  return tensors;
}

void Checkpoint::add_file(const std::filesystem::path& path) {
  files_.push_back(std::make_unique<File>(File{path.string(), base::MappedFile(path)}));
  const File& file = *files_.back();
  for (auto& [name, tensor] : parse_safetensors(file.map.bytes(), file.name)) {
    const auto [place, added] = tensors_.emplace(name, std::move(tensor));
    if (!added) refuse("the tensor `" + name + "` is also in " + std::string(place->second.file), file.name);
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

std::size_t Checkpoint::bytes() const {
  std::size_t sum = 0;
  for (const auto& [name, tensor] : tensors_) sum += tensor.data.size();
  return sum;
}

}  // namespace aima::model
