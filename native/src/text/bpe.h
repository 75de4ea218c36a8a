/// Byte-level BPE: of all neighbouring pairs that may merge, the one of lowest rank is joined first, the
/// leftmost of equals, until none is left.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer_file.h"

namespace aima::text {

/// What one thread needs while it encodes: buffers, and a memory of words met before. Bounded: 4.2 MB and the
/// buffers for its longest word.
class BpeScratch {
 public:
  BpeScratch() : words_(kSlots) {}

 private:
  friend class Bpe;
  static constexpr std::size_t kSlots = 1 << 16;
  static constexpr std::size_t kWordBytes = 24;
  static constexpr std::size_t kWordTokens = 9;

  /// A remembered word and its tokens: one cache line. `length` 0 is a free slot.
  struct alignas(64) Word {
    std::array<char, kWordBytes> bytes{};
    std::array<std::int32_t, kWordTokens> tokens{};
    std::uint8_t length = 0;
    std::uint8_t count = 0;
  };
  static_assert(sizeof(Word) == 64);

  /// A symbol of a long word, linked to its neighbours; a negative id was joined into the one before.
  struct Symbol {
    std::int32_t id;
    std::uint32_t before;
    std::uint32_t after;
  };

  /// A place whose pair has some rank, and one more than the index of the candidate noted before it at that
  /// rank.
  struct Candidate {
    std::uint32_t place;
    std::uint32_t earlier;
  };

  std::vector<Word> words_;
  std::vector<Symbol> symbols_;
  std::vector<std::uint32_t> latest_;  // by rank: one more than the index of its latest candidate; 0: none
  std::vector<Candidate> candidates_;
  std::vector<std::uint32_t> ranks_;   // heap of the ranks that have candidates, lowest first
  std::vector<std::uint32_t> places_;  // candidates of the rank at work
};

class Bpe {
 public:
  explicit Bpe(const TokenizerFile& file);

  /// Appends the tokens of one pre-token, fewer than 2^32 bytes. Time: n log n at worst.
  void encode(std::string_view word, std::vector<std::int32_t>& out, BpeScratch& scratch) const;

 private:
  static constexpr std::uint32_t kNoRank = UINT32_MAX;

  struct Entry {
    std::uint64_t pair;  // left id in the upper half
    std::uint32_t rank;  // kNoRank: a free slot
    std::int32_t result;
  };
  struct Found {
    std::uint32_t rank;
    std::int32_t result;
  };

  Found find(std::int32_t left, std::int32_t right) const;
  void encode_short(std::string_view word, std::vector<std::int32_t>& out) const;
  void encode_long(std::string_view word, std::vector<std::int32_t>& out, BpeScratch& scratch) const;
  void start_symbols(std::string_view word, BpeScratch& scratch) const;
  void join_rank(std::uint32_t rank, BpeScratch& scratch) const;
  std::uint32_t note_pair(BpeScratch& scratch, std::uint32_t left) const;

  std::vector<Merge> merges_;  // by rank
  std::array<std::int32_t, 256> byte_token_{};
  std::vector<Entry> table_;       // open addressing, at most half full
  std::vector<Found> byte_pairs_;  // 65,536: what two single bytes become, without a look-up
};

}  // namespace aima::text
