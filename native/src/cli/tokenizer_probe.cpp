#include <array>
#include <filesystem>
#include <iostream>

#include "base/error.h"
#include "cli/commands.h"
#include "text/tokenizer_probe.h"

namespace aima::cli {
namespace {

constexpr std::array<Option, 6> options = {{
    {"text", "TEXT", "tokenise one text"},
    {"texts-jsonl", "FILE", "tokenise one JSON string a line; - reads standard input"},
    {"model-dir", "DIR", "use this model folder's tokenizer.json"},
    {"tokenizer", "FILE", "use this tokenizer.json"},
    {"added-tokens", "", "read <|im_start|> and the like as control tokens, not as text"},
    {"skip-special", "", "leave special tokens out of the decoded text"},
}};

int run_command(const Arguments& arguments) {
  text::TokenizerProbeOptions wanted{.text = arguments.value("text"),
                                     .lines = arguments.value("texts-jsonl"),
                                     .added_tokens = arguments.has("added-tokens"),
                                     .skip_special = arguments.has("skip-special")};
  if (wanted.text.has_value() == wanted.lines.has_value())
    base::throw_usage({.what = "one of --text and --texts-jsonl is needed"});
  if (arguments.has("model-dir") == arguments.has("tokenizer"))
    base::throw_usage({.what = "one of --model-dir and --tokenizer is needed"});
  if (const auto folder = arguments.value("model-dir")) {
    wanted.tokenizer = std::filesystem::path(*folder) / "tokenizer.json";
  } else {
    wanted.tokenizer = arguments.required("tokenizer");
  }
  return text::run_tokenizer_probe(wanted, std::cout);
}

}  // namespace

const Command tokenizer_probe_command = {
    .name = "tokenizer-probe",
    .summary = "Print the token ids of texts, and the text that they decode to, in JSON",
    .usage = "(--text TEXT | --texts-jsonl FILE) (--model-dir DIR | --tokenizer FILE)",
    .options = options,
    .notes = {},
    .run = run_command};

}  // namespace aima::cli
