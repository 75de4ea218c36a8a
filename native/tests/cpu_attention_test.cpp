/// Attention with its cache, rotary embedding and gate against plain references in double.
#include <doctest/doctest.h>

#include <cmath>

#include "device/cpu/ops/attention.h"
#include "support.h"

using namespace aima;
using namespace aima::device::cpu;
using test::Random;

namespace {

constexpr std::int64_t heads = 6, kv_heads = 2, group = 3;

/// A cache of one layer with random keys and values for `tokens` tokens; what lies behind them is NaN.
struct Cache {
  Cache(std::int64_t tokens, std::int64_t dim, model::DType dtype, Random& random) {
    const std::size_t element = dtype == model::DType::bf16 ? 2 : 4;
    const std::size_t half = static_cast<std::size_t>(kv_heads * 64 * dim) * element;
    const std::int64_t blocks = (tokens + 63) / 64;
    memory.assign(static_cast<std::size_t>(blocks), std::vector<std::byte>(2 * half, std::byte{0xff}));
    for (auto& block : memory) pointers.push_back(block.data());
    kv = {.blocks = pointers,
          .key_offset = half,
          .value_offset = 0,
          .dtype = dtype,
          .kv_heads = kv_heads,
          .head_dim = dim};
    keys = random.normals(tokens * kv_heads * dim);
    values = random.normals(tokens * kv_heads * dim);
    for (std::vector<float>* x : {&keys, &values}) {
      for (float& value : *x) value = base::round_to_bf16(value);
    }
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t h = 0; h < kv_heads; ++h) {
        store(kv.keys(t / 64, h), t % 64, keys.data() + (t * kv_heads + h) * dim);
        store(kv.values(t / 64, h), t % 64, values.data() + (t * kv_heads + h) * dim);
      }
    }
  }

  void store(std::byte* rows, std::int64_t slot, const float* x) const {
    for (std::int64_t i = 0; i < kv.head_dim; ++i) {
      const std::uint16_t bits = base::bf16_from_float(x[i]);
      const std::int64_t at = slot * kv.head_dim + i;
      if (kv.element() == 2) {
        std::memcpy(rows + 2 * at, &bits, 2);
      } else {
        std::memcpy(rows + 4 * at, x + i, 4);
      }
    }
  }

  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> pointers;
  KvBlocks kv;
  std::vector<float> keys, values;
};

/// softmax(q·k / sqrt(dim))·v of one head of one token
std::vector<double> attend(const Cache& c, const float* q, std::int64_t position, std::int64_t kv_head) {
  const std::int64_t dim = c.kv.head_dim;
  std::vector<double> weights;
  double most = -1e300;
  for (std::int64_t t = 0; t <= position; ++t) {
    double score = 0;
    for (std::int64_t i = 0; i < dim; ++i)
      score += static_cast<double>(q[i]) * c.keys[(t * kv_heads + kv_head) * dim + i];
    weights.push_back(score / std::sqrt(static_cast<double>(dim)));
    most = std::max(most, weights.back());
  }
  double sum = 0;
  for (double& w : weights) sum += w = std::exp(w - most);
  std::vector<double> out(static_cast<std::size_t>(dim));
  for (std::int64_t t = 0; t <= position; ++t) {
    for (std::int64_t i = 0; i < dim; ++i)
      out[static_cast<std::size_t>(i)] +=
          weights[static_cast<std::size_t>(t)] / sum * c.values[(t * kv_heads + kv_head) * dim + i];
  }
  return out;
}

}  // namespace

TEST_CASE("attention over a cache, from any position") {
  for (const Isa* isa : test::usable_isas()) {
    for (const std::int64_t dim : {20, 256}) {
      for (const Math math : {Math::f32, Math::bf16}) {
        Random random(static_cast<std::uint32_t>(dim));
        const model::DType dtype = math == Math::f32 ? model::DType::f32 : model::DType::bf16;
        const Cache cache(200, dim, dtype, random);
        test::OpContext op(*isa, math);
        for (const auto& [start, tokens] : std::vector<std::pair<std::int64_t, std::int64_t>>{
                 {0, 1}, {0, 5}, {0, 64}, {0, 200}, {64, 136}, {130, 1}, {127, 1}, {128, 1}, {199, 1}}) {
          CAPTURE(start);
          CAPTURE(tokens);
          std::vector<float> q = random.normals(tokens * heads * dim);
          for (float& value : q) value = base::round_to_bf16(value);
          std::vector<float> o(q.size());
          attention(op.context, {q.data(), tokens, heads * dim, heads * dim}, start, cache.kv,
                    packed(o.data(), tokens, heads * dim));
          for (std::int64_t t = 0; t < tokens; t += tokens > 70 ? 13 : 1) {
            for (std::int64_t h = 0; h < heads; ++h) {
              const std::int64_t at = (t * heads + h) * dim;
              const std::vector<double> expected = attend(cache, q.data() + at, start + t, h / group);
              for (std::int64_t i = 0; i < dim; ++i) {
                REQUIRE(std::abs(o[at + i] - expected[static_cast<std::size_t>(i)]) <
                        (math == Math::f32 ? 5e-6 : 8e-3));
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a token's attention has the same bits in any pass and at any number of threads") {
  constexpr std::int64_t dim = 28, tokens = 150;
  for (const Isa* isa : test::usable_isas()) {
    for (const Math math : {Math::f32, Math::bf16}) {
      Random random(1);
      const Cache cache(tokens, dim, math == Math::f32 ? model::DType::f32 : model::DType::bf16, random);
      const std::vector<float> q = random.normals(tokens * heads * dim);
      std::vector<float> whole(q.size());
      test::OpContext op(*isa, math, 3);
      attention(op.context, {q.data(), tokens, heads * dim, heads * dim}, 0, cache.kv,
                packed(whole.data(), tokens, heads * dim));
      for (const int threads : {1, 2, 8}) {
        test::OpContext other(*isa, math, threads);
        for (const auto& [start, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
                 {64, 86}, {64, 64}, {149, 1}, {63, 1}, {10, 2}}) {
          std::vector<float> part(static_cast<std::size_t>(count * heads * dim));
          attention(other.context, {q.data() + start * heads * dim, count, heads * dim, heads * dim}, start,
                    cache.kv, packed(part.data(), count, heads * dim));
          REQUIRE(std::memcmp(part.data(), whole.data() + start * heads * dim, part.size() * 4) == 0);
        }
      }
    }
  }
}

TEST_CASE("rotary angles are f32 products, up to the last position") {
  test::OpContext op(isa_portable());
  constexpr std::int64_t rotary = 64, start = 262000, tokens = 144;
  std::vector<float> cos(tokens * 32);
  std::vector<float> sin(tokens * 32);
  rope_tables(op.context, 1e7, rotary, start, packed(cos.data(), tokens, 32), packed(sin.data(), tokens, 32));
  for (const std::int64_t t : {0L, 1L, 143L}) {
    for (std::int64_t j = 0; j < 32; ++j) {
      const double exact = static_cast<double>(start + t) * std::pow(1e7, -2.0 * static_cast<double>(j) / 64);
      // The frequency is rounded to f32 twice and the product once: three half units of the angle.
      const double slack = exact * 1.9e-7 + 1e-7;
      REQUIRE(std::abs(cos[t * 32 + j] - std::cos(exact)) < slack);
      REQUIRE(std::abs(sin[t * 32 + j] - std::sin(exact)) < slack);
    }
  }
  CHECK(cos[143 * 32] == static_cast<float>(std::cos(262143.0)));
}

TEST_CASE("heads: norm, then pairs (j, j + half) turn, the rest passes; keys and values go to the cache") {
  constexpr std::int64_t dim = 20, rotary = 10, tokens = 70, start = 64;
  for (const Isa* isa : test::usable_isas()) {
    for (const Math math : {Math::f32, Math::bf16}) {
      Random random(8);
      Cache cache(start + tokens, dim, math == Math::f32 ? model::DType::f32 : model::DType::bf16, random);
      test::OpContext op(*isa, math);
      const std::vector<float> qg = random.normals(tokens * 2 * heads * dim);
      const std::vector<float> k = random.normals(tokens * kv_heads * dim);
      const std::vector<float> v = random.normals(tokens * kv_heads * dim);
      const std::vector<float> gain = random.normals(dim, 0.2F, 1);
      std::vector<float> cos(tokens * rotary / 2);
      std::vector<float> sin(tokens * rotary / 2);
      rope_tables(op.context, 1e4, rotary, start, packed(cos.data(), tokens, rotary / 2),
                  packed(sin.data(), tokens, rotary / 2));
      std::vector<float> q(tokens * heads * dim);
      const HeadInputs inputs{.qg = {qg.data(), tokens, 2 * heads * dim, 2 * heads * dim},
                              .k = {k.data(), tokens, kv_heads * dim, kv_heads * dim},
                              .v = {v.data(), tokens, kv_heads * dim, kv_heads * dim},
                              .q_norm = gain.data(),
                              .k_norm = gain.data(),
                              .eps = 1e-6F,
                              .cos = {cos.data(), tokens, rotary / 2, rotary / 2},
                              .sin = {sin.data(), tokens, rotary / 2, rotary / 2}};
      attention_heads(op.context, inputs, start, cache.kv, packed(q.data(), tokens, heads * dim));
      const auto expected = [&](const float* x, std::int64_t t) {
        double sum = 0;
        for (std::int64_t i = 0; i < dim; ++i) sum += static_cast<double>(x[i]) * x[i];
        std::vector<double> y;
        for (std::int64_t i = 0; i < dim; ++i)
          y.push_back(x[i] / std::sqrt(sum / dim + 1e-6) * gain[static_cast<std::size_t>(i)]);
        for (std::size_t j = 0; j < rotary / 2; ++j) {
          const double angle =
              static_cast<double>(start + t) * std::pow(1e4, -2.0 * static_cast<double>(j) / rotary);
          const double a = y[j];
          const double b = y[j + rotary / 2];
          y[j] = a * std::cos(angle) - b * std::sin(angle);
          y[j + rotary / 2] = b * std::cos(angle) + a * std::sin(angle);
        }
        return y;
      };
      const double tolerance = math == Math::f32 ? 2e-5 : 2e-2;
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const std::vector<double> y = expected(qg.data() + (t * heads + h) * 2 * dim, t);
          for (std::int64_t i = 0; i < dim; ++i)
            REQUIRE(std::abs(q[(t * heads + h) * dim + i] - y[static_cast<std::size_t>(i)]) < tolerance);
        }
        for (std::int64_t h = 0; h < kv_heads; ++h) {
          const std::vector<double> y = expected(k.data() + (t * kv_heads + h) * dim, t);
          const auto stored = [&](std::byte* rows, std::int64_t i) {
            const std::int64_t at = (start + t) % 64 * dim + i;
            return math == Math::f32
                       ? base::load_unaligned<float>(rows + 4 * at)
                       : base::float_from_bf16(base::load_unaligned<std::uint16_t>(rows + 2 * at));
          };
          for (std::int64_t i = 0; i < dim; ++i) {
            REQUIRE(std::abs(stored(cache.kv.keys((start + t) / 64, h), i) - y[static_cast<std::size_t>(i)]) <
                    tolerance);
            const float value = v[(t * kv_heads + h) * dim + i];
            REQUIRE(stored(cache.kv.values((start + t) / 64, h), i) ==
                    (math == Math::f32 ? value : base::round_to_bf16(value)));
          }
        }
      }
    }
  }
}

TEST_CASE("the output gate is the sigmoid of each head's second half") {
  constexpr std::int64_t dim = 5, tokens = 2;
  Random random(3);
  test::OpContext op(isa_portable());
  const std::vector<float> qg = random.normals(tokens * 2 * heads * dim);
  const std::vector<float> before = random.normals(tokens * heads * dim);
  std::vector<float> o = before;
  output_gate(op.context, {qg.data(), tokens, 2 * heads * dim, 2 * heads * dim}, dim,
              packed(o.data(), tokens, heads * dim));
  for (std::int64_t i = 0; i < tokens * heads * dim; ++i) {
    const double gate = qg[(i / dim * 2 + 1) * dim + i % dim];
    CHECK(o[i] == doctest::Approx(before[i] / (1 + std::exp(-gate))));
  }
}
