#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/npy.h"
#include "cli/commands.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/tables.h"
#include "engine/loaded_model.h"
#include "engine/session.h"

namespace aima::cli {
namespace {

namespace bj = boost::json;
using Clock = std::chrono::steady_clock;

constexpr std::array<Option, 13> options = {{
    {"model-dir", "DIR", "folder with config.json, the .safetensors files and tokenizer.json"},
    {"prompt", "TEXT", "text to continue; needs tokenizer.json in the folder"},
    {"prompt-ids", "LIST", "token ids to continue, with commas between them"},
    {"max-tokens", "N", "most tokens to generate (default 128)"},
    {"device", "NAME", "cpu, the only one in this version"},
    {"math", "MODE", "bf16 (default), or f32: round no input of a matrix product"},
    {"threads", "N", "threads to compute with, each pinned to a core (default: one per usable core)"},
    {"isa", "NAME", "instruction set, no better than the processor's (default: the best; see doctor)"},
    {"context-tokens", "N", "most tokens in one prefill pass, a multiple of 64 (default 8192)"},
    {"added-tokens", "", "read <|im_start|> and the like in --prompt as control tokens, not as text"},
    {"ignore-eos", "", "go on after a stop token"},
    {"logits-out", "FILE", "write f32 logits [prompt + generated - 1, vocabulary] as .npy"},
    {"json", "", "print one JSON object (aima/generate/v1) instead of the text"},
}};

constexpr std::array<std::string_view, 1> devices = {"cpu"};
constexpr std::array<std::string_view, 2> maths = {"bf16", "f32"};

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
  const engine::GenerateRequest& request;
  const engine::GenerateResult& result;
  const device::Facts& facts;
  std::vector<device::JointTime> joints;
  double load_seconds;

  std::int64_t steps() const { return static_cast<std::int64_t>(result.tokens.size()) - 1; }
  std::int64_t prompt() const { return static_cast<std::int64_t>(request.prompt.size()); }
};

std::string json_of(const Run& run, const text::Tokenizer* tokenizer) {
  bj::value text;
  if (tokenizer != nullptr) text = tokenizer->decode(run.result.tokens, true);
  const bj::object timings{{"load_ms", run.load_seconds * 1e3},
                           {"prefill_tokens", run.prompt()},
                           {"prefill_ms", run.result.prefill_seconds * 1e3},
                           {"prefill_tokens_per_second", rate(run.prompt(), run.result.prefill_seconds)},
                           {"decode_tokens", run.steps()},
                           {"decode_ms", run.result.decode_seconds * 1e3},
                           {"decode_tokens_per_second", rate(run.steps(), run.result.decode_seconds)},
                           {"joints", json_joints(run.joints)}};
  return bj::serialize(bj::object{{"schema", "aima/generate/v1"},
                                  {"prompt_ids", json_ids(run.request.prompt)},
                                  {"token_ids", json_ids(run.result.tokens)},
                                  {"text", std::move(text)},
                                  {"finish_reason", engine::name_of(run.result.finish)},
                                  {"device", run.facts.name},
                                  {"device_detail", run.facts.detail},
                                  {"math", name_of(run.facts.math)},
                                  {"timings", timings}}) +
         "\n";
}

void print_timings(const Run& run) {
  std::fprintf(stderr, "%s, %s math\n", run.facts.detail.c_str(), name_of(run.facts.math));
  std::fprintf(stderr,
               "load %.2f s; prefill %lld tokens in %.2f s, %.1f tokens/s; decode %lld steps in %.2f s, %.1f "
               "tokens/s\n",
               run.load_seconds, static_cast<long long>(run.prompt()), run.result.prefill_seconds,
               rate(run.prompt(), run.result.prefill_seconds), static_cast<long long>(run.steps()),
               run.result.decode_seconds, rate(run.steps(), run.result.decode_seconds));
}

void check_usage(const Arguments& arguments) {
  if (arguments.has("prompt") == arguments.has("prompt-ids")) {
    base::throw_usage({.what = "give either --prompt or --prompt-ids"});
  }
  const std::int64_t context =
      arguments.integer("context-tokens", engine::max_context_tokens, 64, engine::max_context_tokens);
  if (context % device::block_tokens != 0)
    base::throw_usage({.what = "--context-tokens must be a multiple of 64"});
}

int run_command(const Arguments& arguments) {
  check_usage(arguments);
  const Clock::time_point start = Clock::now();
  const Math math = arguments.choice("math", maths) == "f32" ? Math::f32 : Math::bf16;
  const auto threads = static_cast<int>(arguments.integer("threads", 0, 1, 1024));
  const std::optional<std::string> isa = arguments.value("isa");
  const device::cpu::CpuOptions cpu{
      .math = math, .threads = threads, .isa = isa ? &device::cpu::isa_named(*isa) : nullptr};
  arguments.choice("device", devices);
  engine::GenerateRequest request;
  request.max_tokens = arguments.integer("max-tokens", 128, 1, 1 << 24);

  const std::unique_ptr<engine::LoadedModel> model =
      engine::load_model(arguments.required("model-dir"), math);
  request.prompt = read_prompt(arguments, *model);
  if (!arguments.has("ignore-eos")) request.stop_ids = model->stop_ids;
  engine::check_request(request, model->config);
  device::cpu::CpuDevice device(model->config, model->weights, cpu);
  device.set_vocab_limit(model->vocab_limit());
  engine::Session session(
      device, model->config, static_cast<std::int64_t>(request.prompt.size()) + request.max_tokens,
      arguments.integer("context-tokens", engine::max_context_tokens, 64, engine::max_context_tokens));
  const double load_seconds = std::chrono::duration<double>(Clock::now() - start).count();

  std::optional<base::NpyMatrixWriter> logits;
  engine::LogitsSink sink;
  if (const auto file = arguments.value("logits-out")) {
    logits.emplace(*file, model->config.vocab);
    sink = [&](std::span<const float> rows) { logits->append(rows); };
  }
  const bool json = arguments.has("json");
  Stream stream(model->tokenizer.get());
  const auto on_token = [&](std::int32_t id) {
    if (!json) stream.push(id);
  };
  const engine::GenerateResult result = engine::generate(session, request, on_token, sink);
  if (logits) logits->commit();
  const Run run{.request = request,
                .result = result,
                .facts = device.facts(),
                .joints = device.joint_times(),
                .load_seconds = load_seconds};
  if (json) {
    write_out(json_of(run, model->tokenizer.get()));
  } else {
    stream.finish();
    print_timings(run);
  }
  return 0;
}

}  // namespace

const Command generate_command = {
    .name = "generate",
    .summary = "Continue a prompt, always with the likeliest token",
    .usage = "--model-dir DIR (--prompt TEXT | --prompt-ids LIST) [OPTIONS]",
    .options = options,
    .notes =
        "The text appears on stdout as it is produced, times on stderr. `token_ids` holds a stop token that "
        "ended\n"
        "the reply; `text` does not. The prompt is taken as it is: no chat template is applied.",
    .run = run_command};

}  // namespace aima::cli
