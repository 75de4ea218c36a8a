/// Panel kernels for AMX-BF16. Weights are the first operand, 16 rows of 32 as they lie; a panel is the
/// second, 16 pairs of 16 rows of x; so sums come out as [n][rows], as from every other set. Denormals count
/// as zero, products of a pair are added before the sum takes them in order of k.
#if !defined(__AMX_BF16__) || !defined(__AVX512BW__)
#error "compile this file with -mamx-tile -mamx-bf16 -mavx512f -mavx512bw"
#endif

#include <immintrin.h>
#include <stdint.h>

#include "device/cpu/isa.h"

namespace {

#include "device/cpu/avx512_vector.h"
#include "device/cpu/kernels_vector.h"
#include "device/cpu/panels_bf16.h"

constexpr int64_t TILE = 16;                                     ///< rows of a tile, of 64 bytes each
constexpr int64_t TILE_ELEMENTS = TILE * PAIR_STEP;              ///< bf16 in a tile
constexpr int64_t N_TILE = PANEL_K / PAIR_STEP * TILE_ELEMENTS;  ///< 16 rows of weights, a whole block of k
constexpr int64_t X_STEP = PAIR_STEP * PANEL_ROWS;               ///< bf16 of a panel in one step of k
constexpr int64_t X_BYTES = 2 * PANEL_ROWS * 2;                  ///< from a pair of k to the next
constexpr int64_t C_BYTES = PANEL_ROWS * 4;
constexpr int64_t C_NEXT = TILE * PANEL_ROWS;  ///< from a tile of sums to that of the next 16 columns

struct alignas(64) Config {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr Config config;

/// [n/16][k/32][16][32]: every tile in one piece.
void pack_weights(void* packed, const void* w, int64_t stride, int64_t n, int64_t k) {
  const int64_t whole = (n + TILE - 1) / TILE * TILE;
  for (int64_t i = 0; i < whole; ++i) {
    const Bf16* from = static_cast<const Bf16*>(w) + i * stride;
    uint16_t* to = static_cast<uint16_t*>(packed) + i / TILE * N_TILE + i % TILE * PAIR_STEP;
    for (int64_t j = 0; j < k; j += PAIR_STEP, to += TILE_ELEMENTS)
      _mm512_storeu_si512(to, i < n ? load_weights(from + j, k - j) : _mm512_setzero_si512());
  }
}

/// Tiles 0 .. 3 are the sums of 32 columns and 32 rows of x (0 and 2: 16 rows; 0 and 1: 16 columns), 4 and 5
/// weights, 6 and 7 x.
template <bool TwoCols, bool TwoRows>
inline void tiles(const PanelProduct& p, int64_t n) {
  const auto* x = static_cast<const uint16_t*>(p.panel);
  const uint16_t* w = static_cast<const uint16_t*>(p.w) + n / TILE * N_TILE;
  float* c = p.c + n * PANEL_ROWS;
  if (p.accumulate) {
    _tile_loadd(0, c, C_BYTES);
    if constexpr (TwoRows) _tile_loadd(1, c + TILE, C_BYTES);
    if constexpr (TwoCols) _tile_loadd(2, c + C_NEXT, C_BYTES);
    if constexpr (TwoCols && TwoRows) _tile_loadd(3, c + C_NEXT + TILE, C_BYTES);
  } else {
    _tile_zero(0);
    if constexpr (TwoRows) _tile_zero(1);
    if constexpr (TwoCols) _tile_zero(2);
    if constexpr (TwoCols && TwoRows) _tile_zero(3);
  }
  for (int64_t k = 0; k < p.k; k += PAIR_STEP, x += X_STEP, w += TILE_ELEMENTS) {
    _tile_loadd(4, w, 64);
    _tile_loadd(6, x, X_BYTES);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (TwoRows) {
      _tile_loadd(7, x + 2 * TILE, X_BYTES);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (TwoCols) {
      _tile_loadd(5, w + N_TILE, 64);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (TwoCols && TwoRows) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, C_BYTES);
  if constexpr (TwoRows) _tile_stored(1, c + TILE, C_BYTES);
  if constexpr (TwoCols) _tile_stored(2, c + C_NEXT, C_BYTES);
  if constexpr (TwoCols && TwoRows) _tile_stored(3, c + C_NEXT + TILE, C_BYTES);
}

template <bool TwoRows>
inline void columns(const PanelProduct& p) {
  int64_t n = 0;
  for (; n + TILE < p.n; n += 2 * TILE) tiles<true, TwoRows>(p, n);
  if (n < p.n) tiles<false, TwoRows>(p, n);
}

void multiply(const PanelProduct& p) {
  _tile_loadconfig(&config);
  if (p.m > TILE) {
    columns<true>(p);
  } else {
    columns<false>(p);
  }
  _tile_release();  // a thread with tiles in use is dear to switch
}

constexpr PanelKernels kernels = {.rows = PANEL_ROWS,
                                  .k_step = PAIR_STEP,
                                  .k_block = PANEL_K,
                                  .n_step = TILE,
                                  .element = sizeof(uint16_t),
                                  .pack_rows = pack_rows,
                                  .pack_bf16 = pack_weights,
                                  .pack_f32 = nullptr,
                                  .multiply = multiply,
                                  .hidden = panel_hidden};

}  // namespace

const PanelKernels& aima::device::cpu::panels_amx() { return kernels; }
