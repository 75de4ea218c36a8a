#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "base/error.h"
#include "base/threads.h"
#include "engine/snapshot_points.h"

namespace aima::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

std::string_view name_of(Finish finish) {
  switch (finish) {
    case Finish::stop:
      return "stop";
    case Finish::length:
      return "length";
    case Finish::cancel:
      return "cancel";
  }
  return "";
}

/// One request on its way through the engine.
class Engine::Run {
 public:
  Run(Engine& engine, const Request& request)
      : engine_(engine),
        device_(engine.device_),
        state_(*engine.state_),
        request_(request),
        sampler_(request.sampling, engine.vocab_limit_, request.prompt) {}

  Result finish() {
    try {
      restore();
      prefill();
      decode();
    } catch (const base::Cancelled&) {
      result_.finish = Finish::cancel;
      if (result_.tokens.empty()) result_.timings.prefill = seconds_since(start_) - result_.timings.restore;
    }
    keep_reply();
    result_.timings.total = seconds_since(start_);
    return std::move(result_);
  }

 private:
  using Ids = std::span<const std::int32_t>;

  Ids prompt() const { return request_.prompt; }
  bool caches() const { return request_.use_cache && engine_.options_.cache_bytes > 0; }
  void check_cancel() const {
    if (request_.cancel != nullptr && request_.cancel->load()) throw base::Cancelled();
  }

  void restore();
  void prefill();
  void run_prefill_pass(const PassPlan& plan);
  LogitsSink all_rows();
  void store(Ids ids);
  void decode();
  Choice choose();
  void keep_decoded();
  void keep_reply();

  Engine& engine_;
  device::Device& device_;
  device::State& state_;
  const Request& request_;
  Sampler sampler_;
  Result result_;
  PrefixCache::Match match_;
  Clock::time_point start_ = Clock::now();
  std::vector<float> row_;
  std::unique_ptr<device::Snapshot> decoded_;  ///< the latest on a multiple of 64
};

void Engine::Run::restore() {
  check_cancel();
  if (caches()) match_ = engine_.cache_.find(prompt());
  if (match_.snapshot != nullptr) {
    device_.restore(state_, *match_.snapshot);
  } else {
    device_.clear(state_);
  }
  result_.cached_tokens = match_.position();
  match_.snapshot.reset();
  result_.timings.restore = seconds_since(start_);
}

void Engine::Run::prefill() {
  const Clock::time_point start = Clock::now();
  const auto tokens = static_cast<std::int64_t>(prompt().size());
  std::vector<std::int64_t> stops;
  if (caches()) {
    stops = snapshot_points({.tokens = tokens,
                             .start = state_.position(),
                             .shared = match_.shared,
                             .boundaries = request_.boundaries,
                             .generation = request_.generation});
  }
  stops.push_back(tokens);
  for (const std::int64_t stop : stops) {
    const std::int64_t from = state_.position();
    for (const PassPlan& plan : plan_passes(from, stop - from, engine_.options_.context_tokens))
      run_prefill_pass(plan);
  }
  result_.timings.prefill = seconds_since(start);
}

void Engine::Run::run_prefill_pass(const PassPlan& plan) {
  check_cancel();
  device_.reserve(plan.bucket);
  const Ids ids =
      prompt().subspan(static_cast<std::size_t>(plan.start), static_cast<std::size_t>(plan.tokens));
  const bool last = plan.start + plan.tokens == static_cast<std::int64_t>(prompt().size());
  run_pass(device_, engine_.config_, {.state = &state_, .phase = device::Phase::prefill, .ids = ids},
           all_rows(), last ? Head::last_row : Head::none);
  ++result_.passes;
  result_.prefill_tokens += plan.tokens;
  if (caches() && !last) store(prompt().first(static_cast<std::size_t>(state_.position())));
}

/// Shows every row of the prompt, where that is asked for, and keeps the last one for `choose`.
LogitsSink Engine::Run::all_rows() {
  if (!request_.logits || !request_.all_logits) return {};
  return [this](std::span<const float> rows) {
    const std::span last = rows.last(static_cast<std::size_t>(engine_.config_.vocab));
    row_.assign(last.begin(), last.end());
    request_.logits(rows);
  };
}

void Engine::Run::store(Ids ids) {
  if (engine_.cache_.touch(ids)) return;
  if (engine_.cache_.insert(ids, device_.snapshot(state_))) result_.snapshots.push_back(state_.position());
}

/// The token after the latest pass, whose last row the head has seen.
Choice Engine::Run::choose() {
  const bool shown = request_.logits && request_.all_logits && result_.tokens.empty();
  if ((sampler_.needs_logits() || request_.logits) && !shown) {
    row_.resize(static_cast<std::size_t>(engine_.config_.vocab));
    device_.read_logits(row_);
    if (request_.logits) request_.logits(row_);
  }
  if (sampler_.needs_logits()) return sampler_.choose(row_);
  const std::int32_t id = device_.read_argmax();
  sampler_.count(id);
  return {.id = id, .logprob = 0, .top = {}};
}

void Engine::Run::decode() {
  const Clock::time_point start = Clock::now();
  for (;;) {
    const Choice choice = choose();
    result_.tokens.push_back(choice.id);
    if (result_.tokens.size() == 1) result_.timings.first_token = seconds_since(start_);
    if (request_.on_token) request_.on_token(choice);
    result_.timings.decode = seconds_since(start);
    if (std::ranges::find(request_.stop_ids, choice.id) != request_.stop_ids.end()) {
      result_.finish = Finish::stop;
      return;
    }
    if (static_cast<std::int64_t>(result_.tokens.size()) >= request_.max_tokens) return;
    check_cancel();
    run_pass(device_, engine_.config_,
             {.state = &state_, .phase = device::Phase::decode, .ids = Ids(&choice.id, 1)}, {},
             Head::last_row);
    ++result_.decode_steps;
    keep_decoded();
  }
}

void Engine::Run::keep_decoded() {
  const bool wanted = engine_.options_.reuse_decode_state && caches();
  if (wanted && state_.position() % device::block_tokens == 0) decoded_ = device_.snapshot(state_);
}

void Engine::Run::keep_reply() {
  if (decoded_ == nullptr) return;
  std::vector<std::int32_t> ids = request_.prompt;
  ids.insert(ids.end(), result_.tokens.begin(), result_.tokens.end());
  const std::int64_t position = decoded_->position();
  const bool stored =
      engine_.cache_.insert(Ids(ids).first(static_cast<std::size_t>(position)), std::move(decoded_));
  if (stored) result_.snapshots.push_back(position);
}

Engine::Engine(device::Device& device, const model::Config& config, std::int32_t vocab_limit,
               const EngineOptions& options)
    : device_(device),
      config_(config),
      vocab_limit_(vocab_limit),
      options_(options),
      state_(device.create_state(options.capacity)),
      cache_(options.cache_bytes),
      facts_(cache_.facts()) {}

void Engine::check(const Request& request) const {
  check_ids(request.prompt, config_);
  check_sampling(request.sampling, vocab_limit_);
  if (request.max_tokens < 1)
    base::throw_usage({.what = "a reply has at least one token", .where = "max_tokens"});
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t window = std::min(options_.capacity, config_.max_positions);
  if (request.max_tokens <= window - prompt) return;
  base::throw_usage({.what = "the prompt and the reply do not fit into the window",
                     .why = std::to_string(prompt) + " prompt tokens and up to " +
                            std::to_string(request.max_tokens) + " new ones, the maximum context length is " +
                            std::to_string(window) + " tokens",
                     .hint = window < config_.max_positions
                                 ? "ask for fewer tokens, give a shorter prompt, or raise --cache-capacity"
                                 : "ask for fewer tokens or give a shorter prompt"});
}

Result Engine::run(const Request& request) {
  check(request);
  const std::scoped_lock lock(running_);
  /// Lowers the device's flag and publishes the cache's figures, whichever way the request ends.
  struct Ending {
    Engine& engine;
    ~Ending() {
      engine.device_.set_stop(nullptr);
      const std::scoped_lock guard(engine.facts_mutex_);
      engine.facts_ = engine.cache_.facts();
    }
  };
  const Ending ending{*this};
  device_.set_stop(request.cancel);
  return Run(*this, request).finish();
}

CacheFacts Engine::cache_facts() const {
  const std::scoped_lock lock(facts_mutex_);
  return facts_;
}

}  // namespace aima::engine
