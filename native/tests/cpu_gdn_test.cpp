/// Gated DeltaNet: convolution, gates, chunk form and recurrence against the formulas of model.md 3.2 in
/// double.
#include <doctest/doctest.h>

#include <cmath>

#include "device/cpu/ops/gdn.h"
#include "support.h"

using namespace aima;
using namespace aima::device::cpu;
using test::Random;

namespace {

/// Random inputs of the delta rule, with normalised keys and queries as the layer gives them.
struct DeltaCase {
  DeltaShape shape;
  std::int64_t tokens;
  std::vector<float> qkv, g, beta, state;

  DeltaCase(DeltaShape s, std::int64_t t, std::uint32_t seed) : shape(s), tokens(t) {
    Random random(seed);
    qkv = random.normals(t * width());
    for (std::int64_t row = 0; row < t; ++row) {
      for (std::int64_t head = 0; head < 2 * s.key_heads; ++head) {
        float* x = qkv.data() + row * width() + head * s.key_dim;
        double sum = 0;
        for (std::int64_t i = 0; i < s.key_dim; ++i) sum += static_cast<double>(x[i]) * x[i];
        for (std::int64_t i = 0; i < s.key_dim; ++i) x[i] = static_cast<float>(x[i] / std::sqrt(sum));
      }
    }
    for (std::int64_t i = 0; i < t * s.value_heads; ++i) {
      g.push_back(-std::exp(random.normal(1.5F, -2)));
      beta.push_back(random.uniform(0, 1));
    }
    state = random.normals(s.value_heads * s.key_dim * s.value_dim, 0.3F);
  }

  std::int64_t width() const { return 2 * shape.key_width() + shape.value_heads * shape.value_dim; }
  std::int64_t out_width() const { return shape.value_heads * shape.value_dim; }

  /// The rows first .. first+count as the operation sees them.
  Delta rows(std::int64_t first, std::int64_t count, std::vector<float>& s, std::vector<float>& o) const {
    return {.shape = shape,
            .qkv = {qkv.data() + first * width(), count, width(), width()},
            .g = {g.data() + first * shape.value_heads, count, shape.value_heads, shape.value_heads},
            .beta = {beta.data() + first * shape.value_heads, count, shape.value_heads, shape.value_heads},
            .state = s.data(),
            .o = packed(o.data() + first * out_width(), count, out_width())};
  }
};

struct Reference {
  std::vector<double> o, state;
};

Reference recurrence(const DeltaCase& c) {
  const DeltaShape& s = c.shape;
  Reference r{std::vector<double>(static_cast<std::size_t>(c.tokens * c.out_width())),
              std::vector<double>(c.state.begin(), c.state.end())};
  const std::int64_t group = s.value_heads / s.key_heads;
  for (std::int64_t h = 0; h < s.value_heads; ++h) {
    double* state = r.state.data() + h * s.key_dim * s.value_dim;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      const float* q = c.qkv.data() + t * c.width() + h / group * s.key_dim;
      const float* k = q + s.key_width();
      const float* v = c.qkv.data() + t * c.width() + 2 * s.key_width() + h * s.value_dim;
      const double decay = std::exp(static_cast<double>(c.g[t * s.value_heads + h]));
      for (std::int64_t n = 0; n < s.value_dim; ++n) {
        double seen = 0;
        for (std::int64_t i = 0; i < s.key_dim; ++i) seen += (state[i * s.value_dim + n] *= decay) * k[i];
        const double delta = c.beta[t * s.value_heads + h] * (v[n] - seen);
        double out = 0;
        for (std::int64_t i = 0; i < s.key_dim; ++i)
          out += (state[i * s.value_dim + n] += k[i] * delta) * q[i];
        r.o[static_cast<std::size_t>(t * c.out_width() + h * s.value_dim + n)] = out;
      }
    }
  }
  return r;
}

double largest_difference(const std::vector<float>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace

TEST_CASE("chunk form and recurrence equal the delta rule") {
  const DeltaShape small{.key_heads = 2, .value_heads = 6, .key_dim = 12, .value_dim = 18};
  const DeltaShape real{.key_heads = 2, .value_heads = 4, .key_dim = 128, .value_dim = 128};
  for (const Isa* isa : test::usable_isas()) {
    test::OpContext op(*isa);
    for (const DeltaShape& shape : {small, real}) {
      for (const std::int64_t tokens : {1, 2, 63, 64, 65, 200}) {
        CAPTURE(tokens);
        const DeltaCase c(shape, tokens, static_cast<std::uint32_t>(tokens));
        const Reference expected = recurrence(c);
        for (const auto& form : {delta_chunks, delta_steps}) {
          std::vector<float> state = c.state;
          std::vector<float> o(expected.o.size());
          form(op.context, c.rows(0, tokens, state, o));
          CHECK(largest_difference(o, expected.o) < 1e-5);
          CHECK(largest_difference(state, expected.state) < 1e-5);
        }
      }
    }
  }
}

TEST_CASE("strong decay neither overflows nor loses the new token") {
  for (const Isa* isa : test::usable_isas()) {
    test::OpContext op(*isa);
    DeltaCase c({.key_heads = 1, .value_heads = 2, .key_dim = 16, .value_dim = 16}, 130, 3);
    for (float& g : c.g) g *= 40;
    const Reference expected = recurrence(c);
    std::vector<float> state = c.state;
    std::vector<float> o(expected.o.size());
    delta_chunks(op.context, c.rows(0, 130, state, o));
    CHECK(largest_difference(o, expected.o) < 1e-5);
    CHECK(largest_difference(state, expected.state) < 1e-5);
  }
}

TEST_CASE("little decay over many tokens: what is lost at each step does not add up, in either form") {
  for (const Isa* isa : test::usable_isas()) {
    test::OpContext op(*isa);
    DeltaCase c({.key_heads = 1, .value_heads = 1, .key_dim = 128, .value_dim = 128}, 1000, 4);
    for (float& g : c.g) g = -1e-6F;
    for (float& beta : c.beta) beta = 1;
    const Reference expected = recurrence(c);
    for (const auto& form : {delta_chunks, delta_steps}) {
      std::vector<float> state = c.state;
      std::vector<float> o(expected.o.size());
      form(op.context, c.rows(0, 1000, state, o));
      CHECK(largest_difference(o, expected.o) < 1e-5);
      CHECK(largest_difference(state, expected.state) < 1e-5);
    }
  }
}

TEST_CASE("a chunk's rows have the same bits whatever follows them, at any split and number of threads") {
  const DeltaShape shape{.key_heads = 3, .value_heads = 6, .key_dim = 20, .value_dim = 28};
  for (const Isa* isa : test::usable_isas()) {
    const DeltaCase c(shape, 150, 9);
    test::OpContext op(*isa);
    std::vector<float> state = c.state;
    std::vector<float> whole(static_cast<std::size_t>(150 * c.out_width()));
    delta_chunks(op.context, c.rows(0, 150, state, whole));
    test::OpContext single(*isa, Math::f32, 1);
    std::vector<float> split_state = c.state;
    std::vector<float> split(whole.size());
    delta_chunks(single.context, c.rows(0, 64, split_state, split));
    delta_chunks(single.context, c.rows(64, 86, split_state, split));
    CHECK(split == whole);
    CHECK(split_state == state);
    std::vector<float> short_state = c.state;
    std::vector<float> shorter(whole.size());
    delta_chunks(op.context, c.rows(0, 33, short_state, shorter));
    for (std::int64_t i = 0; i < 33 * c.out_width(); ++i) REQUIRE(shorter[i] == whole[i]);
  }
}

TEST_CASE("convolution with a carried tail") {
  Random random(5);
  constexpr std::int64_t channels = 300, tokens = 21;
  const std::vector<float> input = random.normals(tokens * channels);
  const std::vector<float> taps = random.normals(4 * channels);
  for (const Isa* isa : test::usable_isas()) {
    for (const std::vector<std::int64_t>& passes :
         std::vector<std::vector<std::int64_t>>{{21}, {1, 1, 1, 1, 17}, {2, 3, 16}, {20, 1}}) {
      test::OpContext op(*isa);
      std::vector<float> u = input;
      std::vector<float> tail(3 * channels);
      std::int64_t first = 0;
      for (const std::int64_t count : passes) {
        conv4_silu(op.context, packed(u.data() + first * channels, count, channels), taps.data(),
                   tail.data());
        first += count;
      }
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t n = 0; n < channels; ++n) {
          double sum = 0;
          for (std::int64_t j = 0; j < 4; ++j) {
            const std::int64_t from = t - 3 + j;
            if (from >= 0) sum += static_cast<double>(taps[j * channels + n]) * input[from * channels + n];
          }
          const double expected = sum / (1 + std::exp(-sum));
          REQUIRE(std::abs(u[t * channels + n] - expected) < 2e-6 * (1 + std::abs(expected)));
        }
      }
      for (std::int64_t i = 0; i < 3 * channels; ++i) REQUIRE(tail[i] == input[(tokens - 3) * channels + i]);
    }
  }
}

TEST_CASE("gates") {
  test::OpContext op(isa_portable());
  std::vector<float> a = {0, 30, -30, 1};
  std::vector<float> b = {0, 30, -30, 1};
  const std::vector<float> decay = {-1, -2};
  const std::vector<float> bias = {0.5F, -0.5F};
  gdn_gates(op.context, packed(a.data(), 2, 2), packed(b.data(), 2, 2), decay.data(), bias.data());
  CHECK(a[0] == doctest::Approx(-std::log1p(std::exp(0.5))));
  CHECK(a[1] == doctest::Approx(-2 * 29.5));
  CHECK(a[2] == doctest::Approx(-std::exp(-29.5)));
  CHECK(a[3] == doctest::Approx(-2 * std::log1p(std::exp(0.5))));
  CHECK(b[0] == 0.5F);
  CHECK(b[1] == doctest::Approx(1));
  CHECK(b[2] == doctest::Approx(std::exp(-30.0)));
}
