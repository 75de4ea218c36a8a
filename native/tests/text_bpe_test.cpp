#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "text/bpe.h"

using namespace aima::text;

namespace {

/// Random merges over the first `letters` bytes. Without `trained`, the ranks are shuffled, so that a merge
/// may rank below the merges that make its parts.
TokenizerFile random_merges(std::mt19937& random, int letters, int count, bool trained) {
  TokenizerFile file;
  for (int b = 0; b < 256; ++b) file.byte_tokens.push_back(b);
  std::vector<std::int32_t> usable;
  for (int b = 0; b < letters; ++b) usable.push_back('a' + b);
  std::map<std::pair<int, int>, bool> seen;
  for (int id = 256; static_cast<int>(file.merges.size()) < count; ++id) {
    const std::int32_t left = usable[random() % usable.size()], right = usable[random() % usable.size()];
    if (!seen.emplace(std::pair{left, right}, true).second) continue;
    // Now and then two merges make the same token.
    const std::int32_t result =
        random() % 5 == 0 && id > 256 ? file.merges[random() % file.merges.size()].result : id;
    file.merges.push_back({left, right, result});
    usable.push_back(result);
  }
  if (!trained) std::shuffle(file.merges.begin(), file.merges.end(), random);
  return file;
}

/// The definition: join the leftmost of the lowest-ranked neighbouring pairs until there is none.
std::vector<std::int32_t> by_definition(const TokenizerFile& file, std::string_view word) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> rank;
  for (std::size_t i = 0; i < file.merges.size(); ++i) rank[{file.merges[i].left, file.merges[i].right}] = i;
  std::vector<std::int32_t> ids;
  for (const char c : word) ids.push_back(static_cast<unsigned char>(c));
  for (;;) {
    std::size_t best = file.merges.size(), at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = rank.find({ids[i], ids[i + 1]});
      if (found != rank.end() && found->second < best) best = found->second, at = i;
    }
    if (best == file.merges.size()) return ids;
    ids[at] = file.merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

}  // namespace

TEST_CASE("words of every length merge as the definition says") {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const int letters = 1 + round % 4;
    const TokenizerFile file = random_merges(random, letters, 4 + round, round % 3 != 0);
    const Bpe bpe(file);
    BpeScratch scratch;
    for (int n = 0; n < 60; ++n) {
      std::string word;
      const std::size_t size = 1 + random() % (n < 40 ? 40 : 400);  // short, remembered, and long
      for (std::size_t i = 0; i < size; ++i)
        word.push_back(static_cast<char>('a' + random() % static_cast<unsigned>(letters)));
      const std::vector<std::int32_t> wanted = by_definition(file, word);
      for (int again = 0; again < 2; ++again) {
        std::vector<std::int32_t> got = {-7};  // what is there already stays
        bpe.encode(word, got, scratch);
        CAPTURE(word);
        REQUIRE(got.front() == -7);
        REQUIRE(std::vector(got.begin() + 1, got.end()) == wanted);
      }
    }
  }
}

TEST_CASE("a megabyte of one letter merges in no quadratic time") {
  TokenizerFile file;
  for (int b = 0; b < 256; ++b) file.byte_tokens.push_back(b);
  file.merges = {{'a', 'a', 256}, {256, 256, 257}, {257, 257, 258}};
  const Bpe bpe(file);
  BpeScratch scratch;
  std::vector<std::int32_t> ids;
  bpe.encode(std::string(1'000'003, 'a'), ids, scratch);
  std::vector<std::int32_t> wanted(125'000, 258);
  wanted.insert(wanted.end(), {256, 'a'});
  CHECK(ids == wanted);
}

TEST_CASE("words that fall on one place of the memory do not mix") {
  TokenizerFile file;
  for (int b = 0; b < 256; ++b) file.byte_tokens.push_back(b);
  const Bpe bpe(file);
  BpeScratch scratch;
  std::mt19937 random(5);
  for (int n = 0; n < 300'000; ++n) {  // far more words than places
    std::string word(2 + random() % 8, '\0');
    for (char& c : word) c = static_cast<char>(random() % 256);
    std::vector<std::int32_t> ids, wanted;
    for (const char c : word) wanted.push_back(static_cast<unsigned char>(c));
    bpe.encode(word, ids, scratch);
    REQUIRE(ids == wanted);
  }
}
