/// The inner loops and simple operations of each instruction set against plain double-precision references.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "device/cpu/ops/gemm.h"
#include "device/cpu/ops/norm.h"
#include "support.h"

using namespace aima;
using namespace aima::device::cpu;
using test::Random;

namespace {

const std::int64_t lengths[] = {1, 3, 4, 5, 7, 8, 9, 16, 31, 33, 64, 100};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Weights at an odd address, as bf16 or f32 bits; `values` are exact in bf16.
std::string unaligned_bits(const std::vector<float>& values, bool bf16) {
  std::string out(1, '\0');
  for (const float value : values) {
    const std::uint16_t half = base::bf16_from_float(value);
    out.append(bf16 ? reinterpret_cast<const char*>(&half) : reinterpret_cast<const char*>(&value),
               bf16 ? 2 : 4);
  }
  return out;
}

std::vector<float> bf16_values(Random& random, std::int64_t count) {
  std::vector<float> values = random.normals(count);
  for (float& value : values) value = base::round_to_bf16(value);
  return values;
}

}  // namespace

TEST_CASE("gemm_nt is x·wᵀ, each element the same in any tile") {
  Random random(1);
  for (const Isa* isa : test::usable_isas()) {
    for (const bool bf16 : {false, true}) {
      for (const std::int64_t k : lengths) {
        constexpr std::int64_t m = 7, n = 11;
        const std::vector<float> x = random.normals(m * (k + 2));
        const std::vector<float> w = bf16_values(random, n * k);
        const std::string bits = unaligned_bits(w, bf16);
        const std::vector<std::int32_t> rows = {6, 0, 3, 3, 1, 5, 2};
        std::vector<float> y(m * 13, -1.0F);
        GemmNt g{.x = x.data(),
                 .x_stride = k + 2,
                 .x_rows = rows.data(),
                 .w = bits.data() + 1,
                 .w_stride = k,
                 .y = y.data(),
                 .y_stride = 13,
                 .m = m,
                 .n = n,
                 .k = k};
        const auto run = bf16 ? isa->gemm_nt_bf16 : isa->gemm_nt_f32;
        run(g);
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < n; ++j) {
            double sum = 0;
            double size = 0;
            for (std::int64_t l = 0; l < k; ++l) {
              const double term =
                  static_cast<double>(x[static_cast<std::size_t>(rows[i] * (k + 2) + l)]) * w[j * k + l];
              sum += term;
              size += std::abs(term);
            }
            REQUIRE(std::abs(y[i * 13 + j] - sum) <= 1e-6 * size);
            float alone = 0;
            GemmNt one = g;
            one.x = x.data() + rows[i] * (k + 2);
            one.x_rows = nullptr;
            one.w = bits.data() + 1 + j * k * (bf16 ? 2 : 4);
            one.y = &alone;
            one.m = one.n = 1;
            run(one);
            REQUIRE(alone == y[i * 13 + j]);
          }
          REQUIRE(y[i * 13 + 11] == -1.0F);
        }
      }
    }
  }
}

TEST_CASE("gemm_nn is x·w, with or without what was there, each element the same in any tile") {
  Random random(2);
  for (const Isa* isa : test::usable_isas()) {
    for (const bool bf16 : {false, true}) {
      for (const std::int64_t n : lengths) {
        for (const bool accumulate : {false, true}) {
          constexpr std::int64_t m = 8, k = 19;
          const std::vector<float> x = random.normals(k * (m + 1));  // read transposed: row stride 1
          const std::vector<float> w = bf16_values(random, k * n);
          const std::string bits = unaligned_bits(w, bf16);
          const std::vector<float> before = random.normals(m * n);
          std::vector<float> y = before;
          GemmNn g{.x = x.data(),
                   .x_row = 1,
                   .x_col = m + 1,
                   .w = bits.data() + 1,
                   .w_stride = n,
                   .y = y.data(),
                   .y_stride = n,
                   .m = m,
                   .n = n,
                   .k = k,
                   .accumulate = accumulate};
          const auto run = bf16 ? isa->gemm_nn_bf16 : isa->gemm_nn_f32;
          run(g);
          for (std::int64_t i = 0; i < m; ++i) {
            std::vector<float> row(before.begin() + i * n, before.begin() + (i + 1) * n);
            GemmNn one = g;
            one.x = x.data() + i;
            one.y = row.data();
            one.m = 1;
            run(one);
            for (std::int64_t j = 0; j < n; ++j) {
              double sum = accumulate ? before[i * n + j] : 0;
              for (std::int64_t l = 0; l < k; ++l)
                sum += static_cast<double>(x[l * (m + 1) + i]) * w[l * n + j];
              REQUIRE(y[i * n + j] == doctest::Approx(sum).epsilon(1e-4));
              REQUIRE(row[static_cast<std::size_t>(j)] == y[i * n + j]);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("products of several matrices in one loop, at any number of threads") {
  Random random(3);
  constexpr std::int64_t k = 2000;  // small tiles, so that there are many
  const std::vector<float> x = random.normals(101 * k);
  const std::vector<float> a = random.normals(150 * k);
  const std::vector<float> b = random.normals(3 * k);
  const auto matrix = [&](const std::vector<float>& values) {
    return model::Matrix{model::DType::f32, reinterpret_cast<const std::byte*>(values.data()),
                         static_cast<std::int64_t>(values.size()) / k, k};
  };
  for (const Isa* isa : test::usable_isas()) {
    std::vector<float> first;
    for (const int threads : {1, 3}) {
      test::OpContext op(*isa, Math::f32, threads);
      std::vector<float> y(101 * 150);
      std::vector<float> z(101 * 3);
      const std::vector<std::int32_t> rows = {100, 5};
      std::vector<float> picked(2 * 150);
      const std::vector<Product> products = {
          {.x = {x.data(), 101, k, k}, .w = matrix(a), .y = packed(y.data(), 101, 150)},
          {.x = {x.data(), 101, k, k}, .w = matrix(b), .y = packed(z.data(), 101, 3)},
          {.x = {x.data(), 101, k, k},
           .w = matrix(a),
           .y = packed(picked.data(), 2, 150),
           .rows = rows.data()},
      };
      gemm(op.context, products);
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l) sum += static_cast<double>(x[77 * k + l]) * b[2 * k + l];
      CHECK(z[77 * 3 + 2] == doctest::Approx(sum).epsilon(1e-4));
      for (std::int64_t j = 0; j < 150; ++j) {
        REQUIRE(picked[j] == y[100 * 150 + j]);
        REQUIRE(picked[150 + j] == y[5 * 150 + j]);
      }
      if (first.empty()) first = y;
      CHECK(first == y);
    }
  }
}

TEST_CASE("exp is good to two units in the last place") {
  for (const Isa* isa : test::usable_isas()) {
    for (float x = -87; x < 88; x += 0.0137F) {
      float y = 0;
      isa->exp(&y, &x, 1);
      REQUIRE(std::abs(y / std::exp(static_cast<double>(x)) - 1) < 2.5e-7);
    }
    std::vector<float> x = {0,
                            -0.0F,
                            -88,
                            -1e30F,
                            -std::numeric_limits<float>::infinity(),
                            1000,
                            std::numeric_limits<float>::quiet_NaN(),
                            1,
                            2};
    isa->exp(x.data(), x.data(), 9);
    CHECK(x[0] == 1);
    CHECK(x[1] == 1);
    CHECK(x[2] == 0);
    CHECK(x[3] == 0);
    CHECK(x[4] == 0);
    CHECK(x[5] > 1e38F);
    CHECK(std::isnan(x[6]));
  }
}

TEST_CASE("elementwise loops") {
  Random random(4);
  for (const Isa* isa : test::usable_isas()) {
    for (const std::int64_t n : lengths) {
      CAPTURE(n);
      const std::vector<float> a = random.normals(n, 3);
      const std::vector<float> b = random.normals(n, 3);
      std::vector<float> y(static_cast<std::size_t>(n) + 1, 7.0F);  // one more, to see writes past the end
      const auto check = [&](auto expected) {
        for (std::int64_t i = 0; i < n; ++i) {
          REQUIRE(
              y[i] ==
              doctest::Approx(expected(static_cast<double>(a[i]), static_cast<double>(b[i]))).epsilon(1e-6));
        }
        REQUIRE(y[n] == 7.0F);
      };
      const auto reset = [&] { std::copy(a.begin(), a.end(), y.begin()); };
      isa->silu_mul(y.data(), a.data(), b.data(), n);
      check([](double x, double u) { return x * sigmoid(x) * u; });
      reset();
      isa->sigmoid_mul(y.data(), b.data(), n);
      check([](double x, double g) { return x * sigmoid(g); });
      reset();
      isa->scale(y.data(), -1.5F, n);
      check([](double x, double) { return -1.5 * x; });
      reset();
      isa->axpy(y.data(), 0.25F, b.data(), n);
      check([](double x, double u) { return x + 0.25 * u; });
      reset();
      const float sum = isa->exp_sum(y.data(), n, 0.5F, 1.0F);
      check([](double x, double) { return std::exp(x * 0.5 - 1); });
      double expected = 0;
      for (const float v : a) expected += std::exp(v * 0.5 - 1);
      CHECK(sum == doctest::Approx(expected).epsilon(1e-6));
      CHECK(isa->max(a.data(), n) == *std::max_element(a.begin(), a.end()));
    }
  }
}

TEST_CASE("bf16 loops agree with the scalar conversion") {
  Random random(5);
  for (const Isa* isa : test::usable_isas()) {
    for (const std::int64_t n : lengths) {
      std::vector<float> x = random.normals(n);
      x[0] = std::bit_cast<float>(0x3f808000U);  // half way between two
      if (n > 4) x[4] = std::numeric_limits<float>::quiet_NaN();
      if (n > 5) x[5] = -std::numeric_limits<float>::infinity();
      std::vector<std::uint16_t> bits(static_cast<std::size_t>(n) + 1, 77);
      isa->narrow_bf16(bits.data(), x.data(), n);
      std::vector<float> rounded = x;
      isa->round_bf16(rounded.data(), n);
      std::string file(1, '\0');
      file.append(reinterpret_cast<const char*>(bits.data()), static_cast<std::size_t>(n) * 2);
      std::vector<float> widened(static_cast<std::size_t>(n));
      isa->widen_bf16(widened.data(), file.data() + 1, n);
      for (std::int64_t i = 0; i < n; ++i) {
        if (std::isnan(x[i])) {
          REQUIRE((std::isnan(rounded[i]) && std::isnan(widened[i])));
          continue;
        }
        REQUIRE(bits[i] == base::bf16_from_float(x[i]));
        REQUIRE(rounded[i] == base::round_to_bf16(x[i]));
        REQUIRE(widened[i] == rounded[i]);
      }
      REQUIRE(bits[static_cast<std::size_t>(n)] == 77);
    }
  }
}

TEST_CASE("norms") {
  Random random(6);
  for (const Isa* isa : test::usable_isas()) {
    for (const Math math : {Math::f32, Math::bf16}) {
      for (const std::int64_t n : lengths) {
        constexpr std::int64_t rows = 19, heads = 3;
        test::OpContext op(*isa, math);
        const std::vector<float> x = random.normals(rows * heads * n, 2);
        const std::vector<float> z = random.normals(rows * heads * n, 2);
        const std::vector<float> gain = random.normals(heads * n, 0.2F, 1);
        std::vector<float> y(x.size());
        rms_norm(op.context, {x.data(), rows, heads * n, heads * n}, gain.data(), 1e-6F,
                 packed(y.data(), rows, heads * n));
        const double tolerance = math == Math::f32 ? 1e-5 : 8e-3;
        const auto square_mean = [&](std::int64_t at, std::int64_t count) {
          double sum = 0;
          for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[at + i]) * x[at + i];
          return sum / static_cast<double>(count);
        };
        for (std::int64_t i = 0; i < rows * heads * n; ++i) {
          const double expected = x[i] /
                                  std::sqrt(square_mean(i / (heads * n) * heads * n, heads * n) + 1e-6) *
                                  gain[i % (heads * n)];
          REQUIRE(y[i] == doctest::Approx(expected).epsilon(tolerance));
          if (math == Math::bf16) REQUIRE(y[i] == base::round_to_bf16(y[i]));
        }
        std::vector<float> o = x;
        gated_rms_norm(op.context, packed(o.data(), rows, heads * n), {z.data(), rows, heads * n, heads * n},
                       gain.data(), 1e-6F, n);
        std::vector<float> l2 = x;
        l2_norm_heads(op.context, packed(l2.data(), rows, heads * n), n, 0.5F);
        for (std::int64_t i = 0; i < rows * heads * n; ++i) {
          const double mean = square_mean(i / n * n, n);
          const double gated = x[i] / std::sqrt(mean + 1e-6) * gain[i % n] * z[i] * sigmoid(z[i]);
          REQUIRE(o[i] == doctest::Approx(gated).epsilon(tolerance));
          const double unit = x[i] / std::sqrt(mean * static_cast<double>(n) + 1e-6) * 0.5;
          REQUIRE(l2[i] == doctest::Approx(unit).epsilon(1e-5));
        }
      }
    }
  }
}
