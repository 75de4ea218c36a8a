#include "device/cpu/ops/moe_jobs.h"

#include <algorithm>
#include <cmath>

#include "device/cpu/ops/gemm.h"

namespace aima::device::cpu {

std::vector<ExpertJob> expert_jobs(const MoeShape& s, const model::MoeWeights& weights, ConstMat x,
                                   const std::int32_t* ids, MoeWorkspace& w) {
  std::vector<std::int32_t> starts(static_cast<std::size_t>(s.experts) + 1);
  const std::int64_t pairs = x.rows * s.k;
  for (std::int64_t i = 0; i < pairs; ++i) ++starts[static_cast<std::size_t>(ids[i]) + 1];
  for (std::size_t e = 1; e < starts.size(); ++e) starts[e] += starts[e - 1];
  std::vector<std::int32_t> next(starts.begin(), starts.end() - 1);
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::int32_t place = next[static_cast<std::size_t>(ids[i])]++;
    w.rows.data()[place] = static_cast<std::int32_t>(i / s.k);
    w.places.data()[i] = place;
  }
  std::vector<ExpertJob> jobs;
  jobs.push_back({.expert = &weights.shared,
                  .x = x,
                  .rows = nullptr,
                  .hidden = packed(w.shared_hidden.data(), x.rows, s.shared_width),
                  .outputs = packed(w.shared_outputs.data(), x.rows, s.width)});
  for (std::size_t e = 0; e + 1 < starts.size(); ++e) {
    const std::int64_t first = starts[e];
    const std::int64_t count = starts[e + 1] - first;
    if (count == 0) continue;
    jobs.push_back({.expert = &weights.experts[e],
                    .x = x,
                    .rows = w.rows.data() + first,
                    .hidden = packed(w.hidden.data() + first * s.expert_width, count, s.expert_width),
                    .outputs = packed(w.outputs.data() + first * s.width, count, s.width)});
  }
  return jobs;
}

void combine_experts(const Context& c, const MoeShape& s, const model::MoeWeights& weights, ConstMat x,
                     const float* slot_weights, const MoeWorkspace& w, Mat residual) {
  for_ranges(c, residual.rows, 4, [&](std::int64_t first, std::int64_t last, int worker) {
    float* sum = c.scratch.floats(worker, s.width);
    for (std::int64_t t = first; t < last; ++t) {
      std::fill_n(sum, s.width, 0.0F);
      for (std::int64_t slot = t * s.k; slot < (t + 1) * s.k; ++slot) {
        c.isa.axpy(sum, slot_weights[slot], w.outputs.data() + w.places.data()[slot] * s.width, s.width);
      }
      float logit = 0;
      const ConstMat row{x.row(t), 1, x.cols, x.stride};
      gemm_block(c, {.x = row, .w = weights.shared_gate, .y = packed(&logit, 1, 1)}, 0, 0, {1, 1});
      const float gate = 1.0F / (1.0F + std::exp(-logit));
      c.isa.axpy(sum, gate, w.shared_outputs.data() + t * s.width, s.width);
      c.isa.axpy(residual.row(t), 1.0F, sum, s.width);
    }
  });
}

}  // namespace aima::device::cpu
