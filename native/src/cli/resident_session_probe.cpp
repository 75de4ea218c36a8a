#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <atomic>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "cli/commands.h"
#include "cli/load_options.h"
#include "cli/resident.h"
#include "cli/session_requests.h"

namespace aima::cli {
namespace {

namespace bj = boost::json;
using Clock = std::chrono::steady_clock;

constexpr std::array<Option, 4> own_options = {{
    {"requests", "FILE", "the requests, in this order (aima/session-requests/v1)"},
    {"prefix-cache", "MIB", "budget of the prefix cache in MiB (default 1024; 0: none)"},
    {"reuse-decode-state", "", "let states that decode steps made enter the cache: the last bits may differ"},
    {"json", "", "print one JSON object (aima/resident-session-probe/v1) instead of a table"},
}};
constexpr auto options = joined(joined(resident_options, load_options), own_options);

/// XXH3-128 of numbers as they lie in memory (little-endian), in hexadecimal.
class Digest {
 public:
  Digest() { XXH3_128bits_reset(&state_); }
  template <typename T>
  void add(std::span<const T> values) {
    XXH3_128bits_update(&state_, values.data(), values.size_bytes());
  }
  std::string text() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    std::array<char, 40> out = {};
    std::snprintf(out.data(), out.size(), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                  static_cast<unsigned long long>(hash.low64));
    return out.data();
  }

 private:
  XXH3_state_t state_ = {};
};

/// A cancel flag that a clock or a count of tokens raises.
class Canceller {
 public:
  explicit Canceller(const SessionRequest& request) : tokens_(request.cancel_tokens) {
    if (tokens_ == 0) raise();
    if (request.cancel_ms) thread_ = std::thread([this, ms = *request.cancel_ms] { wait(ms); });
  }
  Canceller(const Canceller&) = delete;
  Canceller& operator=(const Canceller&) = delete;
  ~Canceller() { join(); }

  const std::atomic<bool>* flag() const { return &flag_; }
  void count_token() {
    if (tokens_ && ++seen_ == *tokens_) raise();
  }
  /// The request is over: how long ago was the flag raised, if it was.
  std::optional<double> finish() {
    const Clock::time_point now = Clock::now();
    join();
    if (!raised_ || *raised_ > now) return std::nullopt;
    return std::chrono::duration<double>(now - *raised_).count();
  }

 private:
  void raise() {
    raised_ = Clock::now();
    flag_ = true;
  }
  void wait(double ms) {
    std::unique_lock lock(mutex_);
    if (!over_changed_.wait_for(lock, std::chrono::duration<double, std::milli>(ms),
                                [this] { return over_; }))
      raise();
  }
  void join() {
    if (!thread_.joinable()) return;
    {
      const std::scoped_lock lock(mutex_);
      over_ = true;
    }
    over_changed_.notify_one();
    thread_.join();
  }

  std::atomic<bool> flag_{false};
  std::optional<std::int64_t> tokens_;
  std::int64_t seen_ = 0;
  std::optional<Clock::time_point> raised_;  ///< of the thread until it is joined
  std::mutex mutex_;
  std::condition_variable over_changed_;
  bool over_ = false;
  std::thread thread_;
};

struct Outcome {
  const SessionRequest& asked;
  engine::Result result;
  engine::CacheFacts cache;
  std::string token_digest;
  std::string logits_digest;
  std::optional<double> cancel_seconds;
  bj::array logprobs;
};

bj::array json_of(std::span<const engine::Logprob> top) {
  bj::array list;
  for (const engine::Logprob& each : top)
    list.push_back(bj::object{{"id", each.id}, {"logprob", each.value}});
  return list;
}

Outcome run_request(engine::Engine& engine, const SessionRequest& asked) {
  Outcome out{.asked = asked,
              .result = {},
              .cache = {},
              .token_digest = {},
              .logits_digest = {},
              .cancel_seconds = {},
              .logprobs = {}};
  Canceller canceller(asked);
  Digest logits;
  engine::Request request = asked.request;
  request.cancel = canceller.flag();
  request.logits = [&](std::span<const float> row) { logits.add(row); };
  request.on_token = [&](const engine::Choice& choice) {
    canceller.count_token();
    if (request.sampling.logprobs) {
      out.logprobs.push_back(
          bj::object{{"id", choice.id}, {"logprob", choice.logprob}, {"top", json_of(choice.top)}});
    }
  };
  out.result = engine.run(request);
  out.cancel_seconds = canceller.finish();
  out.cache = engine.cache_facts();
  Digest tokens;
  tokens.add(std::span<const std::int32_t>(out.result.tokens));
  out.token_digest = tokens.text();
  out.logits_digest = logits.text();
  return out;
}

bj::object json_of(const engine::CacheFacts& facts) {
  return {{"budget_bytes", facts.budget}, {"bytes", facts.bytes},      {"entries", facts.entries},
          {"hits", facts.hits},           {"misses", facts.misses},    {"insertions", facts.insertions},
          {"evictions", facts.evictions}, {"refusals", facts.refusals}};
}

bj::object json_of(const Outcome& out, const text::Tokenizer* tokenizer) {
  const engine::Result& result = out.result;
  const engine::Timings& seconds = result.timings;
  bj::value text;
  if (tokenizer != nullptr) text = tokenizer->decode(result.tokens, true);
  bj::object timings{{"restore_ms", seconds.restore * 1e3},
                     {"prefill_ms", seconds.prefill * 1e3},
                     {"decode_ms", seconds.decode * 1e3},
                     {"first_token_ms", seconds.first_token * 1e3},
                     {"total_ms", seconds.total * 1e3}};
  if (out.cancel_seconds) timings["cancel_to_free_ms"] = *out.cancel_seconds * 1e3;
  bj::object report{{"name", out.asked.name},
                    {"finish_reason", engine::name_of(result.finish)},
                    {"prompt_tokens", out.asked.request.prompt.size()},
                    {"cached_tokens", result.cached_tokens},
                    {"prefill_tokens", result.prefill_tokens},
                    {"prefill_passes", result.passes},
                    {"decode_steps", result.decode_steps},
                    {"token_ids", bj::array(result.tokens.begin(), result.tokens.end())},
                    {"text", std::move(text)},
                    {"token_hash", out.token_digest},
                    {"logits_hash", out.logits_digest},
                    {"snapshots", bj::array(result.snapshots.begin(), result.snapshots.end())},
                    {"timings", std::move(timings)},
                    {"cache", json_of(out.cache)}};
  if (out.asked.request.sampling.logprobs) report["logprobs"] = out.logprobs;
  return report;
}

std::string line_of(const Outcome& out) {
  const engine::Result& result = out.result;
  std::array<char, 256> line = {};
  std::snprintf(line.data(), line.size(), "%-16s %7zu %7lld %7lld %6zu %-7s %9.1f %9.1f  %.16s  %.16s\n",
                out.asked.name.c_str(), out.asked.request.prompt.size(),
                static_cast<long long>(result.cached_tokens), static_cast<long long>(result.prefill_tokens),
                result.tokens.size(), std::string(engine::name_of(result.finish)).c_str(),
                result.timings.prefill * 1e3, result.timings.decode * 1e3, out.token_digest.c_str(),
                out.logits_digest.c_str());
  return line.data();
}

void print_json(const Resident& resident, const bj::array& requests) {
  write_out(bj::serialize(bj::object{
                {"schema", "aima/resident-session-probe/v1"},
                {"device", resident.facts().name},
                {"detail", resident.facts().detail},
                {"math", name_of(resident.facts().math)},
                {"token_hash_of", "XXH3-128 of the reply's ids as 32-bit little-endian integers"},
                {"logits_hash_of",
                 "XXH3-128 of the f32 logits rows, padding included, that tokens were chosen from"},
                {"load_ms", resident.load_seconds() * 1e3},
                {"memory", resident.memory_json()},
                {"requests", requests}}) +
            "\n");
}

int run_command(const Arguments& arguments) {
  const std::filesystem::path file = arguments.required("requests");
  const auto mebibytes = static_cast<std::size_t>(arguments.integer("prefix-cache", 1024, 0, 1 << 24));
  const std::string text = base::read_text(file);
  Resident resident(arguments);
  const std::vector<SessionRequest> requests = parse_session_requests(text, file.string(), resident.model());
  std::size_t longest = 1;
  for (const SessionRequest& each : requests) longest = std::max(longest, each.request.prompt.size());
  engine::Engine& engine = resident.start({.longest_prompt = static_cast<std::int64_t>(longest),
                                           .cache_bytes = mebibytes << 20,
                                           .reuse_decode_state = arguments.has("reuse-decode-state")});
  for (const SessionRequest& each : requests) engine.check(each.request);
  const bool json = arguments.has("json");
  if (!json) {
    std::fprintf(stderr, "%s\n%s\n", resident.facts().detail.c_str(), resident.memory_line().c_str());
    write_out(
        "name              prompt  cached prefill  reply finish  prefill ms decode ms  tokens            "
        "logits\n");
  }
  bj::array reports;
  for (const SessionRequest& each : requests) {
    const Outcome out = run_request(engine, each);
    if (json) {
      reports.push_back(json_of(out, resident.model().tokenizer.get()));
    } else {
      write_out(line_of(out));
    }
  }
  if (json) print_json(resident, reports);
  return 0;
}

}  // namespace

constinit const Command resident_session_probe_command = {
    .name = "resident-session-probe",
    .summary = "Load once, run a list of requests, and say what each took and what the cache gave",
    .usage = "--model-dir DIR --requests FILE [OPTIONS]",
    .options = options,
    .notes =
        "Hashes are XXH3-128: of a reply's token ids, and of the logits that they were chosen from. Equal\n"
        "hashes of logits are equal bits, whatever the cache gave.",
    .run = run_command};

}  // namespace aima::cli
