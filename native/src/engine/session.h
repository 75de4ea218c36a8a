/// One sequence on a device, driven by hand: prefill and decode. engine.h answers whole requests.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "device/device.h"
#include "engine/passes.h"
#include "model/config.h"

namespace aima::engine {

/// What a check may want to see of a session's passes, beside logits.
struct Probe {
  RoutingSink routing;
  LogitsSink draft;  ///< of the draft head, [rows, vocab]: of every row whose next token is in the same call
};

class Session {
 public:
  /// `capacity`: tokens that the sequence may reach. `context_tokens`: the largest prefill pass, a multiple
  /// of 64.
  Session(device::Device& device, const model::Config& config, std::int64_t capacity,
          std::int64_t context_tokens = max_context_tokens);

  /// Takes the prompt in; the logits of its last token (of all tokens, if there is a `sink`) are computed.
  /// The position must be a multiple of 64. Returns the greedy next token.
  std::int32_t prefill(std::span<const std::int32_t> ids, const LogitsSink& sink = {},
                       const Probe& probe = {});

  /// Takes one token in and returns the greedy next one.
  std::int32_t decode(std::int32_t id, const LogitsSink& sink = {}, const RoutingSink& routing = {});

  std::int64_t position() const { return state_->position(); }
  device::State& state() { return *state_; }

 private:
  device::Device& device_;
  const model::Config& config_;
  std::int64_t context_tokens_;
  std::unique_ptr<device::State> state_;
};

}  // namespace aima::engine
