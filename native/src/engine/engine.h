/// One model on one device that answers requests one after another, and remembers prompts between them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "engine/passes.h"
#include "engine/prefix_cache.h"
#include "engine/sampler.h"
#include "model/config.h"

namespace aima::engine {

struct EngineOptions {
  std::int64_t capacity = 0;  ///< tokens of prompt and reply together
  std::int64_t context_tokens = max_context_tokens;
  std::size_t cache_bytes = 0;  ///< of the prefix cache; 0: none
  /// Let states that decode steps made enter the cache: a reply that comes back as history is not prefilled,
  /// but what follows may differ in the last bits from a cold run.
  bool reuse_decode_state = false;
};

struct Request {
  std::vector<std::int32_t> prompt;
  std::vector<std::int64_t>
      boundaries;  ///< token offsets where messages begin, ascending; hints for the cache
  std::optional<std::int64_t> generation;  ///< token offset of the generation prompt; as above
  Sampling sampling;
  std::int64_t max_tokens = 0;
  std::vector<std::int32_t> stop_ids;  ///< empty: only max_tokens ends the reply
  bool use_cache = true;
  /// Raised by any thread to end the request; looked at between tiles of work. It must stay up, and alive,
  /// until `run` has returned. May be null.
  const std::atomic<bool>* cancel = nullptr;

  std::function<void(const Choice&)> on_token;  ///< sees each token as soon as it is chosen; may be empty
  /// Sees the logits that each token was chosen from, [1, vocab]; may be empty.
  LogitsSink logits;
  bool all_logits = false;  ///< `logits` sees all rows of the prompt that were computed
};

enum class Finish { stop, length, cancel };

std::string_view name_of(Finish finish);

/// Seconds.
struct Timings {
  double restore = 0;      ///< looking into the cache and taking the state over
  double prefill = 0;      ///< until the logits behind the prompt, snapshots included
  double decode = 0;       ///< from there on
  double first_token = 0;  ///< from the start of the request
  double total = 0;
};

struct Result {
  std::vector<std::int32_t> tokens;  ///< a stop id that ended the reply included
  Finish finish = Finish::length;
  std::int64_t cached_tokens = 0;       ///< of the prompt, taken from the cache
  std::int64_t prefill_tokens = 0;      ///< of the prompt, computed (fewer than the rest when cancelled)
  std::int64_t decode_steps = 0;        ///< finished ones
  std::int64_t passes = 0;              ///< of prefill, finished
  std::vector<std::int64_t> snapshots;  ///< positions that entered the cache
  Timings timings;
};

class Engine {
 public:
  /// `device` (its vocabulary limit set to `vocab_limit`) and `config` must outlive the engine.
  Engine(device::Device& device, const model::Config& config, std::int32_t vocab_limit,
         const EngineOptions& options);

  /// Throws base::Error (usage): an empty prompt, ids outside the vocabulary, sampling out of range, more
  /// tokens than the capacity or the model's positions.
  void check(const Request& request) const;

  /// Checks and runs one request; callers on other threads wait for their turn. Whatever happens,
  /// cancellation and exceptions included, the next request starts from a clean state.
  Result run(const Request& request);

  const EngineOptions& options() const { return options_; }
  CacheFacts cache_facts() const;  ///< as the latest finished request left it; from any thread

 private:
  class Run;

  device::Device& device_;
  const model::Config& config_;
  std::int32_t vocab_limit_;
  EngineOptions options_;
  std::unique_ptr<device::State> state_;
  PrefixCache cache_;
  std::mutex running_;
  mutable std::mutex facts_mutex_;
  CacheFacts facts_;
};

}  // namespace aima::engine
