#include "engine/session.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "base/error.h"

namespace aima::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void check_vocab(std::span<const std::int32_t> ids, std::int64_t vocab) {
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < vocab) continue;
    base::throw_usage({.what = "the token id " + std::to_string(id) + " is not in the vocabulary",
                       .why = "ids go from 0 to " + std::to_string(vocab - 1)});
  }
}

}  // namespace

Session::Session(device::Device& device, const model::Config& config, std::int64_t capacity,
                 std::int64_t context_tokens)
    : device_(device),
      config_(config),
      context_tokens_(context_tokens),
      state_(device.create_state(capacity)) {}

void Session::check_ids(std::span<const std::int32_t> ids) const {
  if (ids.empty()) base::throw_usage({.what = "the prompt is empty", .why = "there is nothing to continue"});
  check_vocab(ids, config_.vocab);
}

std::int32_t Session::prefill(std::span<const std::int32_t> ids, const LogitsSink& sink) {
  check_ids(ids);
  const std::int64_t base = position();
  for (const PassPlan& plan : plan_passes(base, static_cast<std::int64_t>(ids.size()), context_tokens_)) {
    device_.reserve(plan.bucket);
    const auto first = static_cast<std::size_t>(plan.start - base);
    const device::Pass pass{.state = state_.get(),
                            .phase = device::Phase::prefill,
                            .ids = ids.subspan(first, static_cast<std::size_t>(plan.tokens))};
    run_pass(device_, config_, pass, sink);
  }
  return device_.read_argmax();
}

std::int32_t Session::decode(std::int32_t id, const LogitsSink& sink) {
  const std::span ids(&id, 1);
  check_ids(ids);
  run_pass(device_, config_, {.state = state_.get(), .phase = device::Phase::decode, .ids = ids}, sink);
  return device_.read_argmax();
}

void check_request(const GenerateRequest& request, const model::Config& config) {
  if (request.prompt.empty())
    base::throw_usage({.what = "the prompt is empty", .why = "there is nothing to continue"});
  check_vocab(request.prompt, config.vocab);
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt + request.max_tokens > config.max_positions) {
    base::throw_usage({.what = "the prompt and the reply do not fit into the model's window",
                       .why = std::to_string(prompt) + " prompt tokens and up to " +
                              std::to_string(request.max_tokens) +
                              " new ones, the maximum context length is " +
                              std::to_string(config.max_positions) + " tokens",
                       .hint = "ask for fewer tokens or give a shorter prompt"});
  }
}

GenerateResult generate(Session& session, const GenerateRequest& request,
                        const std::function<void(std::int32_t)>& on_token, const LogitsSink& sink) {
  GenerateResult result;
  const Clock::time_point start = Clock::now();
  std::int32_t token = session.prefill(request.prompt, sink);
  result.prefill_seconds = seconds_since(start);
  const Clock::time_point first = Clock::now();
  for (;;) {
    result.tokens.push_back(token);
    on_token(token);
    if (std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) {
      result.finish = Finish::stop;
      break;
    }
    if (static_cast<std::int64_t>(result.tokens.size()) >= request.max_tokens) break;
    token = session.decode(token, sink);
  }
  result.decode_seconds = seconds_since(first);
  return result;
}

}  // namespace aima::engine
