/// Panel kernels for AVX512_BF16: vdpbf16ps adds the products of two neighbours in k to each lane's sum.
/// It takes denormal inputs as zero and flushes denormal results; sums are rounded to nearest after each
/// product.
#if !defined(__AVX512BF16__) || !defined(__AVX512BW__)
#error "compile this file with -mavx512bf16 -mavx512bw"
#endif

#include <immintrin.h>
#include <stdint.h>

#include "device/cpu/isa.h"

namespace {

#include "device/cpu/avx512_vector.h"
#include "device/cpu/kernels_vector.h"
#include "device/cpu/panels_bf16.h"

constexpr int TILE_COLS = 12;  // 24 sums, two vectors of x; weights are broadcast from memory

void pack_weights(void* packed, const void* w, int64_t stride, int64_t n, int64_t k) {
  for (int64_t i = 0; i < n; ++i) {
    const Bf16* from = static_cast<const Bf16*>(w) + i * stride;
    uint16_t* to = static_cast<uint16_t*>(packed) + i * PANEL_K;
    for (int64_t j = 0; j < k; j += PAIR_STEP) _mm512_storeu_si512(to + j, load_weights(from + j, k - j));
  }
}

template <int VECTORS, int COLS>
[[gnu::always_inline]] inline void dot_tile(const PanelProduct& p, int64_t n) {
  const auto* x = static_cast<const uint16_t*>(p.panel);
  const uint16_t* w = static_cast<const uint16_t*>(p.w) + n * PANEL_K;
  float* c = p.c + n * PANEL_ROWS;
  V sum[COLS][VECTORS];
  for (int j = 0; j < COLS; ++j) {
    for (int i = 0; i < VECTORS; ++i)
      sum[j][i] = p.accumulate ? load(c + j * PANEL_ROWS + i * LANES) : zero();
  }
  for (int64_t k = 0; k < p.k; k += 2, x += 2 * PANEL_ROWS, w += 2) {
    __m512bh xv[VECTORS];
    for (int i = 0; i < VECTORS; ++i)
      xv[i] = __builtin_bit_cast(__m512bh, _mm512_loadu_si512(x + i * 2 * LANES));
    for (int j = 0; j < COLS; ++j) {
      int pair = 0;
      __builtin_memcpy(&pair, w + j * PANEL_K, sizeof pair);
      const auto wv = __builtin_bit_cast(__m512bh, _mm512_set1_epi32(pair));
      for (int i = 0; i < VECTORS; ++i) sum[j][i] = _mm512_dpbf16_ps(sum[j][i], xv[i], wv);
    }
  }
  for (int j = 0; j < COLS; ++j) {
    for (int i = 0; i < VECTORS; ++i) store(c + j * PANEL_ROWS + i * LANES, sum[j][i]);
  }
}

/// The last, narrower tile: COLS or fewer columns.
template <int VECTORS, int COLS>
inline void dot_rest(const PanelProduct& p, int64_t n) {
  if constexpr (COLS > 0) {
    if (p.n - n == COLS) {
      dot_tile<VECTORS, COLS>(p, n);
    } else {
      dot_rest<VECTORS, COLS - 1>(p, n);
    }
  }
}

template <int VECTORS>
void dot_tiles(const PanelProduct& p) {
  int64_t n = 0;
  for (; n + TILE_COLS <= p.n; n += TILE_COLS) dot_tile<VECTORS, TILE_COLS>(p, n);
  dot_rest<VECTORS, TILE_COLS - 1>(p, n);
}

void multiply(const PanelProduct& p) { p.m > LANES ? dot_tiles<2>(p) : dot_tiles<1>(p); }

constexpr PanelKernels kernels = {.rows = PANEL_ROWS,
                                  .k_step = PAIR_STEP,
                                  .k_block = PANEL_K,
                                  .n_step = 1,
                                  .element = sizeof(uint16_t),
                                  .pack_rows = pack_rows,
                                  .pack_bf16 = pack_weights,
                                  .pack_f32 = nullptr,
                                  .multiply = multiply,
                                  .hidden = panel_hidden};

}  // namespace

const PanelKernels& aima::device::cpu::panels_avx512_bf16() { return kernels; }
