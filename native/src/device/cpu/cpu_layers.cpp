/// The joints inside a layer, each a few operations (ops/) in a row.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/cpu/ops/gdn.h"
#include "device/cpu/ops/gemm.h"
#include "device/cpu/ops/norm.h"
#include "device/cpu/ops/panels.h"

namespace aima::device::cpu {

void CpuDevice::multiply(ConstMat x, std::span<const Target> targets) {
  if (phase_ == Phase::prefill) {
    panel_products(context_, x, targets);
    return;
  }
  std::vector<Product> products;
  products.reserve(targets.size());
  for (const Target& target : targets) products.push_back({.x = x, .w = target.w, .y = target.y});
  gemm(context_, products);
}

void CpuDevice::mixer_in(int index) {
  const Timer timer(*this, MixerIn);
  const model::LayerWeights& l = layer(index);
  const model::Config& c = config_;
  const Mat x = view(w_.normed, c.hidden);
  rms_norm(context_, view(w_.residual, c.hidden), l.input_norm.data(), c.eps, x);
  if (l.gdn) {
    const std::int64_t heads = c.gdn_value_heads;
    const std::array<Target, 4> targets = {{
        {.w = l.gdn->qkv, .y = view(w_.projected, c.conv_width())},
        {.w = l.gdn->z, .y = view(w_.second, c.gdn_value_width())},
        {.w = l.gdn->a, .y = view(w_.small, heads)},
        {.w = l.gdn->b, .y = view(w_.small, heads, tokens_ * heads)},
    }};
    multiply(x, targets);
  } else {
    const std::array<Target, 3> targets = {{
        {.w = l.attention->q, .y = view(w_.projected, 2 * c.query_width())},
        {.w = l.attention->k, .y = view(w_.small, c.kv_width())},
        {.w = l.attention->v, .y = view(w_.small, c.kv_width(), tokens_ * c.kv_width())},
    }};
    multiply(x, targets);
  }
}

void CpuDevice::gdn_mix(int index) {
  const Timer timer(*this, GdnMix);
  const model::GdnWeights& weights = *layer(index).gdn;
  const model::Config& c = config_;
  const std::int64_t number = kind_index_[static_cast<std::size_t>(index)];
  const Mat u = view(w_.projected, c.conv_width());
  const Mat g = view(w_.small, c.gdn_value_heads);
  const Mat beta = view(w_.small, c.gdn_value_heads, tokens_ * c.gdn_value_heads);
  const Mat o = view(w_.mixed, c.gdn_value_width());
  conv4_silu(context_, u, weights.conv.data(), state_->tail(number));
  const float query_scale = 1.0F / std::sqrt(static_cast<float>(c.gdn_key_dim));
  l2_norm_heads(context_, {u.data, u.rows, c.gdn_key_width(), u.stride}, c.gdn_key_dim, query_scale);
  l2_norm_heads(context_, {u.data + c.gdn_key_width(), u.rows, c.gdn_key_width(), u.stride}, c.gdn_key_dim,
                1.0F);
  gdn_gates(context_, g, beta, weights.decay.data(), weights.dt_bias.data());
  const Delta delta{.shape = {.key_heads = c.gdn_key_heads,
                              .value_heads = c.gdn_value_heads,
                              .key_dim = c.gdn_key_dim,
                              .value_dim = c.gdn_value_dim},
                    .qkv = u,
                    .g = g,
                    .beta = beta,
                    .state = state_->delta(number),
                    .o = o};
  if (phase_ == Phase::prefill) {
    delta_chunks(context_, delta);
  } else {
    delta_steps(context_, delta);
  }
  gated_rms_norm(context_, o, view(w_.second, c.gdn_value_width()), weights.norm.data(), c.eps,
                 c.gdn_value_dim);
}

KvBlocks CpuDevice::kv_of(int index) const {
  const bool draft = index == draft_layer();
  const auto number = draft ? 0 : static_cast<std::size_t>(kind_index_[static_cast<std::size_t>(index)]);
  return {.blocks = draft ? ended_->draft_blocks() : state_->blocks(),
          .key_offset = number * 2 * layout_.kv_bytes,
          .value_offset = (number * 2 + 1) * layout_.kv_bytes,
          .dtype = context_.rounds() ? model::DType::bf16 : model::DType::f32,
          .kv_heads = config_.kv_heads,
          .head_dim = config_.head_dim};
}

void CpuDevice::attention_mix(int index) {
  const Timer timer(*this, AttentionMix);
  const model::AttentionWeights& weights = *layer(index).attention;
  const model::Config& c = config_;
  const KvBlocks kv = kv_of(index);
  const Mat qg = view(w_.projected, 2 * c.query_width());
  const Mat q = view(w_.second, c.query_width());
  const Mat o = view(w_.mixed, c.query_width());
  const HeadInputs inputs{.qg = qg,
                          .k = view(w_.small, c.kv_width()),
                          .v = view(w_.small, c.kv_width(), tokens_ * c.kv_width()),
                          .q_norm = weights.q_norm.data(),
                          .k_norm = weights.k_norm.data(),
                          .eps = c.eps,
                          .cos = view(w_.cos, c.rotary_dim / 2),
                          .sin = view(w_.sin, c.rotary_dim / 2)};
  attention_heads(context_, inputs, start_, kv, q);
  attention(context_, q, start_, kv, o);
  output_gate(context_, qg, c.head_dim, o);
}

void CpuDevice::mixer_out(int index) {
  const Timer timer(*this, MixerOut);
  const model::LayerWeights& l = layer(index);
  const model::Matrix& weights = l.gdn ? l.gdn->out : l.attention->out;
  const Mat mixed = view(w_.mixed, weights.cols);
  const Mat product = view(w_.normed, config_.hidden);
  const Mat residual = view(w_.residual, config_.hidden);
  if (phase_ == Phase::prefill) {
    panel_products(context_, mixed, std::array{Target{.w = weights, .y = residual, .add = true}});
    return;
  }
  gemm(context_, {.x = mixed, .w = weights, .y = product});
  for_ranges(context_, tokens_, 16, [&](std::int64_t first, std::int64_t last, int) {
    const std::int64_t at = first * config_.hidden;
    context_.isa.axpy(residual.data + at, 1.0F, product.data + at, (last - first) * config_.hidden);
  });
}

void CpuDevice::route(int index) {
  const Timer timer(*this, Route);
  const model::LayerWeights& l = layer(index);
  const Mat x = view(w_.normed, config_.hidden);
  const Mat logits = view(w_.router, config_.experts);
  rms_norm(context_, view(w_.residual, config_.hidden), l.post_norm.data(), config_.eps, x);
  multiply(x, std::array{Target{.w = l.moe.router, .y = logits}});
  route_top_k(context_, logits, config_.experts_per_token, w_.slot_ids.data(), w_.slot_weights.data());
}

void CpuDevice::experts(int index) {
  const Timer timer(*this, Experts);
  const std::int64_t k = config_.experts_per_token;
  const std::int64_t most = w_.moe.tokens;
  const auto run = phase_ == Phase::prefill ? run_experts : step_experts;
  for (std::int64_t first = 0; first < tokens_; first += most) {
    const std::int64_t count = std::min(most, tokens_ - first);
    const std::int64_t at = first * config_.hidden;
    run(context_, moe_shape_, layer(index).moe, packed(w_.normed.data() + at, count, config_.hidden),
        w_.slot_ids.data() + first * k, w_.slot_weights.data() + first * k, w_.moe,
        packed(w_.residual.data() + at, count, config_.hidden));
  }
}

}  // namespace aima::device::cpu
