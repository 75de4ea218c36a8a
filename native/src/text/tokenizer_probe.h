/// `aima-engine tokenizer-probe`: the tokens of texts, for comparison with other implementations.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>

namespace aima::text {

/// Exactly one of `text` and `lines` is set.
struct TokenizerProbeOptions {
  std::filesystem::path tokenizer{};   ///< tokenizer.json
  std::optional<std::string> text{};   ///< one text, any bytes
  std::optional<std::string> lines{};  ///< file with one JSON string a line; "-" reads standard input
  bool added_tokens = false;           ///< recognise added tokens in the texts
  bool skip_special = false;           ///< leave special tokens out of "decoded"
};

/// Prints aima/tokenizer-probe/v1, one line of JSON for each text: bytes, count, ids, and the text that the
/// ids decode to. Returns 0; throws base::Error (exit code 2) for a tokenizer or a file that cannot be read.
int run_tokenizer_probe(const TokenizerProbeOptions& options, std::ostream& out);

}  // namespace aima::text
