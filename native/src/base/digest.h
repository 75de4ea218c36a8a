/// XXH3-128 of a stream: fast enough to digest weights while they are read. Guards against damage, not
/// against an adversary.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace aima::base {

class Digest {
 public:
  Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;
  ~Digest();

  void add(std::span<const std::byte> data);
  /// 32 lower-case hex digits, the same as xxhsum's and of xxhash's `xxh3_128_hexdigest`.
  std::string hex() const;
  /// Starts again.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Bytes as lower-case hex digits.
std::string to_hex(std::span<const std::byte> bytes);

}  // namespace aima::base
