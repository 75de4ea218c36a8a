/// The experts of a prefill pass. One task takes some rows of one expert from x to the expert's output, all
/// in its worker's own memory.
#include <algorithm>
#include <cstring>

#include "base/numbers.h"
#include "device/cpu/ops/moe_jobs.h"
#include "device/cpu/ops/panels.h"

namespace aima::device::cpu {
namespace {

using base::ceil_div;

constexpr std::int64_t most_rows = 256;  ///< of one task
constexpr std::int64_t row_step = 32;    ///< a multiple of every panel's rows
constexpr std::int64_t k_pad = 32;       ///< most that k is filled up by

/// Rows of one task: enough tasks for all threads, and else as many as possible, to use weights often.
std::int64_t task_rows(std::int64_t pairs, int threads) {
  const std::int64_t even = ceil_div(pairs, 4 * threads);
  return std::clamp(ceil_div(even, row_step) * row_step, row_step, most_rows);
}

struct TaskScratch {
  BlockScratch gate;
  BlockScratch up;  ///< the same weights memory, other sums
  Panels x;
  Panels hidden;
};

std::int64_t task_floats(const MoeShape& s, std::int64_t rows) {
  const std::int64_t width = std::max(s.expert_width, s.shared_width);
  return weights_floats() + 2 * sums_floats(rows) + rows * (s.width + width + 2 * k_pad);
}

/// Rows first .. first+rows-1 of `job` in a worker's memory.
TaskScratch lay_out(const Context& c, const ExpertJob& job, std::int64_t rows, std::int64_t room,
                    float* memory) {
  const PanelKernels& kernels = panel_kernels(c, job.expert->gate.dtype);
  TaskScratch w{.gate = {.weights = memory, .sums = memory + weights_floats()},
                .up = {.weights = memory, .sums = memory + weights_floats() + sums_floats(room)},
                .x = {.kernels = &kernels, .rows = rows, .k = job.x.cols},
                .hidden = {.kernels = &kernels, .rows = rows, .k = job.hidden.cols}};
  w.x.data = reinterpret_cast<std::byte*>(w.up.sums + sums_floats(room));
  w.hidden.data = w.x.data + w.x.count() * w.x.bytes();
  return w;
}

/// The rows behind the last whole pair of k are zero, as far as the kernels read them.
void clear_tail(const Panels& panels) {
  const std::int64_t from = panels.k / 2 * 2 * panels.kernels->rows * panels.kernels->element;
  for (std::int64_t p = 0; p < panels.count(); ++p)
    std::memset(panels.panel(p) + from, 0, static_cast<std::size_t>(panels.bytes() - from));
}

void hidden_rows(const Context& c, const model::Expert& expert, const TaskScratch& w) {
  const PanelKernels& kernels = *w.x.kernels;
  clear_tail(w.hidden);
  for (std::int64_t n = 0; n < expert.gate.rows; n += panel_cols) {
    const std::int64_t cols = std::min(panel_cols, expert.gate.rows - n);
    multiply_block(w.x, expert.gate, n, cols, w.gate);
    multiply_block(w.x, expert.up, n, cols, w.up);
    for (std::int64_t p = 0; p < w.x.count(); ++p) {
      const std::int64_t at = p * panel_cols * kernels.rows;
      kernels.hidden({.panel = w.hidden.panel(p),
                      .gate = w.gate.sums + at,
                      .up = w.up.sums + at,
                      .m = w.x.rows_of(p),
                      .first = n,
                      .n = cols,
                      .round = c.rounds()});
    }
  }
}

void run_task(const Context& c, const ExpertJob& job, std::int64_t first, const TaskScratch& w) {
  const ConstMat x =
      job.rows != nullptr ? job.x : ConstMat{job.x.row(first), w.x.rows, job.x.cols, job.x.stride};
  const std::int32_t* rows = job.rows != nullptr ? job.rows + first : nullptr;
  for (std::int64_t p = 0; p < w.x.count(); ++p) pack_panel(w.x, x, rows, p);
  hidden_rows(c, *job.expert, w);
  const std::int64_t panel = w.x.kernels->rows;
  for (std::int64_t n = 0; n < job.outputs.cols; n += panel_cols) {
    const std::int64_t cols = std::min(panel_cols, job.outputs.cols - n);
    multiply_block(w.hidden, job.expert->down, n, cols, w.gate);
    for (std::int64_t p = 0; p < w.x.count(); ++p) {
      c.isa.unpack({.c = w.gate.sums + p * panel_cols * panel,
                    .c_stride = panel,
                    .y = job.outputs.row(first + p * panel) + n,
                    .y_stride = job.outputs.stride,
                    .m = w.x.rows_of(p),
                    .n = cols,
                    .add = false});
    }
  }
}

}  // namespace

std::size_t expert_worker_bytes(const MoeShape& s) {
  return static_cast<std::size_t>(task_floats(s, most_rows)) * 4;
}

void run_experts(const Context& c, const MoeShape& s, const model::MoeWeights& weights, ConstMat x,
                 const std::int32_t* ids, const float* slot_weights, MoeWorkspace& w, Mat residual) {
  const std::vector<ExpertJob> jobs = expert_jobs(s, weights, x, ids, w);
  const std::int64_t rows = task_rows(x.rows * (s.k + 1), c.pool.size());
  std::vector<std::int64_t> starts;  // first task of each job
  std::int64_t tasks = 0;
  for (const ExpertJob& job : jobs) {
    starts.push_back(tasks);
    tasks += ceil_div(job.hidden.rows, rows);
  }
  c.pool.run(tasks, [&](std::int64_t task, int worker) {
    const auto index = static_cast<std::size_t>(std::ranges::upper_bound(starts, task) - starts.begin() - 1);
    const ExpertJob& job = jobs[index];
    const std::int64_t first = (task - starts[index]) * rows;
    float* memory = c.scratch.floats(worker, task_floats(s, rows));
    run_task(c, job, first, lay_out(c, job, std::min(rows, job.hidden.rows - first), rows, memory));
  });
  combine_experts(c, s, weights, x, slot_weights, w, residual);
}

}  // namespace aima::device::cpu
