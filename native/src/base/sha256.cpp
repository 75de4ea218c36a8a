#include "base/sha256.h"

#include <cpuid.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/digest.h"
#include "base/sha256_blocks.h"

namespace aima::base {

const std::uint32_t sha256_rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

namespace {

constexpr std::size_t block_bytes = 64;

constexpr std::array<std::uint32_t, 8> start = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

std::uint32_t big_endian(const unsigned char* at) {
  std::uint32_t value = 0;
  std::memcpy(&value, at, 4);
  return __builtin_bswap32(value);
}

void one_block(std::uint32_t* state, const unsigned char* data) {
  std::array<std::uint32_t, 64> w;
  for (std::size_t i = 0; i < 16; ++i) w[i] = big_endian(data + 4 * i);
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t a = w[i - 15];
    const std::uint32_t b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3U)) +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10U));
  }
  std::array<std::uint32_t, 8> v;
  std::memcpy(v.data(), state, sizeof v);
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t e = v[4];
    const std::uint32_t a = v[0];
    const std::uint32_t first = v[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                ((e & v[5]) ^ (~e & v[6])) + sha256_rounds[i] + w[i];
    const std::uint32_t second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
    std::ranges::rotate(v, v.end() - 1);
    v[4] += first;
    v[0] = first + second;
  }
  for (std::size_t i = 0; i < 8; ++i) state[i] += v[i];
}

bool has_sha_ni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_SSSE3) == 0 || (c & bit_SSE4_1) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
}

const unsigned char* chars(const std::byte* data) { return reinterpret_cast<const unsigned char*>(data); }

}  // namespace

void sha256_portable(std::uint32_t* state, const unsigned char* data, std::size_t blocks) {
  for (; blocks != 0; --blocks, data += block_bytes) one_block(state, data);
}

Sha256::Sha256(bool portable) : blocks_(sha256_portable), state_(start) {
  static const bool ni = has_sha_ni();
  if (ni && !portable) blocks_ = sha256_ni;
}

void Sha256::add(std::span<const std::byte> data) {
  const std::size_t used = bytes_ % block_bytes;
  bytes_ += data.size();
  if (used != 0) {
    const std::size_t part = std::min(data.size(), block_bytes - used);
    std::ranges::copy(data.first(part), rest_.begin() + static_cast<std::ptrdiff_t>(used));
    data = data.subspan(part);
    if (used + part < block_bytes) return;
    blocks_(state_.data(), chars(rest_.data()), 1);
  }
  const std::size_t whole = data.size() / block_bytes;
  blocks_(state_.data(), chars(data.data()), whole);
  std::ranges::copy(data.subspan(whole * block_bytes), rest_.begin());
}

std::string Sha256::hex() {
  std::array<std::byte, 72> padding = {std::byte{0x80}};
  const std::uint64_t bits = __builtin_bswap64(bytes_ * 8);
  add(std::span(padding).first(1 + (119 - bytes_ % block_bytes) % block_bytes));
  std::memcpy(padding.data(), &bits, 8);
  add(std::span(padding).first(8));
  std::array<std::byte, 32> digest;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::uint32_t word = __builtin_bswap32(state_[i]);
    std::memcpy(digest.data() + 4 * i, &word, 4);
  }
  return to_hex(digest);
}

}  // namespace aima::base
