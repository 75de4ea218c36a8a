/// Products of many rows: against references in double, and the same bits for a row in any company.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "device/cpu/ops/gemm.h"
#include "device/cpu/ops/moe.h"
#include "device/cpu/ops/panels.h"
#include "support.h"

using namespace aima;
using namespace aima::device::cpu;
using test::Random;

namespace {

std::vector<float> rounded(std::vector<float> values) {
  for (float& value : values) value = base::round_to_bf16(value);
  return values;
}

/// Weights at an odd address; `values` are exact in bf16.
struct Weights {
  Weights(std::int64_t rows, std::int64_t cols, std::vector<float> from, model::DType dtype)
      : values(std::move(from)), bytes(1, '\0') {
    for (const float value : values) {
      const std::uint16_t half = base::bf16_from_float(value);
      const bool bf16 = dtype == model::DType::bf16;
      bytes.append(bf16 ? reinterpret_cast<const char*>(&half) : reinterpret_cast<const char*>(&value),
                   bf16 ? 2 : 4);
    }
    matrix = {dtype, reinterpret_cast<const std::byte*>(bytes.data()) + 1, rows, cols};
  }
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  std::vector<float> values;
  std::string bytes;
  model::Matrix matrix;
};

struct Case {
  Math math;
  model::DType dtype;
};
const Case cases[] = {
    {Math::f32, model::DType::f32}, {Math::f32, model::DType::bf16}, {Math::bf16, model::DType::bf16}};

/// The largest |y − x·wᵀ − base| against the sum of the terms' sizes.
double worst_error(const std::vector<float>& x, const Weights& w, const std::vector<float>& y, float base) {
  const std::int64_t k = w.matrix.cols;
  double worst = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i) / w.matrix.rows;
    const auto col = static_cast<std::int64_t>(i) % w.matrix.rows;
    double sum = base;
    double size = std::abs(base);
    for (std::int64_t l = 0; l < k; ++l) {
      const double term = static_cast<double>(x[row * k + l]) * w.values[col * k + l];
      sum += term;
      size += std::abs(term);
    }
    worst = std::max(worst, std::abs(y[i] - sum) / size);
  }
  return worst;
}

}  // namespace

TEST_CASE("products of panels are x·wᵀ, each row the same in any company and at any number of threads") {
  Random random(21);
  for (const Isa* isa : usable_isas()) {
    for (const auto [math, dtype] : cases) {
      for (const std::int64_t k : {1, 2, 31, 33, 257, 600}) {
        for (const std::int64_t rows : {1, 9, 16, 17, 71}) {
          CAPTURE(std::string(isa->name));
          CAPTURE(k);
          CAPTURE(rows);
          const std::vector<float> x = rounded(random.normals(rows * k));
          const Weights wide(125, k, rounded(random.normals(125 * k)), dtype);
          const Weights narrow(1, k, rounded(random.normals(k)), dtype);
          const auto run = [&](int threads, std::int64_t first, std::int64_t count, std::vector<float>& a,
                               std::vector<float>& b) {
            const test::OpContext op(*isa, math, threads);
            a.assign(static_cast<std::size_t>(count * 125), 0.5F);
            b.assign(static_cast<std::size_t>(count), 0.5F);
            const Target targets[] = {{.w = wide.matrix, .y = packed(a.data(), count, 125)},
                                      {.w = narrow.matrix, .y = packed(b.data(), count, 1), .add = true}};
            panel_products(op.context, {x.data() + first * k, count, k, k}, targets);
          };
          std::vector<float> a, b, a_alone, b_alone;
          run(1, 0, rows, a, b);
          REQUIRE(worst_error(x, wide, a, 0) < 2e-6);
          REQUIRE(worst_error(x, narrow, b, 0.5F) < 2e-6);
          run(3, rows - 1, 1, a_alone, b_alone);
          REQUIRE(std::equal(a_alone.begin(), a_alone.end(), a.end() - 125));
          REQUIRE(b_alone[0] == b.back());
        }
      }
    }
  }
}

TEST_CASE("more rows than are packed at a time") {
  Random random(22);
  constexpr std::int64_t rows = 1100, k = 40;
  for (const Isa* isa : usable_isas()) {
    for (const auto [math, dtype] : cases) {
      const std::vector<float> x = rounded(random.normals(rows * k));
      const Weights w(100, k, rounded(random.normals(100 * k)), dtype);
      const test::OpContext op(*isa, math, 3);
      std::vector<float> y(rows * 100);
      panel_products(op.context, {x.data(), rows, k, k},
                     std::array{Target{.w = w.matrix, .y = packed(y.data(), rows, 100)}});
      CHECK(worst_error(x, w, y, 0) < 2e-6);
    }
  }
}

TEST_CASE("experts of a prefill pass: as those of a decode step, and a token's bits its own") {
  Random random(23);
  constexpr std::int64_t tokens = 150, width = 70, experts = 5, k = 2;
  const MoeShape shape{.width = width, .experts = experts, .k = k, .expert_width = 101, .shared_width = 33};
  std::vector<std::unique_ptr<Weights>> storage;
  const auto matrix = [&](std::int64_t rows, std::int64_t cols, model::DType dtype) {
    const float scale = 1 / std::sqrt(static_cast<float>(cols));
    storage.push_back(
        std::make_unique<Weights>(rows, cols, rounded(random.normals(rows * cols, scale)), dtype));
    return storage.back()->matrix;
  };
  const std::vector<float> x = rounded(random.normals(tokens * width));
  const std::vector<float> before = random.normals(tokens * width);
  std::vector<std::int32_t> ids;
  std::vector<float> slot_weights;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto first = static_cast<std::int32_t>(random.below(experts - 1));
    ids.insert(ids.end(), {first, t % 5 == 0 ? 4 : first + 1});
    slot_weights.insert(slot_weights.end(), {random.uniform(0.1F, 0.9F), random.uniform(0.1F, 0.9F)});
  }
  for (const auto [math, dtype] : cases) {
    model::MoeWeights weights;
    for (std::int64_t e = 0; e <= experts; ++e) {
      const std::int64_t hidden = e < experts ? shape.expert_width : shape.shared_width;
      const model::Expert expert{.gate = matrix(hidden, width, dtype),
                                 .up = matrix(hidden, width, dtype),
                                 .down = matrix(width, hidden, dtype)};
      if (e < experts) weights.experts.push_back(expert);
      weights.shared = expert;
    }
    weights.shared_gate = matrix(1, width, dtype);
    for (const Isa* isa : usable_isas()) {
      CAPTURE(std::string(isa->name));
      const auto run = [&, math = math](decltype(&run_experts) function, int threads, std::int64_t first,
                                        std::int64_t count) {
        const test::OpContext op(*isa, math, threads);
        MoeWorkspace w = make_moe_workspace(shape, count);
        std::vector<float> out(before.begin() + first * width, before.begin() + (first + count) * width);
        function(op.context, shape, weights, {x.data() + first * width, count, width, width},
                 ids.data() + first * k, slot_weights.data() + first * k, w,
                 packed(out.data(), count, width));
        return out;
      };
      const std::vector<float> whole = run(run_experts, 1, 0, tokens);
      const std::vector<float> steps = run(step_experts, 2, 0, tokens);
      std::vector<float> differences;
      differences.reserve(whole.size());
      for (std::size_t i = 0; i < whole.size(); ++i) differences.push_back(std::abs(whole[i] - steps[i]));
      std::ranges::sort(differences);
      CHECK(differences[differences.size() / 2] < 5e-6F);
      // Under bf16 a hidden value on the edge may round to the other side, here and there.
      CHECK(differences.back() < (math == Math::f32 ? 2e-5F : 2e-2F));
      const std::vector<float> part = run(run_experts, 3, 64, 86);
      CHECK(std::equal(part.begin(), part.end(), whole.begin() + 64 * width));
      const std::vector<float> last = run(run_experts, 2, tokens - 1, 1);
      CHECK(std::equal(last.begin(), last.end(), whole.end() - width));
    }
  }
}
