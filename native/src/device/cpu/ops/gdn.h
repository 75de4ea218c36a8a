/// The operations of Gated DeltaNet (model.md 3.2), all in f32.
#pragma once

#include "device/cpu/ops/context.h"

namespace aima::device::cpu {

/// Causal depthwise convolution of 4 taps, then SiLU, in place on u: [T, channels]. `tail` [3, channels]
/// holds the three inputs before this pass, oldest first, and afterwards those before the next. `taps` is [4,
/// channels].
void conv4_silu(const Context& c, Mat u, const float* taps, float* tail);

/// g = decay · softplus(a + dt_bias) and beta = sigmoid(b), in place. a becomes g, b becomes beta: [T, value
/// heads].
void gdn_gates(const Context& c, Mat a, Mat b, const float* decay, const float* dt_bias);

struct DeltaShape {
  std::int64_t key_heads, value_heads, key_dim, value_dim;

  std::int64_t key_width() const { return key_heads * key_dim; }
};

/// Inputs and outputs of the delta rule over T tokens.
struct Delta {
  DeltaShape shape;
  ConstMat qkv;   ///< [T, q | k | v]: q, k normalised, q scaled
  ConstMat g;     ///< [T, value heads]: log decay
  ConstMat beta;  ///< [T, value heads]
  float* state;   ///< [value heads, key_dim, value_dim], carried
  Mat o;          ///< [T, value heads · value_dim]
};

/// Chunk form, 64 tokens at a time from the pass's start, which lies at a multiple of 64.
void delta_chunks(const Context& c, const Delta& d);

/// The recurrence, token by token.
void delta_steps(const Context& c, const Delta& d);

}  // namespace aima::device::cpu
