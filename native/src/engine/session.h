/// One sequence on a device: prefill, decode, and greedy generation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "engine/passes.h"
#include "model/config.h"

namespace aima::engine {

class Session {
 public:
  /// `capacity`: tokens that the sequence may reach. `context_tokens`: the largest prefill pass, a multiple
  /// of 64.
  Session(device::Device& device, const model::Config& config, std::int64_t capacity,
          std::int64_t context_tokens = max_context_tokens);

  /// Takes the prompt in; the logits of its last token (of all tokens, if there is a `sink`) are computed.
  /// The position must be a multiple of 64. Returns the greedy next token.
  std::int32_t prefill(std::span<const std::int32_t> ids, const LogitsSink& sink = {});

  /// Takes one token in and returns the greedy next one.
  std::int32_t decode(std::int32_t id, const LogitsSink& sink = {});

  std::int64_t position() const { return state_->position(); }
  device::State& state() { return *state_; }

 private:
  void check_ids(std::span<const std::int32_t> ids) const;

  device::Device& device_;
  const model::Config& config_;
  std::int64_t context_tokens_;
  std::unique_ptr<device::State> state_;
};

struct GenerateRequest {
  std::vector<std::int32_t> prompt;
  std::int64_t max_tokens = 0;
  std::vector<std::int32_t> stop_ids;  ///< empty: only max_tokens ends the reply
};

enum class Finish { stop, length };

constexpr std::string_view name_of(Finish finish) { return finish == Finish::stop ? "stop" : "length"; }

struct GenerateResult {
  std::vector<std::int32_t> tokens;  ///< a stop id that ended the reply included
  Finish finish = Finish::length;
  double prefill_seconds = 0;
  double decode_seconds = 0;  ///< of tokens.size() - 1 steps
};

/// Refuses (usage) an empty prompt, ids outside the vocabulary, and more tokens than the model's positions.
void check_request(const GenerateRequest& request, const model::Config& config);

/// Greedy generation from an empty session. `on_token` sees each token as soon as it is known.
GenerateResult generate(Session& session, const GenerateRequest& request,
                        const std::function<void(std::int32_t)>& on_token, const LogitsSink& sink);

}  // namespace aima::engine
