/// What a tokenizer.json says, read and checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aima::text {

/// A token with a text of its own, found in the raw text before anything else happens.
struct AddedToken {
  std::int32_t id;
  std::string content;
  bool special;
};

/// `left` followed by `right` becomes `result`; its rank is its place in the list.
struct Merge {
  std::int32_t left;
  std::int32_t right;
  std::int32_t result;
};

struct TokenizerFile {
  std::vector<std::string> tokens;  ///< bytes by id, added tokens included; empty where an id names no token
  std::vector<std::int32_t> byte_tokens;  ///< 256 ids: the token of each single byte
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
};

/// Reads a tokenizer.json and, when not empty, the `added_tokens_decoder` of a tokenizer_config.json. Throws
/// base::Error (exit 2) that names `where` and the setting or entry at fault.
TokenizerFile read_tokenizer_file(std::string_view tokenizer_json, std::string_view where,
                                  std::string_view config_json);

}  // namespace aima::text
