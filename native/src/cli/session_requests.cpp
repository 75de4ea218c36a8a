#include "cli/session_requests.h"

#include <algorithm>
#include <array>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <limits>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "text/chat_json.h"
#include "text/chat_request.h"
#include "text/chat_template.h"

namespace aima::cli {
namespace {

namespace bj = boost::json;
using base::json::Object;

constexpr std::string_view schema = "aima/session-requests/v1";

void check_keys(const Object& object, std::span<const std::string_view> known) {
  for (const auto& field : object.raw()) {
    const std::string_view key = field.key();
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string_view near = base::nearest(key, known);
    object.refuse(key, "this field is not known",
                  near.empty() ? "" : "did you mean `" + std::string(near) + "`?");
  }
}

std::int64_t bounded(const Object& object, std::string_view key, std::int64_t otherwise, std::int64_t least,
                     std::int64_t most) {
  const std::int64_t value = object.integer_or(key, otherwise);
  if (value >= least && value <= most) return value;
  object.refuse(
      key, "the value is out of range",
      "a whole number from " + std::to_string(least) + " to " + std::to_string(most) + " is expected");
}

template <typename T>
std::vector<T> integers(const Object& object, std::string_view key) {
  std::vector<T> numbers;
  for (const bj::value& value : object.array(key)) {
    const std::int64_t* number = value.if_int64();
    if (number == nullptr || *number < 0 || *number > std::numeric_limits<std::int32_t>::max())
      object.refuse(key, "a list of whole numbers from 0 on is expected");
    numbers.push_back(static_cast<T>(*number));
  }
  return numbers;
}

std::vector<engine::LogitBias> read_bias(const Object& object) {
  std::vector<engine::LogitBias> biases;
  for (const auto& field : object.raw()) {
    const std::string_view key = field.key();
    engine::LogitBias bias{.id = 0, .bias = object.number(key)};
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), bias.id);
    if (error != std::errc() || end != key.data() + key.size()) object.refuse(key, "keys are token ids");
    biases.push_back(bias);
  }
  return biases;
}

engine::Sampling read_sampling(const Object& object, std::int32_t vocab_limit) {
  static constexpr std::array<std::string_view, 10> known = {
      "temperature",       "top_k",      "top_p",   "min_p", "seed", "repetition_penalty", "presence_penalty",
      "frequency_penalty", "logit_bias", "logprobs"};
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  check_keys(object, known);
  engine::Sampling sampling;
  sampling.temperature = object.number_or("temperature", 0);
  sampling.top_k = bounded(object, "top_k", 0, 0, most);
  sampling.top_p = object.number_or("top_p", 1);
  sampling.min_p = object.number_or("min_p", 0);
  sampling.seed = static_cast<std::uint64_t>(bounded(object, "seed", 0, 0, most));
  sampling.repetition_penalty = object.number_or("repetition_penalty", 1);
  sampling.presence_penalty = object.number_or("presence_penalty", 0);
  sampling.frequency_penalty = object.number_or("frequency_penalty", 0);
  if (object.has("logit_bias")) sampling.bias = read_bias(object.object("logit_bias"));
  if (object.has("logprobs")) sampling.logprobs = bounded(object, "logprobs", 0, 0, 20);
  try {
    engine::check_sampling(sampling, vocab_limit);
  } catch (const base::Error& error) {
    object.refuse(error.text().where, error.text().what, error.text().why);
  }
  return sampling;
}

class Reader {
 public:
  Reader(const Object& object, const engine::LoadedModel& model) : object_(object), model_(model) {}

  SessionRequest read(const std::string& name) {
    static constexpr std::array<std::string_view, 12> known = {
        "name",       "ids",        "text",     "chat",       "added_tokens", "boundaries",
        "generation", "max_tokens", "sampling", "ignore_eos", "stop_ids",     "cancel"};
    std::vector<std::string_view> keys(known.begin(), known.end());
    keys.emplace_back("cache");
    check_keys(object_, keys);
    result_.name = object_.string_or("name", name);
    engine::Request& request = result_.request;
    read_prompt();
    request.max_tokens = bounded(object_, "max_tokens", 16, 1, 1 << 24);
    if (object_.has("sampling"))
      request.sampling = read_sampling(object_.object("sampling"), model_.vocab_limit());
    if (!object_.boolean_or("ignore_eos", false)) request.stop_ids = model_.stop_ids;
    if (object_.has("stop_ids")) request.stop_ids = integers<std::int32_t>(object_, "stop_ids");
    request.use_cache = object_.boolean_or("cache", true);
    if (object_.has("cancel")) read_cancel(object_.object("cancel"));
    return std::move(result_);
  }

 private:
  const text::Tokenizer& tokenizer(std::string_view key) const {
    if (model_.tokenizer == nullptr)
      object_.refuse(key, "it needs a tokenizer, and the model folder has no tokenizer.json", "give `ids`");
    return *model_.tokenizer;
  }

  void read_prompt() {
    engine::Request& request = result_.request;
    if (object_.has("ids") + object_.has("text") + object_.has("chat") != 1)
      object_.refuse("ids", "one of `ids`, `text` and `chat` is needed");
    if (object_.has("text")) {
      request.prompt =
          tokenizer("text").encode(object_.string("text"), object_.boolean_or("added_tokens", false));
    } else if (object_.has("chat")) {
      read_chat();
    } else {
      request.prompt = integers<std::int32_t>(object_, "ids");
    }
    if (object_.has("boundaries")) request.boundaries = integers<std::int64_t>(object_, "boundaries");
    if (object_.has("generation")) request.generation = bounded(object_, "generation", 0, 0, 1 << 30);
  }

  void read_chat() {
    const std::string where = object_.where() + ".chat";
    text::Json chat = text::parse_json(bj::serialize(object_.at("chat")), where);
    const text::ChatPrompt prompt = text::render_chat(text::normalise_chat(std::move(chat)));
    const text::ChatTokens tokens = text::encode_chat(tokenizer("chat"), prompt);
    result_.request.prompt = tokens.ids;
    result_.request.boundaries.assign(tokens.boundaries.begin(), tokens.boundaries.end());
    result_.request.generation = static_cast<std::int64_t>(tokens.generation);
  }

  void read_cancel(const Object& cancel) {
    static constexpr std::array<std::string_view, 2> known = {"after_ms", "after_tokens"};
    check_keys(cancel, known);
    if (cancel.has("after_ms") == cancel.has("after_tokens"))
      object_.refuse("cancel", "either `after_ms` or `after_tokens` is needed");
    if (cancel.has("after_ms")) result_.cancel_ms = cancel.number("after_ms");
    if (cancel.has("after_tokens")) result_.cancel_tokens = bounded(cancel, "after_tokens", 0, 0, 1 << 24);
  }

  const Object& object_;
  const engine::LoadedModel& model_;
  SessionRequest result_;
};

}  // namespace

std::vector<SessionRequest> parse_session_requests(std::string_view text, std::string_view where,
                                                   const engine::LoadedModel& model) {
  static constexpr std::array<std::string_view, 2> known = {"schema", "requests"};
  const bj::value document = base::json::parse(text, where);
  const Object root(document, std::string(where));
  check_keys(root, known);
  if (root.string("schema") != schema) root.refuse("schema", "`" + std::string(schema) + "` is expected");
  std::vector<SessionRequest> requests;
  for (const bj::value& each : root.array("requests")) {
    const std::string number = std::to_string(requests.size());
    const Object object(each, std::string(where) + ": requests[" + number + "]");
    requests.push_back(Reader(object, model).read(number));
  }
  return requests;
}

}  // namespace aima::cli
