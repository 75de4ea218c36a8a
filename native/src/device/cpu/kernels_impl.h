/// The algorithms behind `Isa`, included inside an anonymous namespace by each isa_*.cpp after it has
/// defined, for its vector type V of LANES floats:
///   zero, set1, load (float, Bf16, any address), store, add, sub, mul, div, vmin, vmax, madd (a·b + c),
///   hsum, store_hsum4 (four sums, each in hsum's order), hmax, power_of_two (2^n for whole n in [-126,
///   127]), rounded (to bf16, kept as float), store_bf16, sqrt1, and the gemm_nt tile shape NT_ROWS x
///   NT_COLS, the gemm_nn tile shape NN_ROWS x NN_VECTORS; and what kernels_panels.h asks for.
/// No include guard: each includer needs its own copy. No C++ library header: see isa.h.

using aima::device::cpu::GdnStep;
using aima::device::cpu::GemmNn;
using aima::device::cpu::GemmNt;
using aima::device::cpu::Isa;
using aima::device::cpu::PackRows;
using aima::device::cpu::PanelHidden;
using aima::device::cpu::PanelKernels;
using aima::device::cpu::PanelProduct;
using aima::device::cpu::PanelResult;

#include "device/cpu/kernels_vector.h"

inline float sum_of_squares(const float* x, int64_t n) {
  V sum = zero();
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    const V v = load(x + i);
    sum = madd(v, v, sum);
  }
  if (i < n) {
    const V v = load_part(x + i, n - i);
    sum = madd(v, v, sum);
  }
  return hsum(sum);
}

// ------------------------------------------------------------------------------------------------ matrix
// products

inline const float* x_row(const GemmNt& g, int64_t m) {
  return g.x + (g.x_rows != nullptr ? g.x_rows[m] : m) * g.x_stride;
}

/// How far ahead of their use the weights of a tile of C rows are asked for, in bytes: the hardware's own
/// prefetch stops at each page. Not less than a tile, whose rows are read side by side.
template <int C, typename W>
inline int64_t prefetch_distance(const GemmNt& g) {
  const int64_t tile = C * g.w_stride * static_cast<int64_t>(sizeof(W));
  return tile > 16384 ? tile : 16384;
}

/// The last k, fewer than LANES.
template <int R, int C, typename W>
[[gnu::always_inline]] inline void nt_tail(V sum[R][C], const float* const x[R], const W* const w[C],
                                           int64_t k, int64_t count) {
  for (int c = 0; c < C; ++c) {
    const V wv = load_part(w[c] + k, count);
    for (int r = 0; r < R; ++r) sum[r][c] = madd(load_part(x[r] + k, count), wv, sum[r][c]);
  }
}

template <int C>
[[gnu::always_inline]] inline void nt_store(float* y, const V sum[C]) {
  int c = 0;
  for (; c + 4 <= C; c += 4) store_hsum4(y + c, sum[c], sum[c + 1], sum[c + 2], sum[c + 3]);
  for (; c < C; ++c) y[c] = hsum(sum[c]);
}

/// R x C dot products side by side: lane l sums k = l mod LANES in ascending order, then the lanes are added.
/// `First`: the weights come from memory, not from a cache.
template <int R, int C, bool First, typename W>
[[gnu::always_inline]] inline void nt_tile(const GemmNt& g, int64_t m, int64_t n) {
  const float* x[R];
  const W* w[C];
  V sum[R][C];
  for (int r = 0; r < R; ++r) x[r] = x_row(g, m + r);
  for (int c = 0; c < C; ++c) w[c] = static_cast<const W*>(g.w) + (n + c) * g.w_stride;
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sum[r][c] = zero();
  }
  const int64_t ahead = prefetch_distance<C, W>(g);
  int64_t k = 0;
  for (; k + LANES <= g.k; k += LANES) {
    V xv[R];
    for (int r = 0; r < R; ++r) xv[r] = load(x[r] + k);
    for (int c = 0; c < C; ++c) {
      const V wv = load(w[c] + k);
      if constexpr (First) __builtin_prefetch(reinterpret_cast<const char*>(w[c] + k) + ahead);
      for (int r = 0; r < R; ++r) sum[r][c] = madd(xv[r], wv, sum[r][c]);
    }
  }
  if (k < g.k) nt_tail<R, C, W>(sum, x, w, k, g.k - k);
  for (int r = 0; r < R; ++r) nt_store<C>(g.y + (m + r) * g.y_stride + n, sum[r]);
}

template <int R, bool First, typename W>
[[gnu::always_inline]] inline void nt_rows(const GemmNt& g, int64_t m) {
  int64_t n = 0;
  for (; n + NT_COLS <= g.n; n += NT_COLS) nt_tile<R, NT_COLS, First, W>(g, m, n);
  for (; n < g.n; ++n) nt_tile<R, 1, First, W>(g, m, n);
}

template <typename W>
void gemm_nt(const GemmNt& g) {
  int64_t m = 0;
  if (g.m >= NT_ROWS) {
    nt_rows<NT_ROWS, true, W>(g, 0);
    m = NT_ROWS;
  } else if (g.m > 0) {
    nt_rows<1, true, W>(g, 0);
    m = 1;
  }
  for (; m + NT_ROWS <= g.m; m += NT_ROWS) nt_rows<NT_ROWS, false, W>(g, m);
  for (; m < g.m; ++m) nt_rows<1, false, W>(g, m);
}

/// R rows x C vectors of columns; `part` < LANES: a single, partly filled vector.
template <int R, int C, typename W>
[[gnu::always_inline]] inline void nn_tile(const GemmNn& g, int64_t m, int64_t n, int64_t part) {
  V sum[R][C];
  float* y[R];
  for (int r = 0; r < R; ++r) {
    y[r] = g.y + (m + r) * g.y_stride + n;
    for (int c = 0; c < C; ++c) {
      if (!g.accumulate) {
        sum[r][c] = zero();
      } else {
        sum[r][c] = part == LANES ? load(y[r] + c * LANES) : load_part(y[r], part);
      }
    }
  }
  const float* x = g.x + m * g.x_row;
  const W* w = static_cast<const W*>(g.w) + n;
  for (int64_t k = 0; k < g.k; ++k, x += g.x_col, w += g.w_stride) {
    V xv[R];
    for (int r = 0; r < R; ++r) xv[r] = set1(x[r * g.x_row]);
    for (int c = 0; c < C; ++c) {
      const V wv = part == LANES ? load(w + c * LANES) : load_part(w, part);
      for (int r = 0; r < R; ++r) sum[r][c] = madd(xv[r], wv, sum[r][c]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) {
      if (part == LANES) {
        store(y[r] + c * LANES, sum[r][c]);
      } else {
        store_part(y[r], sum[r][c], part);
      }
    }
  }
}

template <int R, typename W>
[[gnu::always_inline]] inline void nn_rows(const GemmNn& g, int64_t m) {
  constexpr int64_t wide = NN_VECTORS * LANES;
  int64_t n = 0;
  for (; n + wide <= g.n; n += wide) nn_tile<R, NN_VECTORS, W>(g, m, n, LANES);
  for (; n + LANES <= g.n; n += LANES) nn_tile<R, 1, W>(g, m, n, LANES);
  if (n < g.n) nn_tile<R, 1, W>(g, m, n, g.n - n);
}

template <typename W>
void gemm_nn(const GemmNn& g) {
  int64_t m = 0;
  for (; m + NN_ROWS <= g.m; m += NN_ROWS) nn_rows<NN_ROWS, W>(g, m);
  for (; m < g.m; ++m) nn_rows<1, W>(g, m);
}

// ------------------------------------------------------------------------------------------------ rows

inline float inverse_rms(const float* x, int64_t n, float eps) {
  return 1.0F / sqrt1(sum_of_squares(x, n) / static_cast<float>(n) + eps);
}

void rms_norm(float* y, const float* x, const float* gain, int64_t n, float eps) {
  const V inverse = set1(inverse_rms(x, n, eps));
  map(n, y, [inverse](V v, V w) { return mul(mul(v, inverse), w); }, x, gain);
}

void gated_rms_norm(float* y, const float* o, const float* gain, const float* z, int64_t n, float eps) {
  const V inverse = set1(inverse_rms(o, n, eps));
  map(n, y, [inverse](V v, V w, V gate) { return mul(mul(mul(v, inverse), w), vsilu(gate)); }, o, gain, z);
}

void l2_norm(float* x, int64_t n, float eps, float scale) {
  const V factor = set1(1.0F / sqrt1(sum_of_squares(x, n) + eps));
  const V scale_v = set1(scale);
  map(n, x, [factor, scale_v](V v) { return mul(mul(v, factor), scale_v); }, x);
}

void conv4_silu(float* y, const float* const u[4], const float* taps, int64_t n) {
  map(
      n, y,
      [](V u0, V u1, V u2, V u3, V w0, V w1, V w2, V w3) {
        return vsilu(madd(u3, w3, madd(u2, w2, madd(u1, w1, mul(u0, w0)))));
      },
      u[0], u[1], u[2], u[3], taps, taps + n, taps + 2 * n, taps + 3 * n);
}

void silu_mul(float* y, const float* gate, const float* up, int64_t n) {
  map(n, y, [](V g, V u) { return mul(vsilu(g), u); }, gate, up);
}

void sigmoid_mul(float* x, const float* gate, int64_t n) {
  map(n, x, [](V v, V g) { return mul(v, vsigmoid(g)); }, x, gate);
}

void exp_all(float* y, const float* x, int64_t n) {
  map(n, y, [](V v) { return vexp(v); }, x);
}

float exp_sum(float* x, int64_t n, float scale, float shift) {
  const V scale_v = set1(scale);
  const V shift_v = set1(shift);
  V sum = zero();
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    const V e = vexp(sub(mul(load(x + i), scale_v), shift_v));
    store(x + i, e);
    sum = add(sum, e);
  }
  float rest = 0.0F;
  if (i < n) {
    store_part(x + i, vexp(sub(mul(load_part(x + i, n - i), scale_v), shift_v)), n - i);
    for (; i < n; ++i) rest += x[i];
  }
  return hsum(sum) + rest;
}

float max_of(const float* x, int64_t n) {
  float best = x[0];
  int64_t i = 0;
  if (n >= LANES) {
    V m = load(x);
    for (i = LANES; i + LANES <= n; i += LANES) m = vmax(m, load(x + i));
    best = hmax(m);
  }
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

void scale_all(float* x, float a, int64_t n) {
  const V av = set1(a);
  map(n, x, [av](V v) { return mul(v, av); }, x);
}

void axpy(float* y, float a, const float* x, int64_t n) {
  const V av = set1(a);
  map(n, y, [av](V yv, V xv) { return madd(av, xv, yv); }, y, x);
}

void rope(float* x, const float* cos, const float* sin, int64_t half) {
  int64_t j = 0;
  for (; j + LANES <= half; j += LANES) {
    const V a = load(x + j);
    const V b = load(x + half + j);
    const V c = load(cos + j);
    const V s = load(sin + j);
    store(x + j, sub(mul(a, c), mul(b, s)));
    store(x + half + j, add(mul(b, c), mul(a, s)));
  }
  if (j == half) return;
  const int64_t rest = half - j;
  const V a = load_part(x + j, rest);
  const V b = load_part(x + half + j, rest);
  const V c = load_part(cos + j, rest);
  const V s = load_part(sin + j, rest);
  store_part(x + j, sub(mul(a, c), mul(b, s)), rest);
  store_part(x + half + j, add(mul(b, c), mul(a, s)), rest);
}

/// Columns n .. n + C·LANES (or `part` of one vector) of the state: one pass for Sᵀk, one for the update and
/// Sᵀq.
template <int C>
[[gnu::always_inline]] inline void gdn_columns(const GdnStep& g, int64_t n, int64_t part) {
  const auto get = [part](const float* p, int c) {
    return part == LANES ? load(p + c * LANES) : load_part(p, part);
  };
  const V keep = set1(g.keep);
  const V loss = set1(g.loss);
  const auto decayed = [=](V x) { return madd(loss, x, mul(keep, x)); };
  const V beta = set1(g.beta);
  V delta[C];
  V out[C];
  for (int c = 0; c < C; ++c) delta[c] = out[c] = zero();
  const float* row = g.s + n;
  for (int64_t i = 0; i < g.key_dim; ++i, row += g.value_dim) {
    const V k = set1(g.k[i]);
    for (int c = 0; c < C; ++c) delta[c] = madd(k, get(row, c), delta[c]);
  }
  for (int c = 0; c < C; ++c) delta[c] = mul(beta, sub(get(g.v + n, c), decayed(delta[c])));
  float* state = g.s + n;
  for (int64_t i = 0; i < g.key_dim; ++i, state += g.value_dim) {
    const V k = set1(g.k[i]);
    const V q = set1(g.q[i]);
    for (int c = 0; c < C; ++c) {
      const V s = madd(k, delta[c], decayed(get(state, c)));
      out[c] = madd(q, s, out[c]);
      if (part == LANES) {
        store(state + c * LANES, s);
      } else {
        store_part(state, s, part);
      }
    }
  }
  for (int c = 0; c < C; ++c) {
    if (part == LANES) {
      store(g.o + n + c * LANES, out[c]);
    } else {
      store_part(g.o + n, out[c], part);
    }
  }
}

void gdn_step(const GdnStep& g) {
  int64_t n = 0;
  for (; n + 4 * LANES <= g.value_dim; n += 4 * LANES) gdn_columns<4>(g, n, LANES);
  for (; n + LANES <= g.value_dim; n += LANES) gdn_columns<1>(g, n, LANES);
  if (n < g.value_dim) gdn_columns<1>(g, n, g.value_dim - n);
}

// ------------------------------------------------------------------------------------------------ bf16

void round_bf16(float* x, int64_t n) {
  map(n, x, [](V v) { return rounded(v); }, x);
}

void narrow_bf16(uint16_t* y, const float* x, int64_t n) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) store_bf16(y + i, load(x + i));
  if (i == n) return;
  uint16_t part[LANES];
  store_bf16(part, load_part(x + i, n - i));
  __builtin_memcpy(y + i, part, static_cast<unsigned long>(n - i) * sizeof(uint16_t));
}

void widen_bf16(float* y, const void* x, int64_t n) {
  map(n, y, [](V v) { return v; }, static_cast<const Bf16*>(x));
}

#include "device/cpu/kernels_panels.h"

constexpr Isa make_isa(const char* name) {
  return {.name = name,
          .gemm_nt_f32 = gemm_nt<Unaligned>,
          .gemm_nt_bf16 = gemm_nt<Bf16>,
          .gemm_nn_f32 = gemm_nn<Unaligned>,
          .gemm_nn_bf16 = gemm_nn<Bf16>,
          .panels = make_panels(),
          .rounded_panels = make_panels(),
          .unpack = unpack,
          .rms_norm = rms_norm,
          .gated_rms_norm = gated_rms_norm,
          .l2_norm = l2_norm,
          .conv4_silu = conv4_silu,
          .silu_mul = silu_mul,
          .sigmoid_mul = sigmoid_mul,
          .exp = exp_all,
          .exp_sum = exp_sum,
          .max = max_of,
          .scale = scale_all,
          .axpy = axpy,
          .rope = rope,
          .gdn_step = gdn_step,
          .round_bf16 = round_bf16,
          .narrow_bf16 = narrow_bf16,
          .widen_bf16 = widen_bf16};
}
