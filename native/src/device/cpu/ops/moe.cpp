#include "device/cpu/ops/moe.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/numbers.h"
#include "device/cpu/ops/gemm.h"

namespace aima::device::cpu {
namespace {

using base::ceil_div;

/// Rows of x that one expert works on, and where its results go.
struct Job {
  const model::Expert* expert;
  ConstMat x;
  const std::int32_t* rows;  ///< rows of x; null: all in order
  Mat hidden;
  Mat outputs;
};

/// Sorts the (token, slot) pairs by expert, tokens ascending, and returns one job per expert that has any.
std::vector<Job> sort_by_expert(const MoeShape& s, const model::MoeWeights& weights, ConstMat x,
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
  std::vector<Job> jobs;
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

/// hidden = silu(x·gateᵀ) · (x·upᵀ), tile by tile, rounded under bf16
void hidden_block(const Context& c, const Job& job, std::int64_t m, std::int64_t n, GemmTile tile,
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

void hidden_layers(const Context& c, const std::vector<Job>& jobs, std::int64_t k) {
  const GemmTile tile = gemm_tile(k);
  std::vector<std::int64_t> starts;
  std::int64_t tasks = 0;
  for (const Job& job : jobs) {
    starts.push_back(tasks);
    tasks += ceil_div(job.hidden.rows, tile.rows) * ceil_div(job.hidden.cols, tile.cols);
  }
  c.pool.run(tasks, [&](std::int64_t task, int worker) {
    const auto index = static_cast<std::size_t>(std::ranges::upper_bound(starts, task) - starts.begin() - 1);
    const Job& job = jobs[index];
    const std::int64_t row_tiles = ceil_div(job.hidden.rows, tile.rows);
    const std::int64_t local = task - starts[index];
    float* up = c.scratch.floats(worker, tile.rows * tile.cols);
    hidden_block(c, job, local % row_tiles * tile.rows, local / row_tiles * tile.cols, tile, up);
  });
}

void combine(const Context& c, const MoeShape& s, const float* slot_weights, const MoeWorkspace& w,
             Mat residual) {
  for_ranges(c, residual.rows, 4, [&](std::int64_t first, std::int64_t last, int worker) {
    float* sum = c.scratch.floats(worker, s.width);
    for (std::int64_t t = first; t < last; ++t) {
      std::fill_n(sum, s.width, 0.0F);
      for (std::int64_t slot = t * s.k; slot < (t + 1) * s.k; ++slot) {
        c.isa.axpy(sum, slot_weights[slot], w.outputs.data() + w.places.data()[slot] * s.width, s.width);
      }
      const float gate = 1.0F / (1.0F + std::exp(-w.shared_gate.data()[t]));
      c.isa.axpy(sum, gate, w.shared_outputs.data() + t * s.width, s.width);
      c.isa.axpy(residual.row(t), 1.0F, sum, s.width);
    }
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
  return {.hidden = Buffer<float>(tokens * s.k * s.expert_width),
          .outputs = Buffer<float>(tokens * s.k * s.width),
          .shared_hidden = Buffer<float>(tokens * s.shared_width),
          .shared_outputs = Buffer<float>(tokens * s.width),
          .shared_gate = Buffer<float>(tokens),
          .rows = Buffer<std::int32_t>(tokens * s.k),
          .places = Buffer<std::int32_t>(tokens * s.k)};
}

std::size_t moe_workspace_bytes(const MoeShape& s, std::int64_t tokens) {
  const std::int64_t per_pair = s.expert_width + s.width + 2;
  const std::int64_t per_token = s.k * per_pair + s.shared_width + s.width + 1;
  return static_cast<std::size_t>(tokens * per_token) * 4;
}

void run_experts(const Context& c, const MoeShape& s, const model::MoeWeights& weights, ConstMat x,
                 const std::int32_t* ids, const float* slot_weights, MoeWorkspace& w, Mat residual) {
  std::vector<Job> jobs = sort_by_expert(s, weights, x, ids, w);
  jobs.push_back({.expert = &weights.shared,
                  .x = x,
                  .rows = nullptr,
                  .hidden = packed(w.shared_hidden.data(), x.rows, s.shared_width),
                  .outputs = packed(w.shared_outputs.data(), x.rows, s.width)});
  hidden_layers(c, jobs, s.width);
  std::vector<Product> products;
  products.reserve(jobs.size() + 1);
  for (const Job& job : jobs) products.push_back({.x = job.hidden, .w = job.expert->down, .y = job.outputs});
  products.push_back({.x = x, .w = weights.shared_gate, .y = packed(w.shared_gate.data(), x.rows, 1)});
  gemm(c, products);
  combine(c, s, slot_weights, w, residual);
}

}  // namespace aima::device::cpu
