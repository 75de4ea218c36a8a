/// The options of sampling.
#pragma once

#include <array>

#include "cli/options.h"
#include "engine/sampler.h"

namespace aima::cli {

inline constexpr std::array<Option, 9> sampling_options = {{
    {"temperature", "T", "draw by probability, logits divided by T; 0 (default): always the likeliest token"},
    {"top-k", "N", "draw among the N likeliest tokens (default 0: all)"},
    {"top-p", "P", "draw among the likeliest tokens that together reach P (default 1: all)"},
    {"min-p", "P", "draw among tokens at least P times as likely as the likeliest (default 0: all)"},
    {"seed", "N", "seed of the draws (default 0): the same seed, the same reply"},
    {"repetition-penalty", "R", "divide positive logits of tokens in prompt or reply by R (default 1: off)"},
    {"presence-penalty", "X", "take X from the logits of tokens in the reply (default 0)"},
    {"frequency-penalty", "X", "take X from a token's logit for each time it is in the reply (default 0)"},
    {"logit-bias", "ID=V[,ID=V]", "add V, -100 to 100, to the logit of token ID"},
}};

/// Throws a usage error for a value that cannot be, and for an option that means nothing without
/// --temperature.
engine::Sampling read_sampling(const Arguments& arguments, std::int32_t vocab_limit);

}  // namespace aima::cli
