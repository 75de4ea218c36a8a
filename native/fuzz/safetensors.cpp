/// The header of a safetensors file: whatever it claims, every accepted tensor lies within the file.
#include "model/safetensors.h"

#include <span>
#include <string>

#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace aima;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const std::string file = "file";
  fuzz::accepts([&] {
    std::size_t covered = 0;
    for (const auto& [name, tensor] : model::parse_safetensors(bytes, size, file)) {
      std::int64_t count = 1;
      for (const std::int64_t length : tensor.shape) {
        fuzz::require(length >= 0, "a length is not negative");
        count *= length;
      }
      covered += tensor.bytes;
      fuzz::require(tensor.begin >= 8, "data follows the header");
      fuzz::require(tensor.begin + tensor.bytes <= size, "data ends in the file");
      if (tensor.bytes == 0) continue;
      fuzz::require(static_cast<std::size_t>(count) <= tensor.bytes, "an element takes a byte or more");
    }
    fuzz::require(covered + 8 <= size, "tensors share no bytes");
  });
  return 0;
}
