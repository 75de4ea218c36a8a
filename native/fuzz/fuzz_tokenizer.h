/// The tokenizer that fuzzers encode with: all bytes, merges that make words of several scripts, added tokens
/// of a chat.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/text_fixture.h"
#include "text/tokenizer.h"

namespace aima::fuzz {

/// Merges of some texts, as training on them would find them: each text is joined byte by byte.
inline std::vector<std::pair<std::string, std::string>> merges_of(const std::vector<std::string>& words) {
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<std::string> made;
  for (const std::string& word : words) {
    for (std::size_t size = 2; size <= word.size(); ++size) {
      std::string joined = word.substr(0, size);
      if (std::ranges::find(made, joined) != made.end()) continue;
      merges.emplace_back(word.substr(0, size - 1), word.substr(size - 1, 1));
      made.push_back(std::move(joined));
    }
  }
  return merges;
}

inline const text::Tokenizer& tokenizer() {
  static const std::unique_ptr<text::Tokenizer> made = [] {
    text::testing::Fixture fixture;
    fixture.merges = merges_of({"the", " the", "hello", "aaaaaaaa", "    ", "\n\n", "==", "'s", "\xC3\xA9",
                                "e\xCC\x81", "\xE5\xA4\xA9\xE6\xB0\x94", "\xF0\x9F\x98\x80", "<|", "|>"});
    fixture.added = {"<|im_start|>", "<|im_end|>",  "<|endoftext|>", "<|im", "<think>",
                     "</think>",     "<tool_call>", "</tool_call>",  "<t>"};
    return text::Tokenizer::parse(fixture.text(), "fixture");
  }();
  return *made;
}

}  // namespace aima::fuzz
