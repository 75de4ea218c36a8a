/// Full attention (model.md 3.1): rotary embedding, the KV cache in blocks of 64 tokens, causal GQA
/// attention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/cpu/ops/context.h"
#include "model/safetensors.h"

namespace aima::device::cpu {

/// cos and sin of position·ω_j, ω_j = theta^(−2j/rotary), j < rotary/2, each [tokens, rotary/2]. Angles are
/// f32 products, as the reference computes them.
void rope_tables(const Context& c, double theta, std::int64_t rotary, std::int64_t start, Mat cos, Mat sin);

/// Where one layer's keys and values lie: a block holds 64 tokens of every KV head, `[head][64][head_dim]`.
struct KvBlocks {
  std::span<std::byte* const> blocks;  ///< block b holds tokens 64b .. 64b+63
  std::size_t key_offset = 0;          ///< of this layer's keys in a block, bytes
  std::size_t value_offset = 0;
  model::DType dtype = model::DType::bf16;  ///< bf16 or f32
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;

  std::size_t element() const { return dtype == model::DType::bf16 ? 2 : 4; }
  std::byte* keys(std::int64_t block, std::int64_t head) const { return at(block, head, key_offset); }
  std::byte* values(std::int64_t block, std::int64_t head) const { return at(block, head, value_offset); }

 private:
  std::byte* at(std::int64_t block, std::int64_t head, std::size_t offset) const;
};

/// What the projections of one pass gave, and what its attention needs.
struct HeadInputs {
  ConstMat qg;  ///< [T, heads · 2 · head_dim]: per head query, then gate
  ConstMat k;   ///< [T, kv_heads · head_dim]
  ConstMat v;
  const float* q_norm = nullptr;  ///< 1 + w
  const float* k_norm = nullptr;
  float eps = 0;
  ConstMat cos;  ///< [T, rotary/2]
  ConstMat sin;
};

/// Head norms and RoPE of queries and keys; queries to `q` [T, heads · head_dim] (rounded under bf16), keys
/// and values into the cache at positions start .. start+T-1 (rounded to its dtype).
void attention_heads(const Context& c, const HeadInputs& in, std::int64_t start, const KvBlocks& kv, Mat q);

/// o[t] = softmax over keys 0 .. start+t of (q·k / sqrt(head_dim)) times v, per head; query head h reads KV
/// head h / (heads / kv_heads). Softmax runs online over absolute blocks of 64 keys.
void attention(const Context& c, ConstMat q, std::int64_t start, const KvBlocks& kv, Mat o);

/// o ← o · sigmoid(gate), rounded under bf16; the gates lie in `qg`.
void output_gate(const Context& c, ConstMat qg, std::int64_t head_dim, Mat o);

}  // namespace aima::device::cpu
