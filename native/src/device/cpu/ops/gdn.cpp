#include "device/cpu/ops/gdn.h"

#include <algorithm>
#include <cmath>

namespace aima::device::cpu {
namespace {

float softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

/// u[t] of the concatenation of the tail (t = -3, -2, -1) and the pass.
const float* input_at(const Mat& u, const float* tail, std::int64_t t) {
  return t >= 0 ? u.row(t) : tail + (t + 3) * u.cols;
}

}  // namespace

void conv4_silu(const Context& c, Mat u, const float* taps, float* tail) {
  constexpr std::int64_t width = 256;
  for_ranges(c, u.cols, width, [&](std::int64_t first, std::int64_t last, int) {
    const std::int64_t n = last - first;
    float next_tail[3][width];
    for (std::int64_t j = 0; j < 3; ++j)
      std::copy_n(input_at(u, tail, u.rows - 3 + j) + first, n, next_tail[j]);
    float local_taps[4 * width];
    for (std::int64_t j = 0; j < 4; ++j) std::copy_n(taps + j * u.cols + first, n, local_taps + j * n);
    // Backwards, so that what a token overwrites is no longer needed.
    for (std::int64_t t = u.rows - 1; t >= 0; --t) {
      const float* in[4];
      for (std::int64_t j = 0; j < 4; ++j) in[j] = input_at(u, tail, t - 3 + j) + first;
      c.isa.conv4_silu(u.row(t) + first, in, local_taps, n);
    }
    for (std::int64_t j = 0; j < 3; ++j) std::copy_n(next_tail[j], n, tail + j * u.cols + first);
  });
}

void gdn_gates(const Context& c, Mat a, Mat b, const float* decay, const float* dt_bias) {
  for_ranges(c, a.rows, 16, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t t = first; t < last; ++t) {
      float* g = a.row(t);
      float* beta = b.row(t);
      for (std::int64_t h = 0; h < a.cols; ++h) {
        g[h] = decay[h] * softplus(g[h] + dt_bias[h]);
        beta[h] = 1.0F / (1.0F + std::exp(-beta[h]));
      }
    }
  });
}

namespace {

struct Decay {
  float keep, loss;
};

/// e^g near 1 has few digits left for what it takes away, and the same error again at each step: over
/// thousands of tokens with little decay they would add up. e^g − 1 has all digits.
Decay split_decay(float g) {
  if (g > -0.5F) return {.keep = 1, .loss = std::expm1(g)};
  return {.keep = std::exp(g), .loss = 0};
}

}  // namespace

void delta_steps(const Context& c, const Delta& d) {
  const DeltaShape& s = d.shape;
  const std::int64_t group = s.value_heads / s.key_heads;
  c.pool.run(s.value_heads, [&](std::int64_t h, int) {
    for (std::int64_t t = 0; t < d.o.rows; ++t) {
      const float* q = d.qkv.row(t) + h / group * s.key_dim;
      const Decay decay = split_decay(d.g.row(t)[h]);
      c.isa.gdn_step({.s = d.state + h * s.key_dim * s.value_dim,
                      .q = q,
                      .k = q + s.key_width(),
                      .v = d.qkv.row(t) + 2 * s.key_width() + h * s.value_dim,
                      .keep = decay.keep,
                      .loss = decay.loss,
                      .beta = d.beta.row(t)[h],
                      .o = d.o.row(t) + h * s.value_dim,
                      .key_dim = s.key_dim,
                      .value_dim = s.value_dim});
    }
  });
}

}  // namespace aima::device::cpu
