/// Panels of bf16 for instructions that add products of pairs: the panel is [k/2][32 rows][2], so that a lane
/// is a row of x and holds two neighbours in k. x holds bf16 values; what is packed is their upper half.
/// Included after avx512_vector.h and kernels_vector.h; no include guard: each includer needs its own copy.

using aima::device::cpu::PackRows;
using aima::device::cpu::PanelHidden;
using aima::device::cpu::PanelKernels;
using aima::device::cpu::PanelProduct;

constexpr int64_t PANEL_ROWS = 2 * LANES;
constexpr int64_t PANEL_K = 512;   ///< 32 KB of a panel, half a first-level cache or a little more
constexpr int64_t PAIR_STEP = 32;  ///< k of one step: 16 pairs

/// 32 values of a row from k on, zero past the end, as 16 pairs.
inline V load_pairs(const float* x, int64_t count) {
  const V low = count >= LANES ? load(x) : load_part(x, count);
  V high = zero();
  if (count >= 2 * LANES) {
    high = load(x + LANES);
  } else if (count > LANES) {
    high = load_part(x + LANES, count - LANES);
  }
  // Word 2i+1 of the first vector for the lower 16 results, of the second for the upper 16.
  const __m512i steps =
      _mm512_set_epi32(0x3f003d, 0x3b0039, 0x370035, 0x330031, 0x2f002d, 0x2b0029, 0x270025, 0x230021,
                       0x1f001d, 0x1b0019, 0x170015, 0x130011, 0xf000d, 0xb0009, 0x70005, 0x30001);
  return _mm512_castsi512_ps(
      _mm512_permutex2var_epi16(_mm512_castps_si512(low), steps, _mm512_castps_si512(high)));
}

void pack_rows(const PackRows& p) {
  for (int64_t half = 0; half < PANEL_ROWS && half < p.m; half += LANES) {
    auto* out = static_cast<uint16_t*>(p.panel) + 2 * half;
    for (int64_t k = 0; k < p.k; k += PAIR_STEP, out += PAIR_STEP * PANEL_ROWS) {
      V v[LANES];
      for (int64_t i = 0; i < LANES; ++i) {
        if (half + i >= p.m) {
          v[i] = zero();
          continue;
        }
        const int64_t row = p.x_rows != nullptr ? p.x_rows[half + i] : half + i;
        v[i] = load_pairs(p.x + row * p.x_stride + k, p.k - k);
      }
      transpose(v);
      for (int64_t j = 0; j < LANES; ++j) _mm512_storeu_ps(out + j * 2 * PANEL_ROWS, v[j]);
    }
  }
}

/// 32 weights from k on, zero past the end.
inline __m512i load_weights(const Bf16* w, int64_t count) {
  if (count >= PAIR_STEP) return _mm512_loadu_si512(w);
  return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1ULL << count) - 1), w);
}

void panel_hidden(const PanelHidden& h) {
  for (int64_t n = 0; n < h.n; n += 2) {
    uint16_t* out = static_cast<uint16_t*>(h.panel) + (h.first + n) * PANEL_ROWS;
    for (int64_t half = 0; half < PANEL_ROWS && half < h.m; half += LANES) {
      const int64_t at = n * PANEL_ROWS + half;
      const V low = mul(vsilu(load(h.gate + at)), load(h.up + at));
      V high = zero();
      if (n + 1 < h.n) high = mul(vsilu(load(h.gate + at + PANEL_ROWS)), load(h.up + at + PANEL_ROWS));
      const __m512i upper =
          _mm512_and_si512(round_bits(high), _mm512_set1_epi32(static_cast<int>(0xffff0000U)));
      _mm512_storeu_si512(out + 2 * half, _mm512_or_si512(_mm512_srli_epi32(round_bits(low), 16), upper));
    }
  }
}
