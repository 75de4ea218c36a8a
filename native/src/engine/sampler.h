/// From logits to the next token.
///
/// Order of operations, that of transformers' generate (and of vLLM but for min-p, which it applies before
/// top-k: both orders keep the same tokens unless top-p lies between them):
///
///     padding rows masked
///     repetition penalty   l > 0 ? l / r : l * r, once for each id in the prompt or the reply (CTRL, 2019)
///     frequency, presence  l -= f * count(reply) + p * [count(reply) > 0]                        (OpenAI)
///     logit bias           l += bias
///     temperature          l / t; 0 takes the greatest logit here and ends
///     top-k                the k greatest
///     top-p                of these the fewest greatest whose probabilities, renormalised, reach p
///     min-p                of these the ones at least min_p times as probable as the greatest
///     draw                 by probability, renormalised
///
/// Equal logits are ordered by id, the lowest first, so that every step keeps an exact number of tokens.
/// The draw of reply token n takes Philox number n of the stream `seed`: it depends on the seed, n and the
/// logits' bits alone, not on threads, passes or cache hits.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace aima::engine {

struct LogitBias {
  std::int32_t id = 0;
  double bias = 0;  ///< -100 .. 100
};

/// The defaults are greedy: the likeliest token, always.
struct Sampling {
  double temperature = 0;         ///< 0 (greedy) .. 100
  std::int64_t top_k = 0;         ///< 0: off
  double top_p = 1;               ///< above 0, at most 1 (off)
  double min_p = 0;               ///< 0 (off) .. 1
  std::uint64_t seed = 0;         ///< of the random stream
  double repetition_penalty = 1;  ///< above 0, at most 10; 1: off
  double presence_penalty = 0;    ///< -2 .. 2
  double frequency_penalty = 0;   ///< -2 .. 2
  std::vector<LogitBias> bias;    ///< each id once
  /// Report the logarithm of the chosen token's probability and of this many likeliest tokens (0 .. 20).
  std::optional<std::int64_t> logprobs;
};

/// Throws base::Error (usage), `where` the field's name: a value out of its range (NaN is out of every
/// range), a biased id that is none of `vocab_limit` tokens or is named twice.
void check_sampling(const Sampling& sampling, std::int32_t vocab_limit);

/// ln of a probability under the model's own distribution: before penalties, bias and temperature, padding
/// rows left out.
struct Logprob {
  std::int32_t id = 0;
  double value = 0;

  bool operator==(const Logprob&) const = default;
};

struct Choice {
  std::int32_t id = 0;
  double logprob = 0;        ///< with Sampling::logprobs
  std::vector<Logprob> top;  ///< the likeliest, descending
};

/// One reply's sampler: it counts what has been said.
class Sampler {
 public:
  /// `vocab_limit`: ids from this one on are padding rows. `sampling` has been checked.
  Sampler(Sampling sampling, std::int32_t vocab_limit, std::span<const std::int32_t> prompt);

  /// False: the greatest logit is the answer, and the logits need not be read for it.
  bool needs_logits() const;

  /// Chooses from `logits` ([vocabulary], padding rows included) and counts the choice. Throws base::Error
  /// when one of them is NaN or infinite.
  Choice choose(std::span<const float> logits);

  /// Counts a token that was chosen elsewhere, the greatest logit.
  void count(std::int32_t id);

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
  };
  struct Weighted {
    double weight;  ///< relative to the greatest: 0 .. 1
    std::int32_t id;
  };

  static bool before(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }
  static std::vector<Candidate> greatest(std::span<const float> logits, std::size_t count);
  void adjust(std::span<const float> logits);
  std::vector<Weighted> candidates() const;
  std::vector<Weighted> weigh(std::span<const Candidate> sorted) const;
  std::vector<Weighted> nucleus_of_all() const;
  std::int32_t draw() const;
  void report(std::span<const float> logits, Choice& choice) const;
  double weight_of(float logit) const;

  Sampling sampling_;
  std::size_t limit_;
  std::uint64_t step_ = 0;
  std::map<std::int32_t, std::int64_t> said_;  ///< ids of the prompt and the reply: how often in the reply
  std::vector<float> adjusted_;                ///< [limit]
  float maximum_ = 0;                          ///< of `adjusted_`
};

}  // namespace aima::engine
