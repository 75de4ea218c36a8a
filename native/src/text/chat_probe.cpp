#include "text/chat_probe.h"

#include <array>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "text/chat_json.h"
#include "text/chat_request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace aima::text {

const char* const kChatProbeUsage =
    "aima-engine chat-template-probe (--user TEXT | --request-json FILE | --requests-jsonl FILE) [options]\n"
    "  --user TEXT            one user message\n"
    "  --request-json FILE    a chat request; - reads standard input\n"
    "  --requests-jsonl FILE  one chat request a line, one line of output for each\n"
    "  --openai               accept what OpenAI clients send, not only what the template accepts\n"
    "  --model-dir DIR        print token ids by the model folder's tokenizer.json\n"
    "  --tokenizer FILE       the same by this tokenizer.json\n"
    "  --typed-tokens         recognise added tokens in the request's own text too, as transformers does\n";

namespace {

struct Options {
  std::optional<std::string> user{};
  std::optional<std::string> request{};
  std::optional<std::string> requests{};
  std::optional<std::string> tokenizer{};
  std::optional<std::string> model_dir{};
  bool openai = false;
  bool typed_tokens = false;
};

Options read_options(std::span<const std::string> args) {
  Options options;
  const std::array<std::pair<std::string_view, std::optional<std::string>*>, 5> values = {{
      {"--user", &options.user},
      {"--request-json", &options.request},
      {"--requests-jsonl", &options.requests},
      {"--tokenizer", &options.tokenizer},
      {"--model-dir", &options.model_dir},
  }};
  const std::array<std::pair<std::string_view, bool*>, 2> flags = {
      {{"--openai", &options.openai}, {"--typed-tokens", &options.typed_tokens}}};
  const auto value_of = [&](std::string_view name) -> std::optional<std::string>* {
    for (const auto& [known, value] : values) {
      if (known == name) return value;
    }
    return nullptr;
  };
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string_view arg = args[i];
    if (std::optional<std::string>* value = value_of(arg)) {
      if (++i == args.size()) base::throw_usage({.what = "option `" + std::string(arg) + "` needs a value"});
      *value = args[i];
      continue;
    }
    bool known = false;
    for (const auto& [name, flag] : flags) {
      if (name == arg) known = *flag = true;
    }
    if (!known)
      base::throw_usage({.what = "unknown option `" + std::string(arg) + "`", .hint = kChatProbeUsage});
  }
  if (options.user.has_value() + options.request.has_value() + options.requests.has_value() != 1) {
    base::throw_usage({.what = "one of `--user`, `--request-json` and `--requests-jsonl` is needed",
                       .hint = kChatProbeUsage});
  }
  return options;
}

std::string read_source(const std::string& path) {
  if (path != "-") return base::read_text(path);
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

Json number(std::size_t value) { return Json{JsonNumber{std::to_string(value)}}; }

template <typename Range>
Json numbers(const Range& values) {
  Json::Array out;
  for (const auto value : values) out.push_back(Json{JsonNumber{std::to_string(value)}});
  return Json{std::move(out)};
}

class Probe {
 public:
  explicit Probe(const Options& options) : options_(options) {
    std::optional<std::filesystem::path> file;
    if (options.model_dir) file = std::filesystem::path(*options.model_dir) / "tokenizer.json";
    if (options.tokenizer) file = *options.tokenizer;
    if (file) tokenizer_ = Tokenizer::load(*file);
  }

  /// The report on one request.
  Json report(Json request) const {
    if (options_.openai) request = normalise_chat(std::move(request));
    const ChatPrompt prompt = render_chat(request);
    Json::Object out;
    out.push_back({"schema", Json{std::string("aima/chat-template-probe/v1")}});
    out.push_back({"text", Json{prompt.text}});
    out.push_back({"bytes", number(prompt.text.size())});
    out.push_back({"boundaries", numbers(prompt.boundaries)});
    out.push_back({"generation_prompt", number(prompt.generation)});
    if (tokenizer_) {
      const ChatTokens tokens = encode_chat(*tokenizer_, prompt, options_.typed_tokens);
      Json::Object part;
      part.push_back({"count", number(tokens.ids.size())});
      part.push_back({"ids", numbers(tokens.ids)});
      part.push_back({"boundaries", numbers(tokens.boundaries)});
      part.push_back({"generation_prompt", number(tokens.generation)});
      out.push_back({"tokens", Json{std::move(part)}});
    }
    return Json{std::move(out)};
  }

  /// As above; what the request's author did wrong becomes a report too.
  Json report_line(std::string_view line, const std::string& where) const {
    try {
      return report(parse_json(line, where));
    } catch (const base::Error& error) {
      Json::Object fault;
      fault.push_back({"what", Json{error.text().what}});
      fault.push_back({"where", Json{error.text().where}});
      if (!error.text().why.empty()) fault.push_back({"why", Json{error.text().why}});
      Json::Object out;
      out.push_back({"schema", Json{std::string("aima/chat-template-probe/v1")}});
      out.push_back({"error", Json{std::move(fault)}});
      return Json{std::move(out)};
    }
  }

 private:
  const Options& options_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

Json user_request(std::string_view text) {
  std::string content;
  append_replacing(content, text);  // an argument may hold any bytes, a prompt only UTF-8
  Json::Object message;
  message.push_back({"role", Json{std::string("user")}});
  message.push_back({"content", Json{std::move(content)}});
  Json::Object request;
  request.push_back({"messages", Json{Json::Array{Json{std::move(message)}}}});
  return Json{std::move(request)};
}

}  // namespace

int run_chat_probe(std::span<const std::string> args, std::ostream& out) {
  const Options options = read_options(args);
  const Probe probe(options);
  if (options.user) {
    out << dump_json(probe.report(user_request(*options.user))) << '\n';
  } else if (options.request) {
    out << dump_json(probe.report(parse_json(read_source(*options.request), *options.request))) << '\n';
  } else {
    const std::string text = read_source(*options.requests);
    std::size_t line = 1;
    for (std::size_t begin = 0; begin < text.size(); ++line) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string where = *options.requests + ":" + std::to_string(line);
      out << dump_json(probe.report_line(std::string_view(text).substr(begin, end - begin), where)) << '\n';
      begin = end + 1;
    }
  }
  return static_cast<int>(base::Exit::done);
}

}  // namespace aima::text
