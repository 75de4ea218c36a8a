/// The table for AVX2 with FMA: 8 lanes, 16 registers.
#if !defined(__AVX2__) || !defined(__FMA__)
#error "compile this file with -mavx2 -mfma"
#endif

#include <immintrin.h>
#include <stdint.h>

#include "device/cpu/isa.h"

namespace {

using V = __m256;
constexpr int LANES = 8;
// 12 sums, and 3 + 1 operands: all 16 registers. The loads stay below two a cycle.
constexpr int NT_ROWS = 3;
constexpr int NT_COLS = 4;
constexpr int NN_ROWS = 3;
constexpr int NN_VECTORS = 4;
constexpr int PANEL_COLS = 6;  // 12 sums, two vectors of x, one weight

/// Elements of a tensor in a file: at any address.
struct __attribute__((packed)) Bf16 {
  uint16_t bits;
};
struct __attribute__((packed)) Unaligned {
  float value;
};

inline V zero() { return _mm256_setzero_ps(); }
inline V set1(float a) { return _mm256_set1_ps(a); }
inline V load(const float* p) { return _mm256_loadu_ps(p); }
inline V load(const Unaligned* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
inline V load(const Bf16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline void store(float* p, V v) { _mm256_storeu_ps(p, v); }
inline V add(V a, V b) { return _mm256_add_ps(a, b); }
inline V sub(V a, V b) { return _mm256_sub_ps(a, b); }
inline V mul(V a, V b) { return _mm256_mul_ps(a, b); }
inline V div(V a, V b) { return _mm256_div_ps(a, b); }
inline V vmin(V a, V b) { return _mm256_min_ps(a, b); }
inline V vmax(V a, V b) { return _mm256_max_ps(a, b); }
inline V madd(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }

/// The sums of the lanes of four vectors, each ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)).
inline __m128 hsum4(V a, V b, V c, V d) {
  const V quads = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1));
}
inline void store_hsum4(float* p, V a, V b, V c, V d) { _mm_storeu_ps(p, hsum4(a, b, c, d)); }
inline float hsum(V v) { return _mm_cvtss_f32(hsum4(v, v, v, v)); }
inline float hmax(V v) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
inline float sqrt1(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }

inline void transpose(V v[LANES]) {
  V pairs[8];
  V quads[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      quads[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], _MM_SHUFFLE(1, 0, 1, 0));
      quads[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], _MM_SHUFFLE(3, 2, 3, 2));
    }
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
    v[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
  }
}

inline V power_of_two(V n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
/// `v`, but 0 where x < limit.
inline V zero_below(V x, V limit, V v) { return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), v); }

/// Bits of the nearest bf16 in the upper halves; the lower halves are not cleared. A NaN becomes quiet.
inline __m256i round_bits(V v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(sum, quiet, is_nan);
}
inline V rounded(V v) {
  return _mm256_castsi256_ps(
      _mm256_and_si256(round_bits(v), _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
}
inline void store_bf16(uint16_t* p, V v) {
  const __m256i high = _mm256_srli_epi32(round_bits(v), 16);
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}

#include "device/cpu/kernels_impl.h"

constexpr Isa table = make_isa("avx2");

}  // namespace

const Isa& aima::device::cpu::isa_avx2() { return table; }
