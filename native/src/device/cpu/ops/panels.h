/// Matrix products of many rows, for prefill: x packed into panels, weights block by block (`PanelKernels`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/cpu/ops/context.h"
#include "model/weights.h"

namespace aima::device::cpu {

/// Where x·wᵀ goes.
struct Target {
  model::Matrix w;  ///< [y.cols, x.cols]
  Mat y;
  bool add = false;  ///< to what y holds, instead of replacing it
};

/// y = x·wᵀ for every target, in one loop over blocks of columns. Each element's sum runs over k in ascending
/// order whatever the blocks, the rows of the call or the threads; `gemm` sums in another order. Under bf16,
/// x holds bf16 values.
void panel_products(const Context& c, ConstMat x, std::span<const Target> targets);

/// Bytes of `Scratch` that `panel_products` takes for sums of up to `k` terms: shared, and of each worker.
std::size_t panel_shared_bytes(std::int64_t rows, std::int64_t k);
std::size_t panel_worker_bytes(std::int64_t rows);

/// Rows packed for one product after another.
struct Panels {
  const PanelKernels* kernels = nullptr;
  std::byte* data = nullptr;  ///< a whole number of panels
  std::int64_t rows = 0;      ///< that count
  std::int64_t k = 0;

  std::int64_t count() const { return (rows + kernels->rows - 1) / kernels->rows; }
  std::int64_t padded_k() const { return (k + kernels->k_step - 1) / kernels->k_step * kernels->k_step; }
  std::int64_t bytes() const { return padded_k() * kernels->rows * kernels->element; }  ///< of one panel
  std::byte* panel(std::int64_t index) const { return data + index * bytes(); }
  /// Rows of panel `index` that count.
  std::int64_t rows_of(std::int64_t index) const;
};

/// The kernels for weights of `dtype` under the context's math.
const PanelKernels& panel_kernels(const Context& c, model::DType dtype);

/// Packs rows `rows[first ..]` (or first ..) of x into panel `index`, whose row 0 is row index ·
/// kernels->rows.
void pack_panel(const Panels& panels, ConstMat x, const std::int32_t* rows, std::int64_t index);

/// One worker's memory for blocks of weights and of sums.
struct BlockScratch {
  void* weights = nullptr;  ///< panel_cols x k_block
  float* sums = nullptr;    ///< [panels][panel_cols][rows of a panel]
};
std::int64_t weights_floats();
inline std::int64_t sums_floats(std::int64_t rows) { return rows * panel_cols; }

/// sums = the panels' rows times rows n .. n+cols-1 of w; cols <= panel_cols.
void multiply_block(const Panels& panels, const model::Matrix& w, std::int64_t n, std::int64_t cols,
                    const BlockScratch& scratch);

}  // namespace aima::device::cpu
