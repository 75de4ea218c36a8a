/// Matrix products with weights as they lie in the checkpoint, y = x·Wᵀ.
#pragma once

#include <cstdint>
#include <span>

#include "device/cpu/ops/context.h"
#include "model/weights.h"

namespace aima::device::cpu {

/// y[m] = x[rows ? rows[m] : m] · wᵀ for m < y.rows. Sums in f32; nothing is rounded here.
struct Product {
  ConstMat x;
  model::Matrix w;  ///< [y.cols, x.cols]
  Mat y;
  const std::int32_t* rows = nullptr;
};

/// Runs all products as one loop over tiles. Each element's sum runs over k in one order whatever the tiling.
void gemm(const Context& c, std::span<const Product> products);

inline void gemm(const Context& c, const Product& product) { gemm(c, std::span(&product, 1)); }

/// Rows and columns of y that one task computes, for K-long sums: the weights of a tile fit the second-level
/// cache.
struct GemmTile {
  std::int64_t rows;
  std::int64_t cols;
};
GemmTile gemm_tile(std::int64_t k);

/// One tile on the calling thread: `rows` x `cols` of y from (m, n) on.
void gemm_block(const Context& c, const Product& p, std::int64_t m, std::int64_t n, GemmTile tile);

}  // namespace aima::device::cpu
