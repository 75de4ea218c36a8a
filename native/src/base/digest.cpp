#include "base/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace aima::base {

struct Digest::State {
  XXH3_state_t xxh;
};

Digest::Digest() : state_(std::make_unique<State>()) { reset(); }

Digest::~Digest() = default;

void Digest::reset() { XXH3_128bits_reset(&state_->xxh); }

void Digest::add(std::span<const std::byte> data) {
  XXH3_128bits_update(&state_->xxh, data.data(), data.size());
}

std::string Digest::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->xxh));
  return to_hex(std::as_bytes(std::span(canonical.digest)));
}

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += digits[std::to_integer<unsigned>(byte) >> 4U];
    text += digits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

}  // namespace aima::base
