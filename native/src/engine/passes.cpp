#include "engine/passes.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace aima::engine {
namespace {

/// Hands what the layer's router chose to the sink.
void show_routing(device::Device& device, const model::Config& config, std::int64_t tokens, int layer,
                  const RoutingSink& sink) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens * config.experts_per_token));
  std::vector<float> weights(ids.size());
  device.read_routing(ids, weights);
  sink(layer, ids, weights);
}

void run_layers(device::Device& device, const model::Config& config, std::int64_t tokens,
                const RoutingSink& routing) {
  device.embed();
  for (int layer = 0; layer < static_cast<int>(config.layers.size()); ++layer) {
    device.mixer_in(layer);
    if (config.layers[static_cast<std::size_t>(layer)] == model::LayerKind::gdn) {
      device.gdn_mix(layer);
    } else {
      device.attention_mix(layer);
    }
    device.mixer_out(layer);
    device.route(layer);
    if (routing) show_routing(device, config, tokens, layer, routing);
    device.experts(layer);
  }
}

/// Computes the logits of all rows with `head`, a few rows at a time, and hands them to the sink.
template <typename RunHead>
void show_logits(device::Device& device, const model::Config& config, std::int64_t tokens,
                 const RunHead& head, const LogitsSink& sink) {
  std::vector<float> rows;
  for (std::int64_t first = 0; first < tokens; first += device::max_head_rows) {
    const std::int64_t count = std::min(device::max_head_rows, tokens - first);
    head(device::Rows{.first = first, .count = count});
    rows.resize(static_cast<std::size_t>(count * config.vocab));
    device.read_logits(rows);
    sink(rows);
  }
}

void run_heads(device::Device& device, const model::Config& config, std::int64_t tokens,
               const LogitsSink& sink, Head head) {
  if (sink) {
    show_logits(device, config, tokens, [&](device::Rows rows) { device.head(rows); }, sink);
  } else if (head == Head::last_row) {
    device.head({.first = tokens - 1, .count = 1});
  }
}

}  // namespace

std::vector<std::int64_t> buckets(std::int64_t context_tokens) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1024; size < context_tokens; size *= 2) sizes.push_back(size);
  sizes.push_back(context_tokens);
  return sizes;
}

std::vector<PassPlan> plan_passes(std::int64_t start, std::int64_t count, std::int64_t context_tokens) {
  if (context_tokens < device::block_tokens || context_tokens % device::block_tokens != 0 ||
      context_tokens > max_context_tokens || start % device::block_tokens != 0) {
    throw base::Error({.what = "passes must start on, and be at most, multiples of 64 tokens up to 8192"});
  }
  const std::vector<std::int64_t> sizes = buckets(context_tokens);
  std::vector<PassPlan> passes;
  for (const std::int64_t end = start + count; start < end;) {
    const std::int64_t tokens = std::min(context_tokens, end - start);
    passes.push_back({.start = start, .tokens = tokens, .bucket = *std::ranges::lower_bound(sizes, tokens)});
    start += tokens;
  }
  return passes;
}

void run_pass(device::Device& device, const model::Config& config, const device::Pass& pass,
              const LogitsSink& sink, Head head, const RoutingSink& routing) {
  const bool recorded = !device.begin(pass);
  if (recorded && routing) {
    throw base::Error({.what = "the router's choices of a recorded step cannot be read",
                       .where = "device " + device.facts().name});
  }
  if (!recorded) {
    const auto tokens = static_cast<std::int64_t>(pass.ids.size());
    run_layers(device, config, tokens, routing);
    run_heads(device, config, tokens, sink, head);
  }
  device.end();
  if (!recorded || !sink) return;
  std::vector<float> row(static_cast<std::size_t>(config.vocab));
  device.read_logits(row);
  sink(row);
}

void run_draft(device::Device& device, const model::Config& config, device::State& state,
               std::span<const std::int32_t> next, const LogitsSink& sink) {
  device.draft(state, next);
  const auto rows = static_cast<std::int64_t>(next.size());
  show_logits(device, config, rows, [&](device::Rows r) { device.draft_head(r); }, sink);
}

void check_ids(std::span<const std::int32_t> ids, const model::Config& config) {
  if (ids.empty()) base::throw_usage({.what = "the prompt is empty", .why = "there is nothing to continue"});
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < config.vocab) continue;
    base::throw_usage({.what = "the token id " + std::to_string(id) + " is not in the vocabulary",
                       .why = "ids go from 0 to " + std::to_string(config.vocab - 1)});
  }
}

}  // namespace aima::engine
