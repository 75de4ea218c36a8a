/// The file of requests that `resident-session-probe` runs: aima/session-requests/v1.
///
///     {"schema": "aima/session-requests/v1", "requests": [
///       {"name": "first", "ids": [1, 2, 3], "max_tokens": 8},
///       {"text": "Once upon a time", "sampling": {"temperature": 0.7, "seed": 3}},
///       {"chat": {"messages": [{"role": "user", "content": "Hello"}]}, "cancel": {"after_tokens": 5}}]}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/loaded_model.h"

namespace aima::cli {

struct SessionRequest {
  std::string name;                           ///< as given, else its number
  engine::Request request;                    ///< without callbacks and cancel flag
  std::optional<std::int64_t> cancel_tokens;  ///< raise the flag when this many tokens are out
  std::optional<double> cancel_ms;            ///< raise it this long after the start
};

/// Throws base::Error (usage) with the place, `file: requests[3].sampling.top_p`, for malformed JSON, an
/// unknown key, values that cannot be, and prompts that need a tokenizer which the model folder does not
/// have.
std::vector<SessionRequest> parse_session_requests(std::string_view text, std::string_view where,
                                                   const engine::LoadedModel& model);

}  // namespace aima::cli
