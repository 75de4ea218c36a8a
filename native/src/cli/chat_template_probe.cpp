#include <array>
#include <filesystem>
#include <iostream>

#include "base/error.h"
#include "cli/commands.h"
#include "text/chat_probe.h"

namespace aima::cli {

namespace {

constexpr std::array<Option, 7> options = {{
    {"user", "TEXT", "render one user message"},
    {"request-json", "FILE", "render a chat request; - reads standard input"},
    {"requests-jsonl", "FILE", "render one request a line, and print one line for each, errors included"},
    {"openai", "", "accept what OpenAI clients send, not only what the model's template accepts"},
    {"model-dir", "DIR", "print token ids by this model folder's tokenizer.json"},
    {"tokenizer", "FILE", "print token ids by this tokenizer.json"},
    {"typed-tokens", "", "recognise added tokens in the request's own text too"},
}};

int run_command(const Arguments& arguments) {
  text::ChatProbeOptions wanted{.user = arguments.value("user"),
                                .request = arguments.value("request-json"),
                                .requests = arguments.value("requests-jsonl"),
                                .openai = arguments.has("openai"),
                                .typed_tokens = arguments.has("typed-tokens")};
  const int sources = wanted.user.has_value() + wanted.request.has_value() + wanted.requests.has_value();
  if (sources != 1)
    base::throw_usage({.what = "one of --user, --request-json and --requests-jsonl is needed"});
  if (const auto folder = arguments.value("model-dir"))
    wanted.tokenizer = std::filesystem::path(*folder) / "tokenizer.json";
  if (const auto file = arguments.value("tokenizer")) wanted.tokenizer = *file;
  return text::run_chat_probe(wanted, std::cout);
}

}  // namespace

constinit const Command chat_template_probe_command = {
    .name = "chat-template-probe",
    .summary = "Print the prompt that a chat request becomes, as text and as token ids, in JSON",
    .usage = "(--user TEXT | --request-json FILE | --requests-jsonl FILE) [--model-dir DIR]",
    .options = options,
    .notes = {},
    .run = run_command};

}  // namespace aima::cli
