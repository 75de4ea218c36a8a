#include "device/cpu/ops/panels.h"

#include <algorithm>
#include <vector>

#include "base/numbers.h"

namespace aima::device::cpu {
namespace {

using base::ceil_div;

/// Rows that are packed at a time, and rows that share one block of weights: multiples of every panel.
constexpr std::int64_t packed_rows = 1024;
constexpr std::int64_t block_rows = 512;
constexpr std::int64_t most_panel_rows = 32;
constexpr std::int64_t most_k_step = 32;
/// Bytes of panel_cols x k_block packed weights, the same for every table.
constexpr std::int64_t weights_bytes = panel_cols * 1024;

void store_result(const Context& c, const Panels& panels, const float* sums, const Target& target,
                  std::int64_t m, std::int64_t n, std::int64_t cols) {
  const std::int64_t rows = panels.kernels->rows;
  for (std::int64_t p = 0; p < panels.count(); ++p) {
    c.isa.unpack({.c = sums + p * panel_cols * rows,
                  .c_stride = rows,
                  .y = target.y.row(m + p * rows) + n,
                  .y_stride = target.y.stride,
                  .m = panels.rows_of(p),
                  .n = cols,
                  .add = target.add});
  }
}

/// Rows m .. of every target; the same rows of x are packed.
void multiply_rows(const Context& c, const Panels& panels, std::int64_t m, std::span<const Target> targets) {
  std::vector<std::int64_t> starts;  // first task of each target
  std::int64_t tasks = 0;
  const std::int64_t row_blocks = ceil_div(panels.rows, block_rows);
  for (const Target& target : targets) {
    starts.push_back(tasks);
    tasks += row_blocks * ceil_div(target.y.cols, panel_cols);
  }
  c.pool.run(tasks, [&](std::int64_t task, int worker) {
    const auto index = static_cast<std::size_t>(std::ranges::upper_bound(starts, task) - starts.begin() - 1);
    const Target& target = targets[index];
    const std::int64_t local = task - starts[index];
    const std::int64_t first = local % row_blocks * block_rows;
    const std::int64_t n = local / row_blocks * panel_cols;
    const std::int64_t cols = std::min(panel_cols, target.y.cols - n);
    Panels part = panels;
    part.data = panels.panel(first / panels.kernels->rows);
    part.rows = std::min(block_rows, panels.rows - first);
    float* memory = c.scratch.floats(worker, weights_floats() + sums_floats(block_rows));
    const BlockScratch scratch{.weights = memory, .sums = memory + weights_floats()};
    multiply_block(part, target.w, n, cols, scratch);
    store_result(c, part, scratch.sums, target, m + first, n, cols);
  });
}

}  // namespace

std::int64_t weights_floats() { return weights_bytes / 4; }

std::int64_t Panels::rows_of(std::int64_t index) const {
  return std::min(kernels->rows, rows - index * kernels->rows);
}

const PanelKernels& panel_kernels(const Context& c, model::DType dtype) {
  return c.rounds() && dtype == model::DType::bf16 ? c.isa.rounded_panels : c.isa.panels;
}

void pack_panel(const Panels& panels, ConstMat x, const std::int32_t* rows, std::int64_t index) {
  const std::int64_t first = index * panels.kernels->rows;
  panels.kernels->pack_rows({.panel = panels.panel(index),
                             .x = rows != nullptr ? x.data : x.row(first),
                             .x_stride = x.stride,
                             .x_rows = rows != nullptr ? rows + first : nullptr,
                             .m = panels.rows_of(index),
                             .k = panels.k});
}

void multiply_block(const Panels& panels, const model::Matrix& w, std::int64_t n, std::int64_t cols,
                    const BlockScratch& scratch) {
  const PanelKernels& kernels = *panels.kernels;
  const bool bf16 = w.dtype == model::DType::bf16;
  const auto pack = bf16 ? kernels.pack_bf16 : kernels.pack_f32;
  for (std::int64_t k = 0; k < panels.k; k += kernels.k_block) {
    const std::int64_t count = std::min(kernels.k_block, panels.k - k);
    pack(scratch.weights, w.row(n) + k * (bf16 ? 2 : 4), w.cols, cols, count);
    for (std::int64_t p = 0; p < panels.count(); ++p) {
      kernels.multiply({.panel = panels.panel(p) + k * kernels.rows * kernels.element,
                        .w = scratch.weights,
                        .c = scratch.sums + p * panel_cols * kernels.rows,
                        .m = panels.rows_of(p),
                        .n = cols,
                        .k = ceil_div(count, kernels.k_step) * kernels.k_step,
                        .accumulate = k > 0});
    }
  }
}

void panel_products(const Context& c, ConstMat x, std::span<const Target> targets) {
  const bool bf16 =
      std::ranges::all_of(targets, [](const Target& t) { return t.w.dtype == model::DType::bf16; });
  Panels panels{.kernels = &panel_kernels(c, bf16 ? model::DType::bf16 : model::DType::f32), .k = x.cols};
  for (std::int64_t m = 0; m < x.rows; m += packed_rows) {
    panels.rows = std::min(packed_rows, x.rows - m);
    panels.data = c.scratch.shared(panels.count() * panels.bytes());
    const ConstMat rows{x.row(m), panels.rows, x.cols, x.stride};
    c.pool.run(panels.count(), [&](std::int64_t p, int) { pack_panel(panels, rows, nullptr, p); });
    multiply_rows(c, panels, m, targets);
  }
}

std::size_t panel_shared_bytes(std::int64_t rows, std::int64_t k) {
  const std::int64_t most = ceil_div(std::min(rows, packed_rows), most_panel_rows) * most_panel_rows;
  return static_cast<std::size_t>(most * (k + most_k_step) * 4);
}

std::size_t panel_worker_bytes(std::int64_t rows) {
  const std::int64_t most = ceil_div(std::min(rows, block_rows), most_panel_rows) * most_panel_rows;
  return static_cast<std::size_t>((weights_floats() + sums_floats(most)) * 4);
}

}  // namespace aima::device::cpu
