/// `aima-engine tokenizer-probe`: the tokens of texts, for comparison with other implementations.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>

namespace aima::text {

/// Exactly one of the first four is set.
struct TokenizerProbeOptions {
  std::optional<std::string> text{};        ///< one text, any bytes
  std::optional<std::string> text_file{};   ///< file whose bytes are one text
  std::optional<std::string> text_lines{};  ///< file with one JSON string a line; "-" reads standard input
  std::optional<std::string> id_lines{};    ///< file with one JSON list of ids a line; "-" as above
  std::filesystem::path tokenizer{};        ///< tokenizer.json
  bool added_tokens = false;                ///< recognise added tokens in the texts
  bool skip_special = false;                ///< leave special tokens out of "decoded" and "parts"
  bool parts = false;                       ///< print what StreamDecoder gives, token by token and at the end
  int repeat = 0;                           ///< how often to do it for the clock; 0: print no times
};

/// Prints aima/tokenizer-probe/v1, one line of JSON for each text: bytes (of a text), count, ids, and the
/// text that the ids decode to; where asked for, parts (without empty ones) and the least seconds that
/// encoding and decoding took on one thread. Returns 0; throws base::Error (exit code 2) for a tokenizer or a
/// file that cannot be read.
int run_tokenizer_probe(const TokenizerProbeOptions& options, std::ostream& out);

}  // namespace aima::text
