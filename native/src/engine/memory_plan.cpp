#include "engine/memory_plan.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace aima::engine {
namespace {

constexpr std::int64_t block = device::block_tokens;

std::size_t bytes_of(const model::Matrix& matrix) {
  return static_cast<std::size_t>(matrix.rows * matrix.row_bytes());
}

std::size_t bytes_of(const model::Expert& expert) {
  return bytes_of(expert.gate) + bytes_of(expert.up) + bytes_of(expert.down);
}

std::size_t bytes_of(const std::vector<float>& vector) { return vector.size() * sizeof(float); }

std::size_t bytes_of(const model::LayerWeights& layer) {
  std::size_t bytes = bytes_of(layer.input_norm) + bytes_of(layer.post_norm);
  if (const auto& g = layer.gdn) {
    for (const model::Matrix* matrix : {&g->qkv, &g->z, &g->a, &g->b, &g->out}) bytes += bytes_of(*matrix);
    bytes += bytes_of(g->conv) + bytes_of(g->decay) + bytes_of(g->dt_bias) + bytes_of(g->norm);
  }
  if (const auto& a = layer.attention) {
    for (const model::Matrix* matrix : {&a->q, &a->k, &a->v, &a->out}) bytes += bytes_of(*matrix);
    bytes += bytes_of(a->q_norm) + bytes_of(a->k_norm);
  }
  for (const model::Expert& expert : layer.moe.experts) bytes += bytes_of(expert);
  return bytes + bytes_of(layer.moe.router) + bytes_of(layer.moe.shared) + bytes_of(layer.moe.shared_gate);
}

/// The sampler's rows: the logits read back, their adjusted copy, and candidates of 16 bytes, in a vector
/// that may have grown to twice its size.
std::size_t sampling_bytes(std::int64_t vocab) { return static_cast<std::size_t>(vocab) * (4 + 4 + 3 * 16); }

MemoryPlan plan_for(const device::Device& device, const MemoryRequest& request, std::int64_t capacity,
                    const base::ProcessMemory& process) {
  const std::size_t in_heap = request.weights - request.weights_mapped;
  const std::size_t held = process.anonymous + process.code;
  return {.capacity = capacity,
          .context_tokens = request.context_tokens,
          .process = held > in_heap ? held - in_heap : 0,
          .weights = request.weights,
          .weights_mapped = request.weights_mapped,
          .state = device.state_bytes(capacity),
          .workspace = device.workspace_bytes(request.context_tokens) + sampling_bytes(request.vocab),
          .cache = request.cache_bytes == 0 ? 0 : request.cache_bytes + device.state_bytes(0)};
}

const base::MemoryLimit* exceeded(const MemoryPlan& plan, std::span<const base::MemoryLimit> limits,
                                  double share) {
  for (const base::MemoryLimit& limit : limits) {
    if (static_cast<double>(plan.needed(limit.counts_mapped)) > share * static_cast<double>(limit.available))
      return &limit;
  }
  return nullptr;
}

/// The largest multiple of 64 that fits, or `most_capacity`; 0 where not even 64 tokens do.
std::int64_t fitting_capacity(const device::Device& device, const MemoryRequest& request,
                              std::span<const base::MemoryLimit> limits) {
  std::int64_t fits = 0;
  std::int64_t fails = (request.most_capacity + block - 1) / block + 1;
  while (fits + 1 < fails) {
    const std::int64_t middle = fits + (fails - fits) / 2;
    (exceeded(plan_for(device, request, middle * block, {}), limits, 0.9) == nullptr ? fits : fails) = middle;
  }
  return std::min(fits * block, request.most_capacity);
}

[[noreturn]] void refuse(const MemoryPlan& plan, const base::MemoryLimit& limit, std::int64_t fits) {
  using base::format_bytes;
  std::string why = "weights " + format_bytes(plan.weights) + ", keys, values and states " +
                    format_bytes(plan.state) + ", workspace for passes of " +
                    std::to_string(plan.context_tokens) + " tokens " + format_bytes(plan.workspace);
  if (plan.cache != 0) why += ", prefix cache " + format_bytes(plan.cache);
  why += "; " + format_bytes(plan.needed(limit.counts_mapped)) + " are still to be taken and " +
         format_bytes(limit.available) + " available (" + limit.source + ")";
  std::string hint = plan.cache != 0 ? "a smaller --prefix-cache or --context-tokens takes less"
                                     : "a smaller --context-tokens takes less";
  if (fits > 0) hint = "--cache-capacity " + std::to_string(fits) + " fits";
  throw base::Error(
      {.what = "a window of " + std::to_string(plan.capacity) + " tokens does not fit into memory",
       .where = {},
       .why = std::move(why),
       .hint = std::move(hint)});
}

}  // namespace

std::size_t weights_bytes(const model::Weights& weights) {
  std::size_t bytes = bytes_of(weights.embed) + bytes_of(weights.final_norm);
  if (weights.head.data != weights.embed.data) bytes += bytes_of(weights.head);
  for (const model::LayerWeights& layer : weights.layers) bytes += bytes_of(layer);
  return bytes;
}

MemoryPlan plan_memory(const device::Device& device, const MemoryRequest& request,
                       const base::ProcessMemory& process, std::span<const base::MemoryLimit> limits) {
  const std::int64_t fits = fitting_capacity(device, request, limits);
  const std::int64_t capacity = request.capacity.value_or(fits > 0 ? fits : block);
  const MemoryPlan plan = plan_for(device, request, capacity, process);
  const bool enough = request.capacity || fits > 0;
  if (const base::MemoryLimit* limit = exceeded(plan, limits, enough ? 1.0 : 0.9)) refuse(plan, *limit, fits);
  return plan;
}

}  // namespace aima::engine
