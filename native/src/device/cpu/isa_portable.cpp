/// The table for SSE2, which every x86-64 has: 4 lanes, no fused multiply-add.
#include <emmintrin.h>
#include <stdint.h>

#include "device/cpu/isa.h"

namespace {

using V = __m128;
constexpr int LANES = 4;
constexpr int NT_ROWS = 2;
constexpr int NT_COLS = 4;
constexpr int NN_ROWS = 2;
constexpr int NN_VECTORS = 4;
constexpr int PANEL_COLS = 6;  // 12 sums, two vectors of x, one weight, one product

/// Elements of a tensor in a file: at any address.
struct __attribute__((packed)) Bf16 {
  uint16_t bits;
};
struct __attribute__((packed)) Unaligned {
  float value;
};

inline V zero() { return _mm_setzero_ps(); }
inline V set1(float a) { return _mm_set1_ps(a); }
inline V load(const float* p) { return _mm_loadu_ps(p); }
inline V load(const Unaligned* p) { return _mm_loadu_ps(reinterpret_cast<const float*>(p)); }
inline V load(const Bf16* p) {
  const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), bits));
}
inline void store(float* p, V v) { _mm_storeu_ps(p, v); }
inline V add(V a, V b) { return _mm_add_ps(a, b); }
inline V sub(V a, V b) { return _mm_sub_ps(a, b); }
inline V mul(V a, V b) { return _mm_mul_ps(a, b); }
inline V div(V a, V b) { return _mm_div_ps(a, b); }
inline V vmin(V a, V b) { return _mm_min_ps(a, b); }
inline V vmax(V a, V b) { return _mm_max_ps(a, b); }
inline V madd(V a, V b, V c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }

/// The sums of the lanes of four vectors, each (0 + 1) + (2 + 3).
inline V hsum4(V a, V b, V c, V d) {
  const V ab = _mm_add_ps(_mm_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)),
                          _mm_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1)));
  const V cd = _mm_add_ps(_mm_shuffle_ps(c, d, _MM_SHUFFLE(2, 0, 2, 0)),
                          _mm_shuffle_ps(c, d, _MM_SHUFFLE(3, 1, 3, 1)));
  return _mm_add_ps(_mm_shuffle_ps(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)),
                    _mm_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
}
inline void store_hsum4(float* p, V a, V b, V c, V d) { _mm_storeu_ps(p, hsum4(a, b, c, d)); }
inline float hsum(V v) { return _mm_cvtss_f32(hsum4(v, v, v, v)); }
inline float hmax(V v) {
  const V s = _mm_max_ps(v, _mm_movehl_ps(v, v));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}
inline float sqrt1(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }

inline void transpose(V v[LANES]) { _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]); }

inline V power_of_two(V n) {
  return _mm_castsi128_ps(_mm_slli_epi32(_mm_add_epi32(_mm_cvtps_epi32(n), _mm_set1_epi32(127)), 23));
}
/// `v`, but 0 where x < limit.
inline V zero_below(V x, V limit, V v) { return _mm_andnot_ps(_mm_cmplt_ps(x, limit), v); }

/// Bits of the nearest bf16 in the upper halves; the lower halves are not cleared. A NaN becomes quiet.
inline __m128i round_bits(V v) {
  const __m128i bits = _mm_castps_si128(v);
  const __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
  const __m128i sum = _mm_add_epi32(bits, _mm_add_epi32(odd, _mm_set1_epi32(0x7fff)));
  const __m128i quiet = _mm_or_si128(bits, _mm_set1_epi32(0x400000));
  const __m128i is_nan = _mm_castps_si128(_mm_cmpunord_ps(v, v));
  return _mm_or_si128(_mm_and_si128(is_nan, quiet), _mm_andnot_si128(is_nan, sum));
}
inline V rounded(V v) {
  return _mm_castsi128_ps(_mm_and_si128(round_bits(v), _mm_set1_epi32(static_cast<int>(0xffff0000U))));
}
inline void store_bf16(uint16_t* p, V v) {
  // The arithmetic shift makes each half a value that the signed pack keeps as it is.
  const __m128i high = _mm_srai_epi32(round_bits(v), 16);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi32(high, high));
}

#include "device/cpu/kernels_impl.h"

constexpr Isa table = make_isa("sse2");

}  // namespace

const Isa& aima::device::cpu::isa_portable() { return table; }
