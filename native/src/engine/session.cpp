#include "engine/session.h"

#include <algorithm>

namespace aima::engine {

Session::Session(device::Device& device, const model::Config& config, std::int64_t capacity,
                 std::int64_t context_tokens)
    : device_(device),
      config_(config),
      context_tokens_(context_tokens),
      state_(device.create_state(capacity)) {}

std::int32_t Session::prefill(std::span<const std::int32_t> ids, const LogitsSink& sink, const Probe& probe) {
  check_ids(ids, config_);
  const std::int64_t base = position();
  std::int32_t best = 0;
  for (const PassPlan& plan : plan_passes(base, static_cast<std::int64_t>(ids.size()), context_tokens_)) {
    device_.reserve(plan.bucket);
    const auto first = static_cast<std::size_t>(plan.start - base);
    const device::Pass pass{.state = state_.get(),
                            .phase = device::Phase::prefill,
                            .ids = ids.subspan(first, static_cast<std::size_t>(plan.tokens))};
    const std::span next = ids.subspan(first + 1, std::min(pass.ids.size(), ids.size() - first - 1));
    const bool last = next.size() < pass.ids.size();
    run_pass(device_, config_, pass, sink, last ? Head::last_row : Head::none, probe.routing);
    if (last) best = device_.read_argmax();
    if (probe.draft && !next.empty()) run_draft(device_, config_, *state_, next, probe.draft);
  }
  return best;
}

std::int32_t Session::decode(std::int32_t id, const LogitsSink& sink, const RoutingSink& routing) {
  const std::span ids(&id, 1);
  check_ids(ids, config_);
  run_pass(device_, config_, {.state = state_.get(), .phase = device::Phase::decode, .ids = ids}, sink,
           Head::last_row, routing);
  return device_.read_argmax();
}

}  // namespace aima::engine
