#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/philox.h"

namespace aima::engine {
namespace {

void check_range(const char* field, double value, double least, double most, const char* range) {
  if (value >= least && value <= most) return;  // false for NaN
  std::array<char, 32> shown = {};
  std::snprintf(shown.data(), shown.size(), "%g", value);
  base::throw_usage({.what = std::string("the value ") + shown.data() + " is out of range",
                     .where = field,
                     .why = std::string(range) + " is expected"});
}

void check_bias(const Sampling& sampling, std::int32_t vocab_limit) {
  std::set<std::int32_t> seen;
  for (const LogitBias& each : sampling.bias) {
    check_range("logit_bias", each.bias, -100, 100, "a bias from -100 to 100");
    const std::string name = "the token id " + std::to_string(each.id);
    if (each.id < 0 || each.id >= vocab_limit) {
      base::throw_usage({.what = name + " is not in the vocabulary",
                         .where = "logit_bias",
                         .why = "ids go from 0 to " + std::to_string(vocab_limit - 1)});
    }
    if (!seen.insert(each.id).second)
      base::throw_usage({.what = name + " is given twice", .where = "logit_bias"});
  }
}

/// Drops what lies behind the fewest leading weights that reach `share` of `total`.
template <typename Weights>
bool cut_to_share(Weights& weights, double share, double total) {
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i].weight;
    if (sum < share * total) continue;
    weights.resize(i + 1);
    return true;
  }
  return false;
}

}  // namespace

void check_sampling(const Sampling& sampling, std::int32_t vocab_limit) {
  constexpr double tiny = std::numeric_limits<double>::min();
  check_range("temperature", sampling.temperature, 0, 100, "a number from 0 to 100");
  check_range("top_k", static_cast<double>(sampling.top_k), 0, 1e18, "a whole number from 0 (off)");
  check_range("top_p", sampling.top_p, tiny, 1, "a number above 0, up to 1 (off)");
  check_range("min_p", sampling.min_p, 0, 1, "a number from 0 (off) to 1");
  check_range("repetition_penalty", sampling.repetition_penalty, tiny, 10, "a number above 0, up to 10");
  check_range("presence_penalty", sampling.presence_penalty, -2, 2, "a number from -2 to 2");
  check_range("frequency_penalty", sampling.frequency_penalty, -2, 2, "a number from -2 to 2");
  const auto logprobs = static_cast<double>(sampling.logprobs.value_or(0));
  check_range("logprobs", logprobs, 0, 20, "a whole number from 0 to 20");
  check_bias(sampling, vocab_limit);
}

Sampler::Sampler(Sampling sampling, std::int32_t vocab_limit, std::span<const std::int32_t> prompt)
    : sampling_(std::move(sampling)), limit_(static_cast<std::size_t>(vocab_limit)) {
  if (sampling_.repetition_penalty == 1) return;
  for (const std::int32_t id : prompt) said_.try_emplace(id, 0);
}

bool Sampler::needs_logits() const {
  return sampling_.temperature != 0 || sampling_.repetition_penalty != 1 || sampling_.presence_penalty != 0 ||
         sampling_.frequency_penalty != 0 || !sampling_.bias.empty() || sampling_.logprobs.has_value();
}

void Sampler::count(std::int32_t id) {
  ++said_[id];
  ++step_;
}

Choice Sampler::choose(std::span<const float> logits) {
  const std::span<const float> real = logits.first(std::min(limit_, logits.size()));
  for (std::size_t id = 0; id < real.size(); ++id) {
    if (std::isfinite(real[id])) continue;
    throw base::Error({.what = "the logits are not finite",
                       .why = "that of token " + std::to_string(id) + " is " + std::to_string(real[id]) +
                              ": the weights hold infinities or NaN, or a sum overflowed"});
  }
  adjust(real);
  Choice choice;
  if (sampling_.temperature == 0) {
    choice.id = static_cast<std::int32_t>(std::ranges::find(adjusted_, maximum_) - adjusted_.begin());
  } else {
    choice.id = draw();
  }
  if (sampling_.logprobs) report(real, choice);
  count(choice.id);
  return choice;
}

void Sampler::adjust(std::span<const float> logits) {
  adjusted_.assign(logits.begin(), logits.end());
  const auto set = [&](std::int32_t id, double value) {
    constexpr double most = std::numeric_limits<float>::max();
    adjusted_[static_cast<std::size_t>(id)] = static_cast<float>(std::clamp(value, -most, most));
  };
  for (const auto& [id, count] : said_) {
    if (static_cast<std::size_t>(id) >= adjusted_.size()) continue;  // a padding row in the prompt
    double value = adjusted_[static_cast<std::size_t>(id)];
    value = value > 0 ? value / sampling_.repetition_penalty : value * sampling_.repetition_penalty;
    value -= sampling_.frequency_penalty * static_cast<double>(count);
    if (count > 0) value -= sampling_.presence_penalty;
    set(id, value);
  }
  for (const LogitBias& each : sampling_.bias)
    set(each.id, adjusted_[static_cast<std::size_t>(each.id)] + each.bias);
  maximum_ = *std::ranges::max_element(adjusted_);
}

/// The `count` greatest, sorted. A pool of twice as many is cut back whenever it is full, and what is not
/// above the worst one kept never enters it: O(V), whatever the order of the logits.
std::vector<Sampler::Candidate> Sampler::greatest(std::span<const float> logits, std::size_t count) {
  count = std::min(count, logits.size());
  std::vector<Candidate> pool;
  pool.reserve(2 * count);
  const auto cut = [&] {
    std::ranges::nth_element(pool, pool.begin() + static_cast<std::ptrdiff_t>(count) - 1, before);
    pool.resize(count);
    return pool.back().logit;
  };
  float threshold = -std::numeric_limits<float>::infinity();
  for (std::size_t id = 0; count > 0 && id < logits.size(); ++id) {
    if (logits[id] <= threshold) continue;  // an equal one has the higher id
    pool.push_back({logits[id], static_cast<std::int32_t>(id)});
    if (pool.size() == 2 * count) threshold = cut();
  }
  if (pool.size() > count) cut();
  std::ranges::sort(pool, before);
  return pool;
}

double Sampler::weight_of(float logit) const {
  return std::exp((static_cast<double>(logit) - maximum_) / sampling_.temperature);
}

std::vector<Sampler::Weighted> Sampler::weigh(std::span<const Candidate> sorted) const {
  std::vector<Weighted> weights;
  weights.reserve(sorted.size());
  for (const Candidate& each : sorted) weights.push_back({weight_of(each.logit), each.id});
  return weights;
}

/// Top-p over the whole vocabulary: ever more of the greatest logits, until they hold the share.
std::vector<Sampler::Weighted> Sampler::nucleus_of_all() const {
  double total = 0;
  for (const float logit : adjusted_) total += weight_of(logit);
  for (std::size_t count = 256;; count *= 8) {
    std::vector<Weighted> weights = weigh(greatest(adjusted_, count));
    if (cut_to_share(weights, sampling_.top_p, total) || count >= adjusted_.size()) return weights;
  }
}

std::vector<Sampler::Weighted> Sampler::candidates() const {
  std::vector<Weighted> weights;
  const auto k = static_cast<std::size_t>(sampling_.top_k);
  if (k != 0 && k < adjusted_.size()) {
    weights = weigh(greatest(adjusted_, k));
    double total = 0;
    for (const Weighted& each : weights) total += each.weight;
    if (sampling_.top_p < 1) cut_to_share(weights, sampling_.top_p, total);
  } else if (sampling_.top_p < 1) {
    weights = nucleus_of_all();
  } else {
    for (std::size_t id = 0; id < adjusted_.size(); ++id)
      weights.push_back({weight_of(adjusted_[id]), static_cast<std::int32_t>(id)});
  }
  if (sampling_.min_p > 0)
    std::erase_if(weights, [&](const Weighted& each) { return each.weight < sampling_.min_p; });
  return weights;
}

std::int32_t Sampler::draw() const {
  const std::vector<Weighted> weights = candidates();
  double total = 0;
  for (const Weighted& each : weights) total += each.weight;
  const double target = uniform(sampling_.seed, step_) * total;
  double sum = 0;
  for (const Weighted& each : weights) {
    sum += each.weight;
    if (sum > target) return each.id;
  }
  return weights.back().id;  // not reached: target < total, and the sum is the same
}

void Sampler::report(std::span<const float> logits, Choice& choice) const {
  const double maximum = *std::ranges::max_element(logits);
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - maximum);
  const double log_total = maximum + std::log(total);
  choice.logprob = static_cast<double>(logits[static_cast<std::size_t>(choice.id)]) - log_total;
  for (const Candidate& each : greatest(logits, static_cast<std::size_t>(*sampling_.logprobs)))
    choice.top.push_back({each.id, static_cast<double>(each.logit) - log_total});
}

}  // namespace aima::engine
