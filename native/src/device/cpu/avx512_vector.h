/// V for AVX-512 (F, BW, DQ, VL): 16 lanes, 32 registers. Included inside an anonymous namespace by the
/// isa_*.cpp of that family; no include guard: each needs its own copy.

using V = __m512;
constexpr int LANES = 16;

/// Elements of a tensor in a file: at any address.
struct __attribute__((packed)) Bf16 {
  uint16_t bits;
};
struct __attribute__((packed)) Unaligned {
  float value;
};

inline V zero() { return _mm512_setzero_ps(); }
inline V set1(float a) { return _mm512_set1_ps(a); }
inline V load(const float* p) { return _mm512_loadu_ps(p); }
inline V load(const Unaligned* p) { return _mm512_loadu_ps(p); }
inline V load(const Bf16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline void store(float* p, V v) { _mm512_storeu_ps(p, v); }
inline V add(V a, V b) { return _mm512_add_ps(a, b); }
inline V sub(V a, V b) { return _mm512_sub_ps(a, b); }
inline V mul(V a, V b) { return _mm512_mul_ps(a, b); }
inline V div(V a, V b) { return _mm512_div_ps(a, b); }
inline V vmin(V a, V b) { return _mm512_min_ps(a, b); }
inline V vmax(V a, V b) { return _mm512_max_ps(a, b); }
inline V madd(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }

/// Element j of vector i becomes element i of vector j.
inline void transpose(V v[LANES]) {
  V pairs[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
  }
  // quads[4g + c]: in its quarter q, column 4q + c of rows 4g .. 4g+3
  V quads[16];
  for (int g = 0; g < 16; g += 4) {
    for (int j = 0; j < 2; ++j) {
      const __m512d low = _mm512_castps_pd(pairs[g + j]);
      const __m512d high = _mm512_castps_pd(pairs[g + j + 2]);
      quads[g + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
      quads[g + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
    }
  }
  for (int c = 0; c < 4; ++c) {
    const V even_low = _mm512_shuffle_f32x4(quads[c], quads[4 + c], 0x88);
    const V odd_low = _mm512_shuffle_f32x4(quads[c], quads[4 + c], 0xdd);
    const V even_high = _mm512_shuffle_f32x4(quads[8 + c], quads[12 + c], 0x88);
    const V odd_high = _mm512_shuffle_f32x4(quads[8 + c], quads[12 + c], 0xdd);
    v[c] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
    v[4 + c] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
    v[8 + c] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
    v[12 + c] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
  }
}

inline V power_of_two(V n) {
  const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
}
/// `v`, but 0 where x < limit.
inline V zero_below(V x, V limit, V v) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), v);
}

/// Bits of the nearest bf16 in the upper halves; the lower halves are not cleared. A NaN becomes quiet.
inline __m512i round_bits(V v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(sum, is_nan, bits, _mm512_set1_epi32(0x400000));
}
inline V rounded(V v) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(round_bits(v), _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
}
