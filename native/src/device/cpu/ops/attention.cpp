#include "device/cpu/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/numbers.h"
#include "device/device.h"

namespace aima::device::cpu {
namespace {

constexpr std::int64_t block = block_tokens;
constexpr std::int64_t grain = 16;
constexpr std::int64_t tile_rows = 64;

void store_row(const Context& c, const KvBlocks& kv, std::byte* rows, std::int64_t slot,
               const float* values) {
  std::byte* out = rows + static_cast<std::size_t>(slot * kv.head_dim) * kv.element();
  if (kv.dtype == model::DType::bf16) {
    c.isa.narrow_bf16(reinterpret_cast<std::uint16_t*>(out), values, kv.head_dim);
  } else {
    std::memcpy(out, values, static_cast<std::size_t>(kv.head_dim) * 4);
  }
}

/// Rows of one KV head that share keys: row r is query head (r mod group) of token r / group.
struct Tile {
  const Context& c;
  ConstMat q;
  const KvBlocks& kv;
  Mat o;
  std::int64_t start;  ///< position of token 0
  std::int64_t group;  ///< query heads per KV head
  std::int64_t head;   ///< KV head
  std::int64_t first;  ///< first row
  std::int64_t rows;

  std::int64_t position(std::int64_t r) const { return start + (first + r) / group; }
  /// Index of row r among the rows of head_dim of q or o.
  std::int64_t index(std::int64_t r) const {
    return (first + r) / group * (kv.kv_heads * group) + head * group + (first + r) % group;
  }
};

struct TileScratch {
  TileScratch(float* base, std::int64_t head_dim)
      : scores(base), sums(base + tile_rows * block), maxima(sums + tile_rows), acc(maxima + tile_rows) {
    std::fill_n(sums, tile_rows, 0.0F);
    std::fill_n(maxima, tile_rows, -std::numeric_limits<float>::infinity());
    std::fill_n(acc, tile_rows * head_dim, 0.0F);
  }
  static std::int64_t floats(std::int64_t head_dim) { return tile_rows * (block + 2 + head_dim); }

  float* scores;  ///< [rows, 64]
  float* sums;
  float* maxima;  ///< of the scaled scores so far
  float* acc;     ///< [rows, head_dim]
};

/// Keys of block `b` that row r may see: 64 for all but its own block.
std::int64_t visible(const Tile& t, std::int64_t r, std::int64_t b) {
  return std::min(block, t.position(r) - b * block + 1);
}

/// Turns a row of scores into probabilities against the running maximum, and rescales what was summed before.
void online_softmax(const Tile& t, const TileScratch& w, std::int64_t r, std::int64_t keys, float scale) {
  const Isa& isa = t.c.isa;
  float* scores = w.scores + r * block;
  const float maximum = std::max(w.maxima[r], isa.max(scores, keys) * scale);
  if (maximum != w.maxima[r]) {
    float correction = w.maxima[r] - maximum;
    isa.exp(&correction, &correction, 1);
    w.sums[r] *= correction;
    isa.scale(w.acc + r * t.kv.head_dim, correction, t.kv.head_dim);
    w.maxima[r] = maximum;
  }
  w.sums[r] += isa.exp_sum(scores, keys, scale, maximum);
  if (t.c.rounds()) isa.round_bf16(scores, keys);
}

/// acc[from .. to) += probabilities · V over `keys` keys
void add_values(const Tile& t, const TileScratch& w, std::int64_t b, std::int64_t from, std::int64_t to,
                std::int64_t keys) {
  const GemmNn g{.x = w.scores + from * block,
                 .x_row = block,
                 .x_col = 1,
                 .w = t.kv.values(b, t.head),
                 .w_stride = t.kv.head_dim,
                 .y = w.acc + from * t.kv.head_dim,
                 .y_stride = t.kv.head_dim,
                 .m = to - from,
                 .n = t.kv.head_dim,
                 .k = keys,
                 .accumulate = true};
  (t.kv.dtype == model::DType::bf16 ? t.c.isa.gemm_nn_bf16 : t.c.isa.gemm_nn_f32)(g);
}

void attend_block(const Tile& t, const TileScratch& w, std::int64_t b, float scale) {
  std::int64_t from = 0;  // positions ascend with r: rows before `from` see nothing of this block
  while (visible(t, from, b) <= 0) ++from;
  std::int32_t rows[tile_rows];
  for (std::int64_t r = from; r < t.rows; ++r) rows[r - from] = static_cast<std::int32_t>(t.index(r));
  const GemmNt g{.x = t.q.data,
                 .x_stride = t.kv.head_dim,
                 .x_rows = rows,
                 .w = t.kv.keys(b, t.head),
                 .w_stride = t.kv.head_dim,
                 .y = w.scores + from * block,
                 .y_stride = block,
                 .m = t.rows - from,
                 .n = visible(t, t.rows - 1, b),
                 .k = t.kv.head_dim};
  (t.kv.dtype == model::DType::bf16 ? t.c.isa.gemm_nt_bf16 : t.c.isa.gemm_nt_f32)(g);
  for (std::int64_t r = from; r < t.rows; ++r) online_softmax(t, w, r, visible(t, r, b), scale);
  // A row sums over exactly the keys that it sees, so its bits do not depend on the keys behind it.
  std::int64_t whole = t.rows;
  while (whole > from && visible(t, whole - 1, b) == block) --whole;
  for (std::int64_t r = from; r < whole; ++r) add_values(t, w, b, r, r + 1, visible(t, r, b));
  if (whole < t.rows) add_values(t, w, b, whole, t.rows, block);
}

void attend(const Tile& t, int worker) {
  const std::int64_t dim = t.kv.head_dim;
  const TileScratch w(t.c.scratch.floats(worker, TileScratch::floats(dim)), dim);
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  const std::int64_t last = t.position(t.rows - 1) / block;
  // A tile far into a long sequence takes a second: the flag is looked at on the way.
  for (std::int64_t b = 0; b <= last && !t.c.pool.stopping(); ++b) attend_block(t, w, b, scale);
  for (std::int64_t r = 0; r < t.rows; ++r) {
    float* out = t.o.data + t.index(r) * dim;
    std::copy_n(w.acc + r * dim, dim, out);
    t.c.isa.scale(out, 1.0F / w.sums[r], dim);
  }
}

}  // namespace

std::byte* KvBlocks::at(std::int64_t block_index, std::int64_t head, std::size_t offset) const {
  const std::size_t bytes = static_cast<std::size_t>(block * head_dim) * element();
  return blocks[static_cast<std::size_t>(block_index)] + offset + static_cast<std::size_t>(head) * bytes;
}

void rope_tables(const Context& c, double theta, std::int64_t rotary, std::int64_t start, Mat cos, Mat sin) {
  for_ranges(c, cos.rows, grain, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t j = 0; j < rotary / 2; ++j) {
      const float exponent = static_cast<float>(2 * j) / static_cast<float>(rotary);
      const float frequency = 1.0F / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
      for (std::int64_t t = first; t < last; ++t) {
        const double angle = static_cast<float>(start + t) * frequency;  // rounded to f32 on purpose
        cos.row(t)[j] = static_cast<float>(std::cos(angle));
        sin.row(t)[j] = static_cast<float>(std::sin(angle));
      }
    }
  });
}

void attention_heads(const Context& c, const HeadInputs& in, std::int64_t start, const KvBlocks& kv, Mat q) {
  const std::int64_t dim = kv.head_dim;
  const auto norm_and_turn = [&](const float* x, const float* gain, std::int64_t t, float* out) {
    c.isa.rms_norm(out, x, gain, dim, in.eps);
    c.isa.rope(out, in.cos.row(t), in.sin.row(t), in.cos.cols);
  };
  for_ranges(c, q.rows, grain, [&](std::int64_t first, std::int64_t last, int worker) {
    float* key = c.scratch.floats(worker, dim);
    for (std::int64_t t = first; t < last; ++t) {
      for (std::int64_t h = 0; h < q.cols / dim; ++h) {
        norm_and_turn(in.qg.row(t) + 2 * h * dim, in.q_norm, t, q.row(t) + h * dim);
      }
      if (c.rounds()) c.isa.round_bf16(q.row(t), q.cols);
      const std::int64_t b = (start + t) / block;
      const std::int64_t slot = (start + t) % block;
      for (std::int64_t h = 0; h < kv.kv_heads; ++h) {
        norm_and_turn(in.k.row(t) + h * dim, in.k_norm, t, key);
        store_row(c, kv, kv.keys(b, h), slot, key);
        store_row(c, kv, kv.values(b, h), slot, in.v.row(t) + h * dim);
      }
    }
  });
}

void attention(const Context& c, ConstMat q, std::int64_t start, const KvBlocks& kv, Mat o) {
  const std::int64_t group = q.cols / kv.head_dim / kv.kv_heads;
  const std::int64_t all_rows = q.rows * group;
  // In decode there are few rows: share out a KV head's query heads, so that every thread has some.
  const std::int64_t shares = base::ceil_div(c.pool.size(), kv.kv_heads);
  const std::int64_t rows = q.rows == 1 ? base::ceil_div(group, std::min(shares, group)) : tile_rows;
  const std::int64_t step = std::min(rows, tile_rows);
  const std::int64_t tiles = base::ceil_div(all_rows, step);
  c.pool.run(tiles * kv.kv_heads, [&](std::int64_t task, int worker) {
    // The last tiles see the most keys: they go first.
    const std::int64_t first = (tiles - 1 - task / kv.kv_heads) * step;
    attend({.c = c,
            .q = q,
            .kv = kv,
            .o = o,
            .start = start,
            .group = group,
            .head = task % kv.kv_heads,
            .first = first,
            .rows = std::min(step, all_rows - first)},
           worker);
  });
}

void output_gate(const Context& c, ConstMat qg, std::int64_t head_dim, Mat o) {
  for_ranges(c, o.rows, grain, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t t = first; t < last; ++t) {
      for (std::int64_t h = 0; h < o.cols / head_dim; ++h) {
        c.isa.sigmoid_mul(o.row(t) + h * head_dim, qg.row(t) + (2 * h + 1) * head_dim, head_dim);
      }
      if (c.rounds()) c.isa.round_bf16(o.row(t), o.cols);
    }
  });
}

}  // namespace aima::device::cpu
