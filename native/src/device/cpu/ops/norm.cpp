#include "device/cpu/ops/norm.h"

namespace aima::device::cpu {
namespace {

constexpr std::int64_t grain = 16;
constexpr float l2_eps = 1e-6F;

}  // namespace

void rms_norm(const Context& c, ConstMat x, const float* gain, float eps, Mat y) {
  for_ranges(c, x.rows, grain, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t t = first; t < last; ++t) {
      c.isa.rms_norm(y.row(t), x.row(t), gain, x.cols, eps);
      if (c.rounds()) c.isa.round_bf16(y.row(t), x.cols);
    }
  });
}

void gated_rms_norm(const Context& c, Mat o, ConstMat z, const float* gain, float eps,
                    std::int64_t head_dim) {
  for_ranges(c, o.rows, grain, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t t = first; t < last; ++t) {
      for (std::int64_t h = 0; h < o.cols; h += head_dim) {
        c.isa.gated_rms_norm(o.row(t) + h, o.row(t) + h, gain, z.row(t) + h, head_dim, eps);
      }
      if (c.rounds()) c.isa.round_bf16(o.row(t), o.cols);
    }
  });
}

void l2_norm_heads(const Context& c, Mat x, std::int64_t head_dim, float scale) {
  for_ranges(c, x.rows, grain, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t t = first; t < last; ++t) {
      for (std::int64_t h = 0; h < x.cols; h += head_dim)
        c.isa.l2_norm(x.row(t) + h, head_dim, l2_eps, scale);
    }
  });
}

}  // namespace aima::device::cpu
