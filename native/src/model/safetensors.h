/// Reads the headers of safetensors files. Nothing is trusted before it is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aima::model {

enum class DType { bf16, f16, f32, other };

std::string_view name_of(DType dtype);

/// Bytes of an element of bf16, f16 or f32.
std::int64_t bytes_of(DType dtype);

/// A tensor's place in a file.
struct Tensor {
  DType dtype = DType::other;
  std::string dtype_name;           ///< as the file spells it, for messages
  std::vector<std::int64_t> shape;  ///< row-major
  std::uint64_t begin = 0;          ///< offset in the file of its first byte; aligned to nothing
  std::uint64_t bytes = 0;
  std::string_view file;  ///< path of the file
  std::size_t shard = 0;  ///< which file of its checkpoint
};

using TensorMap = std::map<std::string, Tensor, std::less<>>;

/// Bytes of the JSON header that follows the first 8 bytes of a file of `file_bytes` bytes. `head` is how the
/// file begins, 8 bytes at least unless it is shorter. Throws base::Error (usage) when the file is no
/// safetensors file, or shorter than its header.
std::uint64_t header_length(std::span<const std::byte> head, std::uint64_t file_bytes, std::string_view file);

/// Checks a header and returns its tensors. `head` is how the file begins, its header at least; `file`
/// outlives the result. Throws base::Error (usage): file shorter than its header says, malformed or duplicate
/// entries, offsets out of range, overlapping or with gaps, a size that does not follow from shape and dtype,
/// bytes after the last tensor.
TensorMap parse_safetensors(std::span<const std::byte> head, std::uint64_t file_bytes, std::string_view file);

}  // namespace aima::model
