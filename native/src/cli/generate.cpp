#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/memory.h"
#include "base/npy.h"
#include "cli/commands.h"
#include "cli/load_options.h"
#include "cli/resident.h"
#include "cli/sampling_options.h"
#include "cli/signals.h"
#include "engine/session.h"

namespace aima::cli {
namespace {

namespace bj = boost::json;

constexpr std::array<Option, 8> own_options = {{
    {"prompt", "TEXT", "text to continue; needs tokenizer.json in the folder"},
    {"prompt-ids", "LIST", "token ids to continue, with commas between them"},
    {"max-tokens", "N", "most tokens to generate (default 128)"},
    {"added-tokens", "", "read <|im_start|> and the like in --prompt as control tokens, not as text"},
    {"ignore-eos", "", "go on after a stop token"},
    {"logits-out", "FILE", "write f32 logits [prompt + generated - 1, vocabulary] as .npy"},
    {"mtp-logits-out", "FILE",
     "write the draft head's f32 logits [prompt - 1, vocabulary] as .npy: row t scores token t + 2"},
    {"json", "", "print one JSON object (aima/generate/v1) instead of the text"},
}};
constexpr auto options =
    joined(joined(joined(resident_options, load_options), own_options), sampling_options);

std::vector<std::int32_t> read_prompt(const Arguments& arguments, const engine::LoadedModel& model) {
  const std::optional<std::string> ids = arguments.value("prompt-ids");
  if (ids) return parse_ids(*ids, "--prompt-ids");
  if (model.tokenizer == nullptr) {
    base::throw_usage({.what = "--prompt needs a tokenizer, and the folder has no tokenizer.json",
                       .where = arguments.required("model-dir"),
                       .hint = "add the model's tokenizer.json, or give token ids with --prompt-ids"});
  }
  return model.tokenizer->encode(*arguments.value("prompt"), arguments.has("added-tokens"));
}

/// Prints the reply while it is made: text, or ids where there is no tokenizer.
class Stream {
 public:
  explicit Stream(const text::Tokenizer* tokenizer) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer);
  }
  void push(std::int32_t id) {
    if (decoder_) {
      write_out(decoder_->push(id));
    } else {
      write_out((first_ ? "" : ",") + std::to_string(id));
    }
    first_ = false;
  }
  void finish() { write_out((decoder_ ? decoder_->finish() : "") + "\n"); }

 private:
  std::optional<text::StreamDecoder> decoder_;
  bool first_ = true;
};

double rate(std::int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

bj::array json_ids(std::span<const std::int32_t> ids) { return bj::array(ids.begin(), ids.end()); }

/// Milliseconds by joint, prefill and decode.
bj::object json_joints(std::span<const device::JointTime> joints) {
  bj::object out;
  for (const device::JointTime& time : joints)
    out[time.joint] = bj::object{{"prefill_ms", time.prefill * 1e3}, {"decode_ms", time.decode * 1e3}};
  return out;
}

struct Run {
  const engine::Request& request;
  const engine::Result& result;
  const Resident& resident;

  std::int64_t steps() const { return result.decode_steps; }
  std::int64_t prompt() const { return static_cast<std::int64_t>(request.prompt.size()); }
};

std::string json_of(const Run& run) {
  const text::Tokenizer* tokenizer = run.resident.model().tokenizer.get();
  const engine::Timings& seconds = run.result.timings;
  bj::value text;
  if (tokenizer != nullptr) text = tokenizer->decode(run.result.tokens, true);
  const bj::object timings{{"load_ms", run.resident.load_seconds() * 1e3},
                           {"prefill_tokens", run.prompt()},
                           {"prefill_ms", seconds.prefill * 1e3},
                           {"prefill_tokens_per_second", rate(run.prompt(), seconds.prefill)},
                           {"decode_tokens", run.steps()},
                           {"decode_ms", seconds.decode * 1e3},
                           {"decode_tokens_per_second", rate(run.steps(), seconds.decode)},
                           {"joints", json_joints(run.resident.joint_times())}};
  return bj::serialize(bj::object{{"schema", "aima/generate/v1"},
                                  {"prompt_ids", json_ids(run.request.prompt)},
                                  {"token_ids", json_ids(run.result.tokens)},
                                  {"text", std::move(text)},
                                  {"finish_reason", engine::name_of(run.result.finish)},
                                  {"device", run.resident.facts().name},
                                  {"device_detail", run.resident.facts().detail},
                                  {"math", name_of(run.resident.facts().math)},
                                  {"memory", run.resident.memory_json()},
                                  {"load", load_json(run.resident.model())},
                                  {"timings", timings}}) +
         "\n";
}

void print_timings(const Run& run) {
  const engine::Timings& seconds = run.result.timings;
  std::fprintf(stderr, "weights: %s\n", load_line(run.resident.model().load_report()).c_str());
  std::fprintf(stderr,
               "load %.2f s; prefill %lld tokens in %.2f s, %.1f tokens/s; decode %lld steps in %.2f s, %.1f "
               "tokens/s\n",
               run.resident.load_seconds(), static_cast<long long>(run.prompt()), seconds.prefill,
               rate(run.prompt(), seconds.prefill), static_cast<long long>(run.steps()), seconds.decode,
               rate(run.steps(), seconds.decode));
  std::fprintf(stderr, "peak memory %s\n", base::format_bytes(base::process_memory().resident_peak).c_str());
}

engine::Request read_request(const Arguments& arguments, const engine::LoadedModel& model) {
  engine::Request request;
  request.prompt = read_prompt(arguments, model);
  request.sampling = read_sampling(arguments, model.vocab_limit());
  request.max_tokens = arguments.integer("max-tokens", 128, 1, 1 << 24);
  if (!arguments.has("ignore-eos")) request.stop_ids = model.stop_ids;
  return request;
}

void check_draft_head(const Arguments& arguments, Resident& resident) {
  if (resident.device().has_draft_head()) return;
  base::throw_usage({.what = "--mtp-logits-out: the checkpoint has no draft head",
                     .where = arguments.required("model-dir"),
                     .why = "there is no tensor `mtp.fc.weight`"});
}

/// The draft head's logits of the prompt, in a pass of their own over a second state.
void write_drafts(base::NpyMatrixWriter& drafts, const Arguments& arguments, Resident& resident,
                  std::span<const std::int32_t> prompt) {
  const model::Config& config = resident.model().config;
  drafts.set_columns(config.vocab);
  engine::Session session(
      resident.device(), config, static_cast<std::int64_t>(prompt.size()),
      arguments.integer("context-tokens", engine::max_context_tokens, 64, engine::max_context_tokens));
  session.prefill(prompt, {},
                  {.routing = {}, .draft = [&](std::span<const float> rows) { drafts.append(rows); }});
  drafts.commit();
}

void check_given(const Arguments& arguments) {
  if (arguments.has("prompt") && arguments.has("prompt-ids"))
    base::throw_usage({.what = "give --prompt or --prompt-ids, not both"});
  const bool prompt = arguments.has("prompt") || arguments.has("prompt-ids");
  const bool folder = arguments.has("model-dir");
  if (prompt && folder) return;
  std::string missing = folder ? "" : "--model-dir";
  if (!prompt) missing += std::string(folder ? "" : " and ") + "--prompt (or --prompt-ids)";
  base::throw_usage({.what = missing + (prompt || folder ? " is required" : " are required"),
                     .hint = "`aima-engine generate --help` lists the options"});
}

/// A signal that ends the process leaves the reply as far as it is, and no other output.
engine::Result run_until_signal(engine::Engine& engine, engine::Request& request) {
  engine::Result result;
  {
    const SignalStop stop;
    request.cancel = stop.flag();
    result = engine.run(request);
  }
  end_if_signalled();
  return result;
}

int run_command(const Arguments& arguments) {
  check_given(arguments);
  std::optional<base::NpyMatrixWriter> logits;
  std::optional<base::NpyMatrixWriter> drafts;
  // Before the load, which a path that cannot be written should not cost.
  if (const auto file = arguments.value("logits-out")) logits.emplace(*file, 1, "--logits-out");
  if (const auto file = arguments.value("mtp-logits-out")) drafts.emplace(*file, 1, "--mtp-logits-out");
  Resident resident(arguments);
  if (drafts) check_draft_head(arguments, resident);
  const engine::LoadedModel& model = resident.model();
  engine::Request request = read_request(arguments, model);
  engine::Engine& engine =
      resident.start({.longest_prompt = static_cast<std::int64_t>(request.prompt.size())});
  engine.check(request);
  const bool json = arguments.has("json");
  if (!json) {
    std::fprintf(stderr, "%s, %s math\n%s\n", resident.facts().detail.c_str(), name_of(resident.facts().math),
                 resident.memory_line().c_str());
  }
  if (logits) {
    logits->set_columns(model.config.vocab);
    request.logits = [&](std::span<const float> rows) { logits->append(rows); };
    request.all_logits = true;
  }
  Stream stream(model.tokenizer.get());
  if (!json) request.on_token = [&](const engine::Choice& choice) { stream.push(choice.id); };
  const engine::Result result = run_until_signal(engine, request);
  if (logits) logits->commit();
  if (drafts) write_drafts(*drafts, arguments, resident, request.prompt);
  const Run run{.request = request, .result = result, .resident = resident};
  if (json) {
    write_out(json_of(run));
  } else {
    stream.finish();
    print_timings(run);
  }
  return 0;
}

}  // namespace

constinit const Command generate_command = {
    .name = "generate",
    .summary = "Continue a prompt, with the likeliest token unless a temperature is given",
    .usage = "--model-dir DIR (--prompt TEXT | --prompt-ids LIST) [OPTIONS]",
    .options = options,
    .notes =
        "The text appears on stdout as it is produced, times on stderr. `token_ids` holds a stop token that "
        "ended\n"
        "the reply; `text` does not. The prompt is taken as it is: no chat template is applied.\n"
        "Without options of sampling the reply is greedy, whatever generation_config.json says of sampling.\n"
        "Order: penalties, bias, temperature, top-k, top-p, min-p, draw.",
    .run = run_command};

}  // namespace aima::cli
