/// How a prompt is cut into prefill passes, and one forward pass through the device's joints.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "device/device.h"
#include "model/config.h"

namespace aima::engine {

/// The largest prefill pass there is, and the default of `--context-tokens`.
inline constexpr std::int64_t max_context_tokens = 8192;

/// One prefill pass: `tokens` tokens from `start` on, in the workspace of `bucket` tokens.
struct PassPlan {
  std::int64_t start = 0;
  std::int64_t tokens = 0;
  std::int64_t bucket = 0;

  bool operator==(const PassPlan&) const = default;
};

/// The workspace sizes for passes of up to `context_tokens` tokens: 1024, 2048, 4096, 8192 as far as they are
/// smaller, then `context_tokens` itself, ascending.
std::vector<std::int64_t> buckets(std::int64_t context_tokens);

/// Cuts tokens start .. start+count-1 (`start` a multiple of 64) into passes of the largest bucket, and a
/// last one in the smallest bucket that holds it. Token counts are exact: nothing is padded.
std::vector<PassPlan> plan_passes(std::int64_t start, std::int64_t count, std::int64_t context_tokens);

/// Takes whole rows of logits, [rows, vocab] f32, in the order of the tokens.
using LogitsSink = std::function<void(std::span<const float>)>;

/// Takes what one layer's router chose for a pass: experts and weights, [tokens, k] each.
using RoutingSink =
    std::function<void(int layer, std::span<const std::int32_t> ids, std::span<const float> weights)>;

/// What a pass without a sink computes at its end.
enum class Head { none, last_row };

/// Runs `pass` through every layer, then the head: of all rows when there is a `sink`, else as `head` says.
/// With `routing`, waits for the device after each layer.
void run_pass(device::Device& device, const model::Config& config, const device::Pass& pass,
              const LogitsSink& sink, Head head = Head::last_row, const RoutingSink& routing = {});

/// The draft head over the first `next.size()` rows of the pass on `state` that ran last; `next` are the
/// tokens that follow those rows.
void run_draft(device::Device& device, const model::Config& config, device::State& state,
               std::span<const std::int32_t> next, const LogitsSink& sink);

/// Refuses (usage) an empty prompt and ids outside the vocabulary.
void check_ids(std::span<const std::int32_t> ids, const model::Config& config);

}  // namespace aima::engine
