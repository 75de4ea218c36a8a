#include "device/cpu/ops/moe.h"

#include <algorithm>
#include <vector>

#include "base/numbers.h"
#include "device/cpu/ops/gemm.h"
#include "device/cpu/ops/moe_jobs.h"

namespace aima::device::cpu {
namespace {

using base::ceil_div;

/// hidden = silu(x·gateᵀ) · (x·upᵀ), tile by tile, rounded under bf16
void hidden_block(const Context& c, const ExpertJob& job, std::int64_t m, std::int64_t n, GemmTile tile,
                  float* up) {
  const std::int64_t rows = std::min(tile.rows, job.hidden.rows - m);
  const std::int64_t cols = std::min(tile.cols, job.hidden.cols - n);
  gemm_block(c, {.x = job.x, .w = job.expert->gate, .y = job.hidden, .rows = job.rows}, m, n, tile);
  const ConstMat x = job.rows != nullptr ? job.x : ConstMat{job.x.row(m), rows, job.x.cols, job.x.stride};
  gemm_block(c,
             {.x = x,
              .w = job.expert->up.slice(n, cols),
              .y = packed(up, rows, cols),
              .rows = job.rows != nullptr ? job.rows + m : nullptr},
             0, 0, tile);
  for (std::int64_t r = 0; r < rows; ++r) {
    float* hidden = job.hidden.row(m + r) + n;
    c.isa.silu_mul(hidden, hidden, up + r * cols, cols);
    if (c.rounds()) c.isa.round_bf16(hidden, cols);
  }
}

void hidden_layers(const Context& c, const std::vector<ExpertJob>& jobs, std::int64_t k) {
  const GemmTile tile = gemm_tile(k);
  std::vector<std::int64_t> starts;
  std::int64_t tasks = 0;
  for (const ExpertJob& job : jobs) {
    starts.push_back(tasks);
    tasks += ceil_div(job.hidden.rows, tile.rows) * ceil_div(job.hidden.cols, tile.cols);
  }
  c.pool.run(tasks, [&](std::int64_t task, int worker) {
    const auto index = static_cast<std::size_t>(std::ranges::upper_bound(starts, task) - starts.begin() - 1);
    const ExpertJob& job = jobs[index];
    const std::int64_t row_tiles = ceil_div(job.hidden.rows, tile.rows);
    const std::int64_t local = task - starts[index];
    float* up = c.scratch.floats(worker, tile.rows * tile.cols);
    hidden_block(c, job, local % row_tiles * tile.rows, local / row_tiles * tile.cols, tile, up);
  });
}

}  // namespace

void route_top_k(const Context& c, Mat logits, std::int64_t k, std::int32_t* ids, float* weights) {
  for_ranges(c, logits.rows, 16, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t t = first; t < last; ++t) {
      float* p = logits.row(t);
      const float maximum = c.isa.max(p, logits.cols);
      const float sum = c.isa.exp_sum(p, logits.cols, 1.0F, maximum);
      for (std::int64_t e = 0; e < logits.cols; ++e) p[e] /= sum;
      float chosen_sum = 0;
      for (std::int64_t slot = 0; slot < k; ++slot) {
        float* best = std::max_element(p, p + logits.cols);  // the first of equals
        ids[t * k + slot] = static_cast<std::int32_t>(best - p);
        weights[t * k + slot] = *best;
        chosen_sum += *best;
        *best = -1.0F;
      }
      for (std::int64_t slot = 0; slot < k; ++slot) weights[t * k + slot] /= chosen_sum;
    }
  });
}

MoeWorkspace make_moe_workspace(const MoeShape& s, std::int64_t tokens) {
  return {.tokens = tokens,
          .hidden = Buffer<float>(tokens * s.k * s.expert_width),
          .outputs = Buffer<float>(tokens * s.k * s.width),
          .shared_hidden = Buffer<float>(tokens * s.shared_width),
          .shared_outputs = Buffer<float>(tokens * s.width),
          .rows = Buffer<std::int32_t>(tokens * s.k),
          .places = Buffer<std::int32_t>(tokens * s.k)};
}

std::size_t moe_workspace_bytes(const MoeShape& s, std::int64_t tokens) {
  const std::int64_t per_pair = s.expert_width + s.width + 2;
  const std::int64_t per_token = s.k * per_pair + s.shared_width + s.width;
  return static_cast<std::size_t>(tokens * per_token) * 4;
}

void step_experts(const Context& c, const MoeShape& s, const model::MoeWeights& weights, ConstMat x,
                  const std::int32_t* ids, const float* slot_weights, MoeWorkspace& w, Mat residual) {
  const std::vector<ExpertJob> jobs = expert_jobs(s, weights, x, ids, w);
  hidden_layers(c, jobs, s.width);
  std::vector<Product> products;
  products.reserve(jobs.size());
  for (const ExpertJob& job : jobs)
    products.push_back({.x = job.hidden, .w = job.expert->down, .y = job.outputs});
  gemm(c, products);
  combine_experts(c, s, weights, x, slot_weights, w, residual);
}

}  // namespace aima::device::cpu
