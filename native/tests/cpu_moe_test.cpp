/// Router and experts against plain references in double.
#include <doctest/doctest.h>

#include <cmath>

#include "device/cpu/ops/moe.h"
#include "support.h"

using namespace aima;
using namespace aima::device::cpu;
using test::Random;

namespace {

double silu(double x) { return x / (1 + std::exp(-x)); }

/// Matrices over vectors that stay alive with it.
struct Pool {
  std::vector<std::unique_ptr<std::vector<float>>> storage;
  Random random{11};

  model::Matrix matrix(std::int64_t rows, std::int64_t cols) {
    storage.push_back(std::make_unique<std::vector<float>>(
        random.normals(rows * cols, 1 / std::sqrt(static_cast<float>(cols)))));
    return {model::DType::f32, reinterpret_cast<const std::byte*>(storage.back()->data()), rows, cols};
  }
  model::Expert expert(std::int64_t width, std::int64_t hidden) {
    return {.gate = matrix(width, hidden), .up = matrix(width, hidden), .down = matrix(hidden, width)};
  }
};

double dot(const model::Matrix& m, std::int64_t row, const double* x) {
  double sum = 0;
  for (std::int64_t i = 0; i < m.cols; ++i) sum += base::load_unaligned<float>(m.row(row) + 4 * i) * x[i];
  return sum;
}

std::vector<double> run(const model::Expert& e, const std::vector<double>& x) {
  std::vector<double> hidden;
  for (std::int64_t i = 0; i < e.gate.rows; ++i)
    hidden.push_back(silu(dot(e.gate, i, x.data())) * dot(e.up, i, x.data()));
  std::vector<double> out;
  for (std::int64_t i = 0; i < e.down.rows; ++i) out.push_back(dot(e.down, i, hidden.data()));
  return out;
}

}  // namespace

TEST_CASE("the router takes the greatest probabilities, the lowest index on a tie, and renormalises") {
  for (const Isa* isa : test::usable_isas()) {
    test::OpContext op(*isa);
    std::vector<float> logits = {1, 3, 2, 3, 0, -5, 3, 1,  //
                                 0, 0, 0, 0, 0, 0,  0, 0};
    std::vector<std::int32_t> ids(8);
    std::vector<float> weights(8);
    route_top_k(op.context, packed(logits.data(), 2, 8), 4, ids.data(), weights.data());
    CHECK(ids == std::vector<std::int32_t>{1, 3, 6, 2, 0, 1, 2, 3});
    const double sum = 3 * std::exp(3.0) + std::exp(2.0);
    CHECK(weights[0] == doctest::Approx(std::exp(3.0) / sum));
    CHECK(weights[2] == weights[0]);
    CHECK(weights[3] == doctest::Approx(std::exp(2.0) / sum));
    CHECK(weights[4] == 0.25F);
  }
}

TEST_CASE("experts: weighted routed ones, the gated shared one, the residual") {
  const MoeShape shape{.width = 44, .experts = 9, .k = 3, .expert_width = 22, .shared_width = 26};
  Pool pool;
  model::MoeWeights weights;
  for (int e = 0; e < 9; ++e) weights.experts.push_back(pool.expert(22, 44));
  weights.shared = pool.expert(26, 44);
  weights.shared_gate = pool.matrix(1, 44);
  constexpr std::int64_t tokens = 77;
  const std::vector<float> x = pool.random.normals(tokens * 44);
  const std::vector<float> before = pool.random.normals(tokens * 44);
  std::vector<std::int32_t> ids;
  std::vector<float> slot_weights;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto first = static_cast<std::int32_t>(pool.random.below(7));
    for (const std::int32_t id : {first + 2, first, first + 1}) ids.push_back(t % 3 == 0 ? id - first : id);
    for (int slot = 0; slot < 3; ++slot) slot_weights.push_back(pool.random.uniform(0.1F, 0.6F));
  }
  for (const Isa* isa : test::usable_isas()) {
    for (const int threads : {1, 3}) {
      test::OpContext op(*isa, Math::f32, threads);
      MoeWorkspace w = make_moe_workspace(shape, tokens);
      std::vector<float> out = before;
      run_experts(op.context, shape, weights, {x.data(), tokens, 44, 44}, ids.data(), slot_weights.data(), w,
                  packed(out.data(), tokens, 44));
      for (std::int64_t t = 0; t < tokens; ++t) {
        const std::vector<double> row(x.begin() + t * 44, x.begin() + (t + 1) * 44);
        std::vector<double> expected(before.begin() + t * 44, before.begin() + (t + 1) * 44);
        const double gate = 1 / (1 + std::exp(-dot(weights.shared_gate, 0, row.data())));
        const auto add = [&](const std::vector<double>& y, double factor) {
          for (std::size_t i = 0; i < 44; ++i) expected[i] += factor * y[i];
        };
        for (std::int64_t s = t * 3; s < t * 3 + 3; ++s) {
          add(run(weights.experts[static_cast<std::size_t>(ids[static_cast<std::size_t>(s)])], row),
              slot_weights[static_cast<std::size_t>(s)]);
        }
        add(run(weights.shared, row), gate);
        for (std::size_t i = 0; i < 44; ++i)
          REQUIRE(out[static_cast<std::size_t>(t) * 44 + i] == doctest::Approx(expected[i]).epsilon(1e-4));
      }
    }
  }
}
