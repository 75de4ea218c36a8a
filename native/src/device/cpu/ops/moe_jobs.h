/// What both forms of the mixture of experts share: who works on which rows, and the weighted sum.
#pragma once

#include <cstdint>
#include <vector>

#include "device/cpu/ops/moe.h"

namespace aima::device::cpu {

/// Rows of x that one expert works on, and where its results go.
struct ExpertJob {
  const model::Expert* expert;
  ConstMat x;
  const std::int32_t* rows;  ///< rows of x; null: all in order
  Mat hidden;
  Mat outputs;
};

/// Sorts the (token, slot) pairs by expert, tokens ascending. One job per expert that has any, the shared one
/// first.
std::vector<ExpertJob> expert_jobs(const MoeShape& s, const model::MoeWeights& weights, ConstMat x,
                                   const std::int32_t* ids, MoeWorkspace& w);

/// residual[t] += Σ_slot weight · output + sigmoid(x·gateᵀ) · shared output
void combine_experts(const Context& c, const MoeShape& s, const model::MoeWeights& weights, ConstMat x,
                     const float* slot_weights, const MoeWorkspace& w, Mat residual);

}  // namespace aima::device::cpu
