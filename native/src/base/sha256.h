/// SHA-256 (FIPS 180-4) of a stream, with the processor's own instructions where it has them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace aima::base {

class Sha256 {
 public:
  /// `portable`: without the processor's instructions, for tests.
  explicit Sha256(bool portable = false);

  void add(std::span<const std::byte> data);
  /// 64 lower-case hex digits. Ends the stream.
  std::string hex();

 private:
  using Blocks = void (*)(std::uint32_t* state, const unsigned char* data, std::size_t blocks);

  Blocks blocks_;
  std::array<std::uint32_t, 8> state_;
  std::array<std::byte, 64> rest_ = {};
  std::uint64_t bytes_ = 0;
};

}  // namespace aima::base
