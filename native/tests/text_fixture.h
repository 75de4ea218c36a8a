/// A tokenizer small enough to check by hand: 256 bytes (id = byte), the merges asked for, a few added
/// tokens.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <utility>
#include <vector>

#include "text/pretokenize.h"
#include "text/utf8.h"

namespace aima::text::testing {

/// The byte-level stand-in of each byte of `bytes`.
inline std::string stand_in(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    const auto visible = [](unsigned b) {
      return (b > 32 && b < 127) || (b > 160 && b < 173) || (b > 173 && b < 256);
    };
    char32_t code_point = byte;
    if (!visible(byte)) {
      code_point = 256;
      for (unsigned b = 0; b < byte; ++b) code_point += visible(b) ? 0 : 1;
    }
    append_utf8(out, code_point);
  }
  return out;
}

struct Fixture {
  std::vector<std::pair<std::string, std::string>> merges = {
      {"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}};
  std::vector<std::string> added = {"<|a|>", "<|ab|>", "<t>"};  // ids from 1000; "<t>" is not special
  bool merges_as_pairs = true;

  boost::json::object json() const {
    using boost::json::array;
    using boost::json::object;
    object vocab;
    for (int b = 0; b < 256; ++b) vocab[stand_in(std::string(1, static_cast<char>(b)))] = b;
    array list;
    int next = 256;
    for (const auto& [left, right] : merges) {
      vocab[stand_in(left + right)] = next++;
      const std::string a = stand_in(left), b = stand_in(right);
      if (merges_as_pairs)
        list.push_back(array{a, b});
      else
        list.push_back(boost::json::string(a + " " + b));
    }
    array tokens;
    for (const std::string& content : added) {
      tokens.push_back(object{{"id", 1000 + static_cast<int>(tokens.size())},
                              {"content", content},
                              {"single_word", false},
                              {"lstrip", false},
                              {"rstrip", false},
                              {"normalized", false},
                              {"special", content != "<t>"}});
    }
    const object bytes{
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
    const object split{{"type", "Split"},
                       {"pattern", {{"Regex", kPretokenRegex}}},
                       {"behavior", "Isolated"},
                       {"invert", false}};
    return {{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens", std::move(tokens)},
            {"normalizer", {{"type", "NFC"}}},
            {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", array{split, bytes}}}},
            {"post_processor", bytes},
            {"decoder", bytes},
            {"model",
             {{"type", "BPE"},
              {"dropout", nullptr},
              {"unk_token", nullptr},
              {"continuing_subword_prefix", ""},
              {"end_of_word_suffix", ""},
              {"fuse_unk", false},
              {"byte_fallback", false},
              {"ignore_merges", false},
              {"vocab", std::move(vocab)},
              {"merges", std::move(list)}}}};
  }

  std::string text() const { return boost::json::serialize(json()); }
};

}  // namespace aima::text::testing
