#include "text/chat_probe.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
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
namespace {

constexpr std::string_view kSchema = "aima/chat-template-probe/v1";

std::string read_source(const std::string& path) {
  if (path != "-") return base::read_text(path);
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

Json string(std::string_view text) { return Json{std::string(text)}; }

Json number(std::size_t value) { return Json{JsonNumber{std::to_string(value)}}; }

template <typename Range>
Json numbers(const Range& values) {
  Json::Array out;
  out.reserve(values.size());
  for (const auto value : values) out.push_back(number(static_cast<std::size_t>(value)));
  return Json{std::move(out)};
}

Json tokens_report(const ChatTokens& tokens) {
  return Json{Json::Object{{"count", number(tokens.ids.size())},
                           {"ids", numbers(tokens.ids)},
                           {"boundaries", numbers(tokens.boundaries)},
                           {"generation_prompt", number(tokens.generation)}}};
}

Json error_report(const base::ErrorText& text) {
  Json::Object error{{"what", string(text.what)}, {"where", string(text.where)}};
  if (!text.why.empty()) error.emplace_back("why", string(text.why));
  return Json{Json::Object{{"schema", string(kSchema)}, {"error", Json{std::move(error)}}}};
}

Json user_request(std::string_view text) {
  std::string content;
  append_replacing(content, text);  // an argument may hold any bytes, a prompt only UTF-8
  Json message{Json::Object{{"role", string("user")}, {"content", Json{std::move(content)}}}};
  Json::Array messages;
  messages.push_back(std::move(message));
  return Json{Json::Object{{"messages", Json{std::move(messages)}}}};
}

class Probe {
 public:
  explicit Probe(const ChatProbeOptions& options) : options_(options) {
    if (options.tokenizer) tokenizer_ = Tokenizer::load(*options.tokenizer);
  }

  Json report(Json request) const {
    if (options_.openai) request = normalise_chat(std::move(request));
    const ChatPrompt prompt = render_chat(request);
    Json::Object out{{"schema", string(kSchema)},
                     {"text", string(prompt.text)},
                     {"bytes", number(prompt.text.size())},
                     {"boundaries", numbers(prompt.boundaries)},
                     {"generation_prompt", number(prompt.generation)}};
    if (tokenizer_) {
      const ChatTokens tokens = encode_chat(*tokenizer_, prompt, options_.typed_tokens);
      out.emplace_back("tokens", tokens_report(tokens));
    }
    return Json{std::move(out)};
  }

  Json report_line(std::string_view line, const std::string& where) const {
    try {
      return report(parse_json(line, where));
    } catch (const base::Error& error) {
      return error_report(error.text());
    }
  }

 private:
  const ChatProbeOptions& options_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

void report_lines(const Probe& probe, const std::string& source, std::ostream& out) {
  const std::string text = read_source(source);
  std::size_t number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    out << dump_json(probe.report_line(line, source + ":" + std::to_string(number))) << '\n';
    begin = end + 1;
  }
}

}  // namespace

int run_chat_probe(const ChatProbeOptions& options, std::ostream& out) {
  const Probe probe(options);
  if (options.requests) {
    report_lines(probe, *options.requests, out);
  } else {
    Json request = options.user ? user_request(*options.user)
                                : parse_json(read_source(options.request.value()), *options.request);
    out << dump_json(probe.report(std::move(request))) << '\n';
  }
  out.flush();
  if (!out) throw base::Error({.what = "the output cannot be written", .where = "stdout"});
  return static_cast<int>(base::Exit::done);
}

}  // namespace aima::text
