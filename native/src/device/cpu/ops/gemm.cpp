#include "device/cpu/ops/gemm.h"

#include <algorithm>
#include <vector>

#include "base/numbers.h"

namespace aima::device::cpu {

using base::ceil_div;

GemmTile gemm_tile(std::int64_t k) {
  constexpr std::int64_t weights = 128 * 1024;
  const std::int64_t cols = std::clamp<std::int64_t>(weights / std::max<std::int64_t>(k, 1), 16, 512);
  return {48, cols / 4 * 4};
}

void gemm_block(const Context& c, const Product& p, std::int64_t m, std::int64_t n, GemmTile tile) {
  const GemmNt g{.x = p.rows != nullptr ? p.x.data : p.x.row(m),
                 .x_stride = p.x.stride,
                 .x_rows = p.rows != nullptr ? p.rows + m : nullptr,
                 .w = p.w.row(n),
                 .w_stride = p.w.cols,
                 .y = p.y.row(m) + n,
                 .y_stride = p.y.stride,
                 .m = std::min(tile.rows, p.y.rows - m),
                 .n = std::min(tile.cols, p.y.cols - n),
                 .k = p.w.cols};
  (p.w.dtype == model::DType::bf16 ? c.isa.gemm_nt_bf16 : c.isa.gemm_nt_f32)(g);
}

void gemm(const Context& c, std::span<const Product> products) {
  std::vector<std::int64_t> starts;  // first task of each product
  std::int64_t tasks = 0;
  for (const Product& p : products) {
    starts.push_back(tasks);
    const GemmTile tile = gemm_tile(p.w.cols);
    tasks += ceil_div(p.y.rows, tile.rows) * ceil_div(p.y.cols, tile.cols);
  }
  c.pool.run(tasks, [&](std::int64_t task, int) {
    const auto after = std::ranges::upper_bound(starts, task);
    const auto index = static_cast<std::size_t>(after - starts.begin() - 1);
    const Product& p = products[index];
    const GemmTile tile = gemm_tile(p.w.cols);
    // Neighbouring tasks share weights, the larger operand, so each weight is read from memory once.
    const std::int64_t row_tiles = ceil_div(p.y.rows, tile.rows);
    const std::int64_t local = task - starts[index];
    gemm_block(c, p, local % row_tiles * tile.rows, local / row_tiles * tile.cols, tile);
  });
}

}  // namespace aima::device::cpu
