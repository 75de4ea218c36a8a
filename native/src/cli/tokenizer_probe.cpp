#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>

#include "base/error.h"
#include "cli/commands.h"
#include "text/tokenizer_probe.h"

namespace aima::cli {
namespace {

constexpr std::array<Option, 10> options = {{
    {"text", "TEXT", "tokenise one text"},
    {"text-file", "FILE", "tokenise the bytes of a file as one text"},
    {"texts-jsonl", "FILE", "tokenise one JSON string a line; - reads standard input"},
    {"ids-jsonl", "FILE", "decode one JSON list of ids a line; - reads standard input"},
    {"model-dir", "DIR", "use this model folder's tokenizer.json"},
    {"tokenizer", "FILE", "use this tokenizer.json"},
    {"added-tokens", "", "read <|im_start|> and the like as control tokens, not as text"},
    {"skip-special", "", "leave special tokens out of the decoded text"},
    {"parts", "", "also print the pieces that a stream of the tokens would give"},
    {"repeat", "N", "encode and decode N times, and print the least seconds of each"},
}};

constexpr std::array<std::string_view, 4> sources = {"text", "text-file", "texts-jsonl", "ids-jsonl"};

int run_command(const Arguments& arguments) {
  text::TokenizerProbeOptions wanted{
      .text = arguments.value("text"),
      .text_file = arguments.value("text-file"),
      .text_lines = arguments.value("texts-jsonl"),
      .id_lines = arguments.value("ids-jsonl"),
      .added_tokens = arguments.has("added-tokens"),
      .skip_special = arguments.has("skip-special"),
      .parts = arguments.has("parts"),
      .repeat = static_cast<int>(arguments.integer("repeat", 0, 1, 1'000'000)),
  };
  if (std::ranges::count_if(sources, [&](auto name) { return arguments.has(name); }) != 1)
    base::throw_usage({.what = "one of --text, --text-file, --texts-jsonl and --ids-jsonl is needed"});
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
    .usage =
        "(--text TEXT | --text-file FILE | --texts-jsonl FILE | --ids-jsonl FILE)\n"
        "       (--model-dir DIR | --tokenizer FILE)",
    .options = options,
    .notes = {},
    .run = run_command};

}  // namespace aima::cli
