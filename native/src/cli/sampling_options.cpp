#include "cli/sampling_options.h"

#include <charconv>
#include <limits>
#include <string>

#include "base/error.h"

namespace aima::cli {
namespace {

engine::LogitBias parse_bias(std::string_view part) {
  const std::size_t equals = part.find('=');
  engine::LogitBias bias;
  if (equals != std::string_view::npos) {
    const std::string_view key = part.substr(0, equals);
    const std::string_view number = part.substr(equals + 1);
    const auto id = std::from_chars(key.data(), key.data() + key.size(), bias.id);
    const auto value = std::from_chars(number.data(), number.data() + number.size(), bias.bias);
    const bool whole = id.ptr == key.data() + key.size() && value.ptr == number.data() + number.size();
    if (id.ec == std::errc() && value.ec == std::errc() && whole) return bias;
  }
  base::throw_usage(
      {.what = "`" + std::string(part) + "` is not a token id and its bias",
       .where = "--logit-bias",
       .why = "pairs are written ID=V with commas between them, for example 248046=-100,11=2.5"});
}

std::vector<engine::LogitBias> parse_biases(std::string_view text) {
  std::vector<engine::LogitBias> biases;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    biases.push_back(parse_bias(text.substr(start, comma - start)));
    start = comma + 1;
  }
  return biases;
}

void check(const engine::Sampling& sampling, std::int32_t vocab_limit) {
  try {
    engine::check_sampling(sampling, vocab_limit);
  } catch (const base::Error& error) {
    base::ErrorText text = error.text();
    for (char& letter : text.where) letter = letter == '_' ? '-' : letter;
    text.where.insert(0, "--");
    throw base::Error(std::move(text), error.exit());
  }
}

}  // namespace

engine::Sampling read_sampling(const Arguments& arguments, std::int32_t vocab_limit) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  engine::Sampling sampling;
  sampling.temperature = arguments.number("temperature", 0);
  sampling.top_k = arguments.integer("top-k", 0, 0, most);
  sampling.top_p = arguments.number("top-p", 1);
  sampling.min_p = arguments.number("min-p", 0);
  sampling.seed = static_cast<std::uint64_t>(arguments.integer("seed", 0, 0, most));
  sampling.repetition_penalty = arguments.number("repetition-penalty", 1);
  sampling.presence_penalty = arguments.number("presence-penalty", 0);
  sampling.frequency_penalty = arguments.number("frequency-penalty", 0);
  if (const auto text = arguments.value("logit-bias")) sampling.bias = parse_biases(*text);
  check(sampling, vocab_limit);
  for (const std::string_view name : {"top-k", "top-p", "min-p", "seed"}) {
    if (!arguments.has(name) || sampling.temperature != 0) continue;
    base::throw_usage({.what = "--" + std::string(name) + " means nothing while the likeliest token is taken",
                       .hint = "give a --temperature above 0 with it"});
  }
  return sampling;
}

}  // namespace aima::cli
