/// The mixture of experts (model.md 3.3).
#pragma once

#include <cstdint>
#include <span>

#include "device/cpu/ops/context.h"
#include "model/weights.h"

namespace aima::device::cpu {

/// softmax of each row of `logits` (in place: they become probabilities), the `k` greatest in descending
/// order, the lowest index first on a tie, and their probabilities divided by their sum. ids, weights: [T,
/// k].
void route_top_k(const Context& c, Mat logits, std::int64_t k, std::int32_t* ids, float* weights);

/// Memory for the experts of up to `tokens` tokens.
struct MoeWorkspace {
  std::int64_t tokens = 0;
  Buffer<float> hidden;          ///< [tokens · k, expert width]
  Buffer<float> outputs;         ///< [tokens · k, model width]
  Buffer<float> shared_hidden;   ///< [tokens, shared width]
  Buffer<float> shared_outputs;  ///< [tokens, model width]
  Buffer<std::int32_t> rows;     ///< [tokens · k]: token of each sorted assignment
  Buffer<std::int32_t> places;   ///< [tokens · k]: sorted place of each (token, slot)
};

struct MoeShape {
  std::int64_t width;  ///< of the model
  std::int64_t experts;
  std::int64_t k;
  std::int64_t expert_width;
  std::int64_t shared_width;
};

MoeWorkspace make_moe_workspace(const MoeShape& s, std::int64_t tokens);
std::size_t moe_workspace_bytes(const MoeShape& s, std::int64_t tokens);

/// Bytes of `Scratch` that `run_experts` takes of each worker.
std::size_t expert_worker_bytes(const MoeShape& s);

/// residual[t] += Σ_slot weights[t][slot] · expert_{ids[t][slot]}(x[t]) + sigmoid(x[t]·gateᵀ) · shared(x[t]).
/// The slots are added in order, then the shared expert, then the residual. At most as many tokens as `w` was
/// made for. For prefill: sums run as in `panel_products`.
void run_experts(const Context& c, const MoeShape& s, const model::MoeWeights& weights, ConstMat x,
                 const std::int32_t* ids, const float* slot_weights, MoeWorkspace& w, Mat residual);

/// The same for the few rows of a decode step: sums run as in `gemm`.
void step_experts(const Context& c, const MoeShape& s, const model::MoeWeights& weights, ConstMat x,
                  const std::int32_t* ids, const float* slot_weights, MoeWorkspace& w, Mat residual);

}  // namespace aima::device::cpu
