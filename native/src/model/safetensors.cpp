#include "model/safetensors.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <stdexcept>

#include "base/error.h"
#include "base/json.h"
#include "base/numbers.h"

namespace aima::model {
namespace {

using base::json::Object;

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

/// What `git clone` leaves in the place of a large file where git-lfs is not installed.
constexpr std::string_view lfs_pointer = "version https://git-lfs";

std::string_view header_text(std::span<const std::byte> head, std::uint64_t file_bytes,
                             std::string_view file) {
  const std::uint64_t length = header_length(head, file_bytes, file);
  if (head.size() < 8 + length) throw std::invalid_argument("less than the header was given");
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + 8, length);
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

struct Offsets {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Offsets read_offsets(const Object& entry) {
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

/// `data_at`: where the data begins in the file; `data_bytes`: how much of it there is.
Tensor read_entry(const Object& entry, std::uint64_t data_at, std::uint64_t data_bytes,
                  std::string_view file) {
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
  const Offsets range = read_offsets(entry);
  if (!size || *size != range.end - range.begin) {
    entry.refuse(
        "data_offsets", "the offsets span " + std::to_string(range.end - range.begin) + " bytes",
        size ? "shape and dtype give " + std::to_string(*size) : "shape and dtype give more than 2^64");
  }
  if (range.end > data_bytes) {
    entry.refuse("data_offsets", "the data lies outside the file",
                 "it ends at " + std::to_string(range.end) + " of " + std::to_string(data_bytes) +
                     " data bytes; is the file truncated?");
  }
  tensor.begin = data_at + range.begin;
  tensor.bytes = range.end - range.begin;
  return tensor;
}

/// The format demands that tensors cover the data without overlap, gap or rest.
void check_cover(const TensorMap& tensors, std::uint64_t data_at, std::uint64_t file_bytes,
                 std::string_view file) {
  std::vector<const TensorMap::value_type*> order;
  for (const auto& entry : tensors) order.push_back(&entry);
  std::ranges::sort(order, {}, [](const auto* e) { return std::pair(e->second.begin, e->second.bytes); });
  std::uint64_t end = data_at;
  for (const auto* entry : order) {
    const Tensor& tensor = entry->second;
    if (tensor.begin < end) refuse("the tensor `" + entry->first + "` overlaps another", file);
    if (tensor.begin > end) refuse("there is a gap before the tensor `" + entry->first + "`", file);
    end = tensor.begin + tensor.bytes;
  }
  if (end != file_bytes) refuse(std::to_string(file_bytes - end) + " bytes follow the last tensor", file);
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

std::int64_t bytes_of(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

std::uint64_t header_length(std::span<const std::byte> head, std::uint64_t file_bytes,
                            std::string_view file) {
  const std::string size = std::to_string(file_bytes) + " bytes";
  if (head.size() < 8) refuse("the safetensors file is truncated", file, "it has only " + size);
  const std::string_view start(reinterpret_cast<const char*>(head.data()), head.size());
  if (lfs_pointer.starts_with(start.substr(0, std::min(start.size(), lfs_pointer.size())))) {
    base::throw_usage({.what = "a git-lfs pointer stands in the place of the weights",
                       .where = std::string(file),
                       .hint = "fetch the files themselves: git lfs pull"});
  }
  const auto length = base::load_unaligned<std::uint64_t>(head.data());
  if (length > max_header) {
    refuse("not a safetensors file", file, "its header claims " + std::to_string(length) + " bytes");
  }
  if (length > file_bytes - 8) {
    refuse("the safetensors file is truncated", file,
           "its header has " + std::to_string(length) + " bytes, the file " + size);
  }
  return length;
}

TensorMap parse_safetensors(std::span<const std::byte> head, std::uint64_t file_bytes,
                            std::string_view file) {
  const std::string_view header = header_text(head, file_bytes, file);
  const boost::json::value document = base::json::parse(header, std::string(file) + " (header)");
  const std::uint64_t data_at = 8 + header.size();
  TensorMap tensors;
  for (const auto& field : document.get_object()) {
    const std::string_view name = field.key();
    if (name == "__metadata__") continue;
    const Object entry(field.value(), std::string(file) + ": " + std::string(name));
    tensors.emplace(name, read_entry(entry, data_at, file_bytes - data_at, file));
  }
  check_cover(tensors, data_at, file_bytes, file);
  return tensors;
}

}  // namespace aima::model
