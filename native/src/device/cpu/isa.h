/// The table of inner loops, one per instruction set, chosen once at run time.
///
/// Files named isa_*.cpp implement it. Each is compiled with its own instruction set enabled, so it includes
/// no C++ library header: an inline function compiled there could be the copy that the linker keeps for
/// everyone. All of them share the algorithms in kernels_impl.h.
///
/// Every function gives each output element one reduction order that depends on the element's own operands
/// alone, not on the other rows or columns of the call. Different tables may differ in the last bits (lanes,
/// fused multiply-add); one table never differs from itself.
#pragma once

#include <stdint.h>

namespace aima::device::cpu {

/// y[m][n] = Σ_k x[row(m)][k] · w[n][k]. Strides in elements. `w` may lie at any address.
struct GemmNt {
  const float* x;
  int64_t x_stride;
  const int32_t* x_rows;  ///< row(m) = x_rows[m]; null: m
  const void* w;
  int64_t w_stride;
  float* y;
  int64_t y_stride;
  int64_t m, n, k;
};

/// y[m][n] = (accumulate ? y[m][n] : 0) + Σ_k x[m·x_row + k·x_col] · w[k][n], k ascending.
struct GemmNn {
  const float* x;
  int64_t x_row;
  int64_t x_col;
  const void* w;
  int64_t w_stride;
  float* y;
  int64_t y_stride;
  int64_t m, n, k;
  bool accumulate;
};

/// One delta-rule step of one head: S ← e^g S; d = β(v − Sᵀk); S ← S + k dᵀ; o = Sᵀq.
struct GdnStep {
  float* s;  ///< [key_dim][value_dim], changed in place
  const float* q;
  const float* k;
  const float* v;
  float keep;  ///< e^g = keep + loss; S is decayed as loss·S + keep·S
  float loss;
  float beta;
  float* o;
  int64_t key_dim, value_dim;
};

/// Rows of x for the products of a prefill pass, packed into one panel.
struct PackRows {
  void* panel;
  const float* x;
  int64_t x_stride;
  const int32_t* x_rows;  ///< row m is x_rows[m]; null: m
  int64_t m;              ///< 1 .. rows of a panel; lanes behind them are zero or are never read
  int64_t k;
};

/// One block of k: c[n][r] = (accumulate ? c[n][r] : 0) + Σ_k panel[k][r] · w[n][k], k ascending.
struct PanelProduct {
  const void* panel;  ///< from the block's first k on
  const void* w;      ///< as `pack_w` wrote it
  float* c;           ///< [n, to a whole n_step][rows of a panel]
  int64_t m;          ///< rows of the panel that count
  int64_t n;
  int64_t k;  ///< of the block; where it is the last one, a whole number of k_step
  bool accumulate;
};

/// silu(gate) · up as rows first .. first+n-1 of the panel of the product after it.
struct PanelHidden {
  void* panel;
  const float* gate;  ///< [n][rows of a panel]
  const float* up;
  int64_t m;
  int64_t first;  ///< even
  int64_t n;
  bool round;  ///< to bf16
};

/// Products of many rows, y = x·wᵀ. The lanes of a vector are rows of x: x is packed once into panels
/// [k][rows], and weights are read as they lie, each block of them copied into a worker's own memory and used
/// for every panel. An element's sum goes over k in ascending order, whatever the blocks.
struct PanelKernels {
  int64_t rows;     ///< of x in a panel
  int64_t k_step;   ///< k is filled up with zeros to a multiple of this
  int64_t k_block;  ///< most k in one block, a multiple of k_step
  int64_t n_step;   ///< c has room for n filled up to a multiple of this
  int64_t element;  ///< bytes of an element of a panel or of packed weights

  void (*pack_rows)(const PackRows&);
  /// [n][k] bf16 at any address, rows `stride` elements apart; n <= panel_cols, k <= k_block.
  void (*pack_bf16)(void* packed, const void* w, int64_t stride, int64_t n, int64_t k);
  /// The same from f32; null where panels are bf16.
  void (*pack_f32)(void* packed, const void* w, int64_t stride, int64_t n, int64_t k);
  void (*multiply)(const PanelProduct&);
  void (*hidden)(const PanelHidden&);
};

/// Columns of y that one block of weights makes: a multiple of every n_step and of every tile's columns.
constexpr int64_t panel_cols = 96;

/// y[m][n] = c[n][m], and what was there before is added if asked.
struct PanelResult {
  const float* c;
  int64_t c_stride;  ///< rows of a panel
  float* y;
  int64_t y_stride;
  int64_t m, n;
  bool add;
};

struct Isa {
  const char* name;

  void (*gemm_nt_f32)(const GemmNt&);
  void (*gemm_nt_bf16)(const GemmNt&);  ///< w is bf16
  void (*gemm_nn_f32)(const GemmNn&);
  void (*gemm_nn_bf16)(const GemmNn&);  ///< w is bf16

  PanelKernels panels;          ///< any f32 x, weights bf16 or f32
  PanelKernels rounded_panels;  ///< x holds bf16 values, weights bf16
  void (*unpack)(const PanelResult&);

  /// y = x / sqrt(mean(x²) + eps) · gain. y may be x.
  void (*rms_norm)(float* y, const float* x, const float* gain, int64_t n, float eps);
  /// y = o / sqrt(mean(o²) + eps) · gain · silu(z). y may be o or z.
  void (*gated_rms_norm)(float* y, const float* o, const float* gain, const float* z, int64_t n, float eps);
  /// x ← x / sqrt(Σx² + eps) · scale
  void (*l2_norm)(float* x, int64_t n, float eps, float scale);
  /// y = silu(Σ_j taps[j·n ..] · u[j]), four inputs, oldest first
  void (*conv4_silu)(float* y, const float* const u[4], const float* taps, int64_t n);
  /// y = silu(gate) · up. y may be gate or up.
  void (*silu_mul)(float* y, const float* gate, const float* up, int64_t n);
  /// x ← x · sigmoid(gate)
  void (*sigmoid_mul)(float* x, const float* gate, int64_t n);
  /// y = e^x. y may be x.
  void (*exp)(float* y, const float* x, int64_t n);
  /// x ← e^(x·scale − shift); returns the sum.
  float (*exp_sum)(float* x, int64_t n, float scale, float shift);
  float (*max)(const float* x, int64_t n);
  /// x ← x · a
  void (*scale)(float* x, float a, int64_t n);
  /// y ← y + a · x
  void (*axpy)(float* y, float a, const float* x, int64_t n);
  /// Pairs (x[j], x[half + j]) turn by the angle whose cosine and sine are given.
  void (*rope)(float* x, const float* cos, const float* sin, int64_t half);
  void (*gdn_step)(const GdnStep&);

  /// Round to nearest even bf16 and keep as f32, in place.
  void (*round_bf16)(float* x, int64_t n);
  /// Round to nearest even bf16.
  void (*narrow_bf16)(uint16_t* y, const float* x, int64_t n);
  /// Exact. x may lie at any address.
  void (*widen_bf16)(float* y, const void* x, int64_t n);
};

/// SSE2, which every x86-64 has.
const Isa& isa_portable();
/// AVX2, FMA.
const Isa& isa_avx2();
/// AVX-512 F, BW, DQ, VL.
const Isa& isa_avx512();

/// `Isa::rounded_panels` for processors that have AVX-512 and more.
const PanelKernels& panels_avx512_bf16();
const PanelKernels& panels_amx();

}  // namespace aima::device::cpu
