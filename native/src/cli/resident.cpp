#include "cli/resident.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/memory.h"
#include "cli/load_options.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/tables.h"

namespace aima::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, 2> maths = {"bf16", "f32"};

/// The largest window that the model was made for; `--cache-capacity` goes no further.
constexpr std::int64_t most_capacity = 262144;

std::int64_t read_context(const Arguments& arguments) {
  const std::int64_t context =
      arguments.integer("context-tokens", engine::max_context_tokens, 64, engine::max_context_tokens);
  if (context % device::block_tokens != 0)
    base::throw_usage({.what = "--context-tokens must be a multiple of 64"});
  return context;
}

void check_device(const Arguments& arguments) {
  const std::optional<std::string> name = arguments.value("device");
  if (!name || *name == "cpu") return;
  base::throw_usage({.what = "--device cannot be `" + *name + "`",
                     .why = "this version computes on the CPU only: cpu",
                     .hint = "leave --device out"});
}

}  // namespace

Resident::Resident(const Arguments& arguments) : context_tokens_(read_context(arguments)) {
  const Clock::time_point start = Clock::now();
  const Math math = arguments.choice("math", maths) == "f32" ? Math::f32 : Math::bf16;
  const auto threads = static_cast<int>(arguments.integer("threads", 0, 1, 1024));
  const std::optional<std::string> isa = arguments.value("isa");
  const device::cpu::CpuOptions cpu{
      .math = math, .threads = threads, .isa = isa ? &device::cpu::isa_named(*isa) : nullptr};
  check_device(arguments);
  if (arguments.has("cache-capacity")) capacity_ = arguments.integer("cache-capacity", 0, 64, most_capacity);
  model_ = engine::load_model(arguments.required("model-dir"), math, load_request(arguments));
  device_ = std::make_unique<device::cpu::CpuDevice>(model_->config, model_->weights, cpu);
  device_->set_vocab_limit(model_->vocab_limit());
  load_seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
}

engine::Engine& Resident::start(const Start& start) {
  const std::vector<std::int64_t> sizes = engine::buckets(context_tokens_);
  const auto bucket = std::ranges::lower_bound(sizes, std::min(start.longest_prompt, context_tokens_));
  const std::size_t weights = engine::weights_bytes(model_->weights);
  const std::int64_t positions = std::min(model_->config.max_positions, most_capacity);
  if (capacity_) capacity_ = std::min(*capacity_, positions);
  plan_ = engine::plan_memory(*device_,
                              {.weights = weights,
                               .weights_mapped = model_->load_report().mapped_bytes,
                               .vocab = model_->config.vocab,
                               .context_tokens = *bucket,
                               .cache_bytes = start.cache_bytes,
                               .capacity = capacity_,
                               .most_capacity = positions},
                              base::process_memory(), base::memory_limits());
  engine_ =
      std::make_unique<engine::Engine>(*device_, model_->config, model_->vocab_limit(),
                                       engine::EngineOptions{.capacity = plan_.capacity,
                                                             .context_tokens = *bucket,
                                                             .cache_bytes = start.cache_bytes,
                                                             .reuse_decode_state = start.reuse_decode_state});
  return *engine_;
}

boost::json::object Resident::memory_json() const {
  return {{"capacity_tokens", plan_.capacity},
          {"context_tokens", plan_.context_tokens},
          {"process_bytes", plan_.process},
          {"weights_bytes", plan_.weights},
          {"weights_mapped_bytes", plan_.weights_mapped},
          {"state_bytes", plan_.state},
          {"workspace_bytes", plan_.workspace},
          {"cache_bytes", plan_.cache},
          {"planned_peak_bytes", plan_.peak()},
          {"peak_rss_bytes", base::process_memory().resident_peak}};
}

std::string Resident::memory_line() const {
  using base::format_bytes;
  std::string line = "window " + std::to_string(plan_.capacity) + " tokens; memory at most " +
                     format_bytes(plan_.peak()) + ": weights " + format_bytes(plan_.weights) +
                     ", keys, values and states " + format_bytes(plan_.state) + ", workspace " +
                     format_bytes(plan_.workspace);
  if (plan_.cache != 0) line += ", prefix cache " + format_bytes(plan_.cache);
  return line + ", process " + format_bytes(plan_.process);
}

}  // namespace aima::cli
