/// The table for AVX-512 (F, BW, DQ, VL): 16 lanes, 32 registers.
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__)
#error "compile this file with -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

#include <immintrin.h>
#include <stdint.h>

#include "device/cpu/isa.h"

namespace {

#include "device/cpu/avx512_vector.h"

// Rows and columns that divide a block of 64 keys or tokens.
constexpr int NT_ROWS = 4;
constexpr int NT_COLS = 4;
constexpr int NN_ROWS = 4;
constexpr int NN_VECTORS = 4;
constexpr int PANEL_COLS = 12;  // 24 sums, two vectors of x; weights are broadcast from memory

inline __m256 halves(V v) { return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); }
/// The sums of the lanes of four vectors: upper half on lower half, then ((0 + 1) + (2 + 3)) + ((4 + 5) + (6
/// + 7)).
inline __m128 hsum4(V a, V b, V c, V d) {
  const __m256 quads =
      _mm256_hadd_ps(_mm256_hadd_ps(halves(a), halves(b)), _mm256_hadd_ps(halves(c), halves(d)));
  return _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1));
}
inline void store_hsum4(float* p, V a, V b, V c, V d) { _mm_storeu_ps(p, hsum4(a, b, c, d)); }
inline float hsum(V v) { return _mm_cvtss_f32(hsum4(v, v, v, v)); }
inline float hmax(V v) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
inline float sqrt1(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }
inline void store_bf16(uint16_t* p, V v) {
  const __m256i high = _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_bits(v), 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), high);
}

#include "device/cpu/kernels_impl.h"

constexpr Isa table = make_isa("avx512");

}  // namespace

const Isa& aima::device::cpu::isa_avx512() { return table; }
