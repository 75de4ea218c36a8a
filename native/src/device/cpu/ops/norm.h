/// RMS norms and L2 norm over rows (model.md 3).
#pragma once

#include "device/cpu/ops/context.h"

namespace aima::device::cpu {

/// y = x / sqrt(mean(x²) + eps) · gain, per row; y is the input of a matrix product, so it is rounded under
/// bf16. `gain` is 1 + w.
void rms_norm(const Context& c, ConstMat x, const float* gain, float eps, Mat y);

/// Per head of `head_dim`: o ← o / sqrt(mean(o²) + eps) · gain · silu(z), rounded under bf16. o and z: [T,
/// heads·dim].
void gated_rms_norm(const Context& c, Mat o, ConstMat z, const float* gain, float eps, std::int64_t head_dim);

/// Per head of `head_dim`: x ← x / sqrt(Σx² + 1e-6) · scale. Not rounded: it feeds the delta rule.
void l2_norm_heads(const Context& c, Mat x, std::int64_t head_dim, float scale);

}  // namespace aima::device::cpu
