/// What every operation gets: the inner loops, the threads, the rounding rule. Operations are free functions
/// over plain rows, so that a single one can be checked against a reference or against another device's
/// kernel.
#pragma once

#include <cstdint>

#include "base/math_mode.h"
#include "base/threads.h"
#include "device/cpu/isa.h"
#include "device/cpu/memory.h"

namespace aima::device::cpu {

struct Context {
  const Isa& isa;
  base::ThreadPool& pool;
  Scratch& scratch;
  Math math = Math::bf16;

  bool rounds() const { return math == Math::bf16; }
};

/// Rows of floats: `cols` used, `stride` apart (both in elements).
struct ConstMat {
  const float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  const float* row(std::int64_t i) const { return data + i * stride; }
};

struct Mat {
  float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  float* row(std::int64_t i) const { return data + i * stride; }
  operator ConstMat() const { return {data, rows, cols, stride}; }  // NOLINT(google-explicit-constructor)
};

/// Rows without a gap between them.
inline Mat packed(float* data, std::int64_t rows, std::int64_t cols) { return {data, rows, cols, cols}; }

/// Runs f(first, last, worker) over 0..count in pieces of `grain`.
template <typename F>
void for_ranges(const Context& c, std::int64_t count, std::int64_t grain, const F& f) {
  c.pool.run((count + grain - 1) / grain, [&](std::int64_t task, int worker) {
    const std::int64_t first = task * grain;
    f(first, first + grain < count ? first + grain : count, worker);
  });
}

}  // namespace aima::device::cpu
