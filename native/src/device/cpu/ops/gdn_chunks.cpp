/// The chunk form of the delta rule, exactly as model.md 3.2 writes it. With rows = tokens of the chunk:
///
///   G_i = Σ_{m≤i} g_m;  D_ij = e^{G_i − G_j} for j ≤ i
///   (I + tril(diag(β)(D ⊙ KKᵀ), −1)) U = diag(β)(V − diag(e^G) K S)
///   O = diag(e^G) Q S + (D ⊙ QKᵀ) U
///   S ← e^{G_C} S + (diag(e^{G_C − G}) K)ᵀ U
///
/// G_i − G_j is summed from j on, not taken as a difference of two sums from the chunk's start: under strong
/// decay those are large, and what is left of their rounding would be all of D_ij's error. A row's sums run
/// over exactly the tokens up to it, never over zeros behind it, so a row's bits do not depend on how much of
/// its chunk the pass holds.
#include <algorithm>

#include "device/cpu/ops/gdn.h"
#include "device/device.h"

namespace aima::device::cpu {
namespace {

constexpr std::int64_t chunk = block_tokens;

/// One worker's memory for one chunk.
struct ChunkScratch {
  ChunkScratch(float* base, const DeltaShape& s)
      : q(base),
        k(q + chunk * s.key_dim),
        kk(k + chunk * s.key_dim),
        qk(kk + chunk * chunk),
        decays(qk + chunk * chunk),
        weights(decays + chunk),
        u(weights + chunk),
        between(u + chunk * s.value_dim),
        carried(between + chunk) {}

  static std::int64_t floats(const DeltaShape& s) {
    return 2 * chunk * s.key_dim + 2 * chunk * chunk + 4 * chunk + chunk * s.value_dim;
  }

  float* q;        ///< [chunk, key_dim]
  float* k;        ///< [chunk, key_dim]
  float* kk;       ///< [chunk, chunk] KKᵀ
  float* qk;       ///< [chunk, chunk] QKᵀ
  float* decays;   ///< [chunk] one row of D; in the end the last one
  float* weights;  ///< [chunk] one row of factors of U
  float* u;        ///< [chunk, value_dim]
  float* between;  ///< [chunk] G_i − G_j of the row i at hand
  float* carried;  ///< [chunk] e^G
};

/// Tokens first .. first+count of one value head.
struct HeadChunk {
  const Context& c;
  const Delta& d;
  const ChunkScratch& w;
  std::int64_t head;
  std::int64_t first;
  std::int64_t count;

  std::int64_t value_dim() const { return d.shape.value_dim; }
  float* state() const { return d.state + head * d.shape.key_dim * value_dim(); }
  float* o_row(std::int64_t i) const { return d.o.row(first + i) + head * value_dim(); }
  const float* v_row(std::int64_t i) const {
    return d.qkv.row(first + i) + 2 * d.shape.key_width() + head * value_dim();
  }
  float beta(std::int64_t i) const { return d.beta.row(first + i)[head]; }
  float g(std::int64_t i) const { return d.g.row(first + i)[head]; }
};

void carry_decays(const HeadChunk& h) {
  float sum = 0;
  for (std::int64_t i = 0; i < h.count; ++i) {
    sum += h.g(i);
    h.w.carried[i] = sum;
  }
  h.c.isa.exp(h.w.carried, h.w.carried, h.count);
}

/// Row i of D, after row i − 1.
void next_decay_row(const HeadChunk& h, std::int64_t i) {
  for (std::int64_t j = 0; j < i; ++j) h.w.between[j] += h.g(i);
  h.w.between[i] = 0;
  h.c.isa.exp(h.w.decays, h.w.between, i + 1);
}

/// row += Σ_{j<count} weights_j U_j
void add_rows_of_u(const HeadChunk& h, std::int64_t count, float* row) {
  h.c.isa.gemm_nn_f32({.x = h.w.weights,
                       .x_row = chunk,
                       .x_col = 1,
                       .w = h.w.u,
                       .w_stride = h.value_dim(),
                       .y = row,
                       .y_stride = h.value_dim(),
                       .m = 1,
                       .n = h.value_dim(),
                       .k = count,
                       .accumulate = true});
}

/// out = x · S for the chunk's rows of x ([count, key_dim])
void times_state(const HeadChunk& h, const float* x, float* out, std::int64_t out_stride) {
  h.c.isa.gemm_nn_f32({.x = x,
                       .x_row = h.d.shape.key_dim,
                       .x_col = 1,
                       .w = h.state(),
                       .w_stride = h.value_dim(),
                       .y = out,
                       .y_stride = out_stride,
                       .m = h.count,
                       .n = h.value_dim(),
                       .k = h.d.shape.key_dim,
                       .accumulate = false});
}

/// U and O, row by row: row i of U needs the rows before it, row i of O those and itself.
void solve_rows(const HeadChunk& h) {
  times_state(h, h.w.k, h.w.u, h.value_dim());
  times_state(h, h.w.q, h.o_row(0), h.d.o.stride);
  for (std::int64_t i = 0; i < h.count; ++i) {
    next_decay_row(h, i);
    const float beta = h.beta(i);
    const float carried = h.w.carried[i];
    float* u = h.w.u + i * h.value_dim();
    const float* v = h.v_row(i);
    for (std::int64_t n = 0; n < h.value_dim(); ++n) u[n] = beta * (v[n] - carried * u[n]);
    for (std::int64_t j = 0; j < i; ++j) h.w.weights[j] = -(beta * (h.w.decays[j] * h.w.kk[i * chunk + j]));
    add_rows_of_u(h, i, u);
    for (std::int64_t j = 0; j <= i; ++j) h.w.weights[j] = h.w.decays[j] * h.w.qk[i * chunk + j];
    h.c.isa.scale(h.o_row(i), carried, h.value_dim());
    add_rows_of_u(h, i + 1, h.o_row(i));
  }
}

void update_state(const HeadChunk& h) {
  for (std::int64_t i = 0; i < h.count; ++i) {
    h.c.isa.scale(h.w.u + i * h.value_dim(), h.w.decays[i], h.value_dim());  // e^{G_C − G_i}
  }
  h.c.isa.scale(h.state(), h.w.carried[h.count - 1], h.d.shape.key_dim * h.value_dim());
  h.c.isa.gemm_nn_f32({.x = h.w.k,
                       .x_row = 1,
                       .x_col = h.d.shape.key_dim,
                       .w = h.w.u,
                       .w_stride = h.value_dim(),
                       .y = h.state(),
                       .y_stride = h.value_dim(),
                       .m = h.d.shape.key_dim,
                       .n = h.value_dim(),
                       .k = h.count,
                       .accumulate = true});
}

void products_of_keys(const Context& c, const ChunkScratch& w, std::int64_t count, std::int64_t key_dim) {
  for (const auto& [x, y] : {std::pair(w.k, w.kk), std::pair(w.q, w.qk)}) {
    c.isa.gemm_nt_f32({.x = x,
                       .x_stride = key_dim,
                       .x_rows = nullptr,
                       .w = w.k,
                       .w_stride = key_dim,
                       .y = y,
                       .y_stride = chunk,
                       .m = count,
                       .n = count,
                       .k = key_dim});
  }
}

}  // namespace

void delta_chunks(const Context& c, const Delta& d) {
  const DeltaShape& s = d.shape;
  const std::int64_t group = s.value_heads / s.key_heads;
  c.pool.run(s.key_heads, [&](std::int64_t key_head, int worker) {
    const ChunkScratch w(c.scratch.floats(worker, ChunkScratch::floats(s)), s);
    for (std::int64_t first = 0; first < d.o.rows && !c.pool.stopping(); first += chunk) {
      const std::int64_t count = std::min(chunk, d.o.rows - first);
      for (std::int64_t i = 0; i < count; ++i) {
        const float* q = d.qkv.row(first + i) + key_head * s.key_dim;
        std::copy_n(q, s.key_dim, w.q + i * s.key_dim);
        std::copy_n(q + s.key_width(), s.key_dim, w.k + i * s.key_dim);
      }
      products_of_keys(c, w, count, s.key_dim);
      for (std::int64_t h = key_head * group; h < (key_head + 1) * group; ++h) {
        const HeadChunk head{.c = c, .d = d, .w = w, .head = h, .first = first, .count = count};
        carry_decays(head);
        solve_rows(head);
        update_state(head);
      }
    }
  });
}

}  // namespace aima::device::cpu
