/// The sampler against hand cases, against a plain rewrite with a full sort, and against its distribution.
#include "engine/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/philox.h"
#include "support.h"

using namespace aima;
using engine::Choice;
using engine::Sampler;
using engine::Sampling;

namespace {

using Rows = std::vector<float>;

constexpr float infinity = std::numeric_limits<float>::infinity();

/// The documented order of operations with a full sort of everything: what may be drawn, and how probable.
std::vector<std::pair<std::int32_t, double>> distribution(const Rows& logits, const Sampling& s) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  const double maximum = logits[static_cast<std::size_t>(order.front())];
  std::vector<std::pair<std::int32_t, double>> kept;
  for (const std::int32_t id : order) {
    const double logit = logits[static_cast<std::size_t>(id)];
    kept.emplace_back(id, std::exp((logit - maximum) / s.temperature));
  }
  if (s.top_k > 0) kept.resize(std::min(kept.size(), static_cast<std::size_t>(s.top_k)));
  const auto total = [&] {
    double sum = 0;
    for (const auto& [id, weight] : kept) sum += weight;
    return sum;
  };
  const double share = s.top_p * total();
  double sum = 0;
  std::size_t count = 0;
  while (count < kept.size() && sum < share) sum += kept[count++].second;
  if (s.top_p < 1) kept.resize(count);
  std::erase_if(kept, [&](const auto& each) { return each.second < s.min_p; });
  const double all = total();
  for (auto& [id, weight] : kept) weight /= all;
  return kept;
}

std::vector<std::int32_t> draws(const Rows& logits, const Sampling& sampling, int count) {
  const auto limit = static_cast<std::int32_t>(logits.size());
  Sampler sampler(sampling, limit, {});
  std::vector<std::int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(sampler.choose(logits).id);
  return ids;
}

std::int32_t once(const Rows& logits, const Sampling& sampling, std::vector<std::int32_t> prompt = {}) {
  Sampler sampler(sampling, static_cast<std::int32_t>(logits.size()), prompt);
  return sampler.choose(logits).id;
}

}  // namespace

TEST_CASE("Philox4x32-10 gives the published numbers") {
  using engine::philox4x32;
  using Block = engine::PhiloxBlock;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  CHECK(engine::uniform(0, 0) == static_cast<double>(0xe169c58d6627e8d5ULL >> 11) / 0x1p53);
  CHECK(engine::uniform(1, 0) != engine::uniform(0, 1));
}

TEST_CASE("greedy takes the greatest, the lowest id on a tie, and never a padding row") {
  CHECK(once({1, 3, 2, 3}, {}) == 1);
  Sampler sampler({}, 2, {});
  CHECK(sampler.choose(Rows{1, 0, 9, 9}).id == 0);
  CHECK_FALSE(Sampler({}, 2, {}).needs_logits());
  CHECK(Sampler({.temperature = 1, .bias = {}, .logprobs = {}}, 2, {}).needs_logits());
  CHECK(Sampler({.bias = {{1, 1}}, .logprobs = {}}, 2, {}).needs_logits());
  CHECK(Sampler({.bias = {}, .logprobs = 0}, 2, {}).needs_logits());
  for (int seed = 0; seed < 50; ++seed) {  // sampling masks them too
    Sampler hot({.temperature = 100, .seed = static_cast<std::uint64_t>(seed), .bias = {}, .logprobs = {}}, 2,
                {});
    CHECK(hot.choose(Rows{0, 0, 99, 99}).id < 2);
  }
}

TEST_CASE("penalties and bias, by hand") {
  const auto with = [](auto set) {
    Sampling sampling;
    set(sampling);
    return sampling;
  };
  const Sampling repetition = with([](Sampling& s) { s.repetition_penalty = 2; });
  CHECK(once({4, 3, 1}, repetition) == 0);
  CHECK(once({4, 3, 1}, repetition, {0}) == 1);       // 4/2 < 3
  CHECK(once({-1, -3, -1.5}, repetition, {0}) == 2);  // -1*2 < -1.5
  CHECK(once({4, 3, 1}, repetition, {0, 1, 2, 77}) ==
        0);  // all alike; an id beyond the vocabulary is nothing
  // Frequency and presence count the reply alone, not the prompt.
  const Sampling frequency = with([](Sampling& s) { s.frequency_penalty = 1; });
  CHECK(once({4, 3.5, 0}, frequency, {0, 0, 0}) == 0);
  CHECK(draws({4, 3.5, 0}, frequency, 5) == std::vector<std::int32_t>{0, 1, 0, 1, 0});
  const Sampling presence = with([](Sampling& s) { s.presence_penalty = 1; });
  CHECK(draws({4, 3.5, 0}, presence, 4) == std::vector<std::int32_t>{0, 1, 0, 0});
  CHECK(draws({4, 3.5, 0}, with([](Sampling& s) { s.presence_penalty = -1; }), 3) ==
        std::vector<std::int32_t>{0, 0, 0});
  const Sampling bias = with([](Sampling& s) { s.bias = {{2, 4}, {0, -1}}; });
  CHECK(once({4, 3.5, 0}, bias) == 2);
  // Penalties come before the bias: -100 stays a ban, +100 is not halved.
  Sampling both = repetition;
  both.bias = {{1, 1.5}};
  CHECK(once({2.4F, 1.8F}, both, {1}) == 0);  // 1.8/2 + 1.5 = 2.4: not (1.8 + 1.5)/2; a tie, the lowest id
  both.bias = {{1, 1.6}};
  CHECK(once({2.4F, 1.8F}, both, {1}) == 1);
}

TEST_CASE("what may be drawn is what a full sort keeps, whatever the size of the vocabulary") {
  test::Random random(11);
  for (const std::int64_t vocab : {1, 2, 7, 300, 5000}) {
    for (int round = 0; round < 60; ++round) {
      Rows logits = random.normals(vocab, random.uniform(0.5F, 4));
      if (round % 3 == 0) {
        for (float& logit : logits) logit = std::round(logit);  // many ties
      }
      if (round % 7 == 0) std::ranges::sort(logits);  // every one enters the pool
      Sampling s;
      s.temperature = random.uniform(0.2F, 2);
      if (round % 2 == 0) s.top_k = 1 + random.below(round % 4 == 0 ? 5 : vocab + 3);
      if (random.below(2) == 0) s.top_p = random.uniform(0.05F, 1);
      if (random.below(3) == 0) s.min_p = random.uniform(0, 1);
      s.seed = static_cast<std::uint64_t>(round);
      CAPTURE(vocab);
      CAPTURE(round);
      const auto expected = distribution(logits, s);
      // The draw walks the kept tokens, in the sorted order where something cut them and by id otherwise.
      auto walk = expected;
      if ((s.top_k == 0 || s.top_k >= vocab) && s.top_p == 1) std::ranges::sort(walk);
      double target = engine::uniform(s.seed, 0);
      std::size_t at = 0;
      while (at + 1 < walk.size() && target >= walk[at].second) target -= walk[at++].second;
      const std::int32_t id = once(logits, s);
      const bool near = at + 1 < walk.size() && std::abs(target - walk[at].second) < 1e-9;
      if (!near) CHECK(id == walk[at].first);
    }
  }
}

TEST_CASE("frequencies follow the distribution (chi-square)") {
  const Rows logits = {1.0F, 0.2F, 2.0F, -1.0F, 0.9F, 1.5F, -3.0F, 0.0F};
  for (const Sampling& s :
       {Sampling{.temperature = 1, .seed = 1, .bias = {}, .logprobs = {}},
        Sampling{.temperature = 0.6, .seed = 2, .bias = {}, .logprobs = {}},
        Sampling{.temperature = 1.3, .top_k = 5, .seed = 3, .bias = {}, .logprobs = {}},
        Sampling{.temperature = 1, .top_p = 0.8, .seed = 4, .bias = {}, .logprobs = {}},
        Sampling{.temperature = 1, .min_p = 0.2, .seed = 5, .bias = {}, .logprobs = {}}}) {
    constexpr int count = 40000;
    std::vector<int> seen(logits.size());
    for (const std::int32_t id : draws(logits, s, count)) ++seen[static_cast<std::size_t>(id)];
    double chi = 0;
    int total = 0;
    const auto expected = distribution(logits, s);
    for (const auto& [id, probability] : expected) {
      const double mean = probability * count;
      const int n = seen[static_cast<std::size_t>(id)];
      chi += (n - mean) * (n - mean) / mean;
      total += n;
    }
    CAPTURE(s.seed);
    CHECK(total == count);  // nothing outside of what is kept
    const auto freedom = static_cast<double>(expected.size() - 1);
    CHECK(chi < freedom + 4 * std::sqrt(2 * freedom));  // about the 1e-4 quantile
  }
}

TEST_CASE("a seed gives its tokens again, another seed gives others, and every step its own number") {
  test::Random random(5);
  const Rows logits = random.normals(1000, 1);
  Sampling s;
  s.temperature = 1;
  s.seed = 77;
  const auto first = draws(logits, s, 50);
  CHECK(draws(logits, s, 50) == first);
  s.seed = 78;
  CHECK(draws(logits, s, 50) != first);
  CHECK(std::ranges::adjacent_find(first, std::not_equal_to<>()) != first.end());
  s.seed = std::uint64_t{77} + (std::uint64_t{1} << 32);  // all 64 bits count
  CHECK(draws(logits, s, 50) != first);
  // A token counted from outside takes its step.
  s.seed = 77;
  Sampler sampler(s, 1000, {});
  sampler.count(first[0]);
  CHECK(sampler.choose(logits).id == first[1]);
}

TEST_CASE("extreme settings stay exact") {
  Sampling s;
  s.temperature = 1e-300;
  CHECK(once({1, 2, 2, 0}, s) <= 2);
  s.temperature = 1e-3;
  CHECK(once({1, 2, 1.5, 0}, s) == 1);
  s.temperature = 100;
  s.top_p = 1e-12;
  CHECK(once({1, 2, 2, 0}, s) == 1);
  s.top_p = 1;
  s.top_k = 1;
  CHECK(once({1, 2, 2, 0}, s) == 1);
  s.top_k = 0;
  s.min_p = 1;
  for (s.seed = 0; s.seed < 20; ++s.seed) {
    const std::int32_t id = once({1, 2, 2, 0}, s);
    CHECK((id == 1 || id == 2));  // all as probable as the greatest
  }
  s = {};
  s.repetition_penalty = 1e-300;
  CHECK(once({3e38F, 3.1e38F}, s, {0}) == 0);  // clamped, not infinite
}

TEST_CASE("logprobs are the model's own, before anything is changed") {
  const Rows logits = {0, 1, 2, 50};  // the last is padding
  Sampling s;
  s.temperature = 0;
  s.bias = {{0, 100}};
  s.logprobs = 2;
  Sampler sampler(s, 3, {});
  const Choice choice = sampler.choose(logits);
  const double total = std::log(1 + std::exp(1.0) + std::exp(2.0));
  CHECK(choice.id == 0);
  CHECK(choice.logprob == doctest::Approx(-total));
  REQUIRE(choice.top.size() == 2);
  CHECK(choice.top[0].id == 2);
  CHECK(choice.top[0].value == doctest::Approx(2 - total));
  CHECK(choice.top[1].id == 1);
  s.logprobs = 0;
  CHECK(Sampler(s, 3, {}).choose(logits).top.empty());
}

TEST_CASE("logits that are no numbers are one clear error") {
  for (const float bad : {std::nanf(""), infinity, -infinity}) {
    for (const double temperature : {0.0, 1.0}) {
      Sampling s;
      s.temperature = temperature;
      Sampler sampler(s, 3, {});
      const base::Error error = test::error_of([&] { sampler.choose(Rows{1, bad, 2, 0}); });
      CHECK(error.text().what == "the logits are not finite");
      CHECK(error.text().why.starts_with("that of token 1 is "));
      CHECK(error.exit() == base::Exit::failed);
      CHECK(sampler.choose(Rows{1, 0, 2, bad}).id < 3);  // padding is not looked at
    }
  }
}

TEST_CASE("settings out of range are refused by name") {
  const auto field = [](auto set) {
    Sampling sampling;
    set(sampling);
    const base::Error error = test::error_of([&] { engine::check_sampling(sampling, 100); });
    if (!error.text().what.empty()) CHECK(error.exit() == base::Exit::usage);
    return error.text().where;
  };
  const double nan = std::nan("");
  CHECK(field([](Sampling&) {}).empty());
  CHECK(field([](Sampling& s) {
          s = {2, 50, 0.9, 0.1, ~0ULL, 1.1, 2, -2, {{99, 100}, {0, -100}}, 20};
        }).empty());
  for (const double bad : {-0.1, 101.0, nan, static_cast<double>(infinity)})
    CHECK(field([&](Sampling& s) { s.temperature = bad; }) == "temperature");
  for (const double bad : {0.0, -1.0, 1.01, nan})
    CHECK(field([&](Sampling& s) { s.top_p = bad; }) == "top_p");
  for (const double bad : {-0.01, 1.01, nan}) CHECK(field([&](Sampling& s) { s.min_p = bad; }) == "min_p");
  CHECK(field([](Sampling& s) { s.top_k = -1; }) == "top_k");
  for (const double bad : {0.0, -1.0, 10.5, nan})
    CHECK(field([&](Sampling& s) { s.repetition_penalty = bad; }) == "repetition_penalty");
  CHECK(field([](Sampling& s) { s.presence_penalty = 2.1; }) == "presence_penalty");
  CHECK(field([&](Sampling& s) { s.frequency_penalty = nan; }) == "frequency_penalty");
  CHECK(field([](Sampling& s) { s.logprobs = 21; }) == "logprobs");
  CHECK(field([](Sampling& s) { s.bias = {{100, 1}}; }) == "logit_bias");
  CHECK(field([](Sampling& s) { s.bias = {{-1, 1}}; }) == "logit_bias");
  CHECK(field([](Sampling& s) { s.bias = {{1, 1}, {1, 2}}; }) == "logit_bias");
  CHECK(field([](Sampling& s) { s.bias = {{1, 101}}; }) == "logit_bias");
}
