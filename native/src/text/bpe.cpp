#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "base/error.h"

namespace aima::text {
namespace {

constexpr std::size_t kShortWord = 32;         // up to here a plain search for the lowest rank is fastest
constexpr std::size_t kKeptSymbols = 1 << 20;  // buffers for longer words are given back after use
constexpr std::uint32_t kNone = UINT32_MAX;    // no neighbour

std::uint64_t mix(std::uint64_t x) {
  x *= 0x9E3779B97F4A7C15u;
  return x ^ x >> 32;
}

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

Bpe::Bpe(const TokenizerFile& file) : merges_(file.merges) {
  std::copy_n(file.byte_tokens.begin(), 256, byte_token_.begin());
  table_.resize(std::bit_ceil(std::max<std::size_t>(merges_.size() * 2, 16)), Entry{0, kNoRank, 0});
  const std::size_t mask = table_.size() - 1;
  for (std::size_t rank = 0; rank < merges_.size(); ++rank) {
    const std::uint64_t key = pair_key(merges_[rank].left, merges_[rank].right);
    std::size_t slot = mix(key) & mask;
    while (table_[slot].rank != kNoRank && table_[slot].pair != key) slot = (slot + 1) & mask;
    // Of two merges of one pair the later counts, as in the reference.
    table_[slot] = {key, static_cast<std::uint32_t>(rank), merges_[rank].result};
  }
  byte_pairs_.reserve(256 * 256);
  for (const std::int32_t left : byte_token_) {
    for (const std::int32_t right : byte_token_) byte_pairs_.push_back(find(left, right));
  }
}

Bpe::Found Bpe::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = pair_key(left, right);
  const std::size_t mask = table_.size() - 1;
  for (std::size_t slot = mix(key) & mask;; slot = (slot + 1) & mask) {
    const Entry& entry = table_[slot];
    if (entry.rank == kNoRank) return {kNoRank, 0};
    if (entry.pair == key) return {entry.rank, entry.result};
  }
}

void Bpe::encode(std::string_view word, std::vector<std::int32_t>& out, BpeScratch& scratch) const {
  if (word.size() == 1) return out.push_back(byte_token_[static_cast<unsigned char>(word[0])]);
  if (word.size() > BpeScratch::kWordBytes) {
    return word.size() <= kShortWord ? encode_short(word, out) : encode_long(word, out, scratch);
  }
  std::array<std::uint64_t, 3> parts{};
  static_assert(sizeof parts == BpeScratch::kWordBytes);
  std::memcpy(parts.data(), word.data(), word.size());
  const std::uint64_t hash = mix(parts[0] ^ mix(parts[1] ^ mix(parts[2] + word.size())));
  BpeScratch::Word& slot = scratch.words_[hash >> 8 & (BpeScratch::kSlots - 1)];
  if (slot.length == word.size() && std::memcmp(slot.bytes.data(), parts.data(), sizeof parts) == 0) {
    out.insert(out.end(), slot.tokens.begin(), slot.tokens.begin() + slot.count);
    return;
  }
  const std::size_t begin = out.size();
  encode_short(word, out);
  const std::size_t count = out.size() - begin;
  if (count > BpeScratch::kWordTokens) return;
  std::memcpy(slot.bytes.data(), parts.data(), sizeof parts);
  std::copy(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(), slot.tokens.begin());
  slot.length = static_cast<std::uint8_t>(word.size());
  slot.count = static_cast<std::uint8_t>(count);
}

void Bpe::encode_short(std::string_view word, std::vector<std::int32_t>& out) const {
  std::array<std::int32_t, kShortWord> ids;
  std::array<Found, kShortWord> pairs;  // pairs[i]: what ids[i] and ids[i + 1] become
  std::size_t count = word.size();
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(word[i]); };
  for (std::size_t i = 0; i < count; ++i) ids[i] = byte_token_[byte(i)];
  for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = byte_pairs_[std::size_t{byte(i)} << 8 | byte(i + 1)];
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == kNoRank) break;
    ids[best] = pairs[best].result;
    --count;
    std::copy(ids.begin() + best + 2, ids.begin() + count + 1, ids.begin() + best + 1);
    if (best + 1 < count) {
      std::copy(pairs.begin() + best + 2, pairs.begin() + count, pairs.begin() + best + 1);
      pairs[best] = find(ids[best], ids[best + 1]);
    }
    if (best > 0) pairs[best - 1] = find(ids[best - 1], ids[best]);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + count);
}

// Long words: candidates lie in one list for each rank, so that a rank's places are worked on in one sweep
// from left to right. A merge makes pairs of other ranks only; should one of them be lower, it goes first.

namespace {

void note(std::vector<std::uint32_t>& ranks, std::uint32_t rank) {
  ranks.push_back(rank);
  std::push_heap(ranks.begin(), ranks.end(), std::greater<>());
}

}  // namespace

/// Notes the pair that begins at `left` as a candidate; returns its rank, or kNoRank when it does not merge.
std::uint32_t Bpe::note_pair(BpeScratch& s, std::uint32_t left) const {
  const BpeScratch::Symbol& symbol = s.symbols_[left];
  if (symbol.after == kNone) return kNoRank;
  const std::uint32_t rank = find(symbol.id, s.symbols_[symbol.after].id).rank;
  if (rank == kNoRank) return kNoRank;
  if (s.latest_[rank] == 0) note(s.ranks_, rank);
  s.candidates_.push_back({left, s.latest_[rank]});
  s.latest_[rank] = static_cast<std::uint32_t>(s.candidates_.size());
  return rank;
}

void Bpe::start_symbols(std::string_view word, BpeScratch& s) const {
  const auto size = static_cast<std::uint32_t>(word.size());
  s.symbols_.resize(size);
  s.latest_.resize(merges_.size());
  s.candidates_.clear();
  for (std::uint32_t i = 0; i < size; ++i) {
    const std::int32_t id = byte_token_[static_cast<unsigned char>(word[i])];
    s.symbols_[i] = {id, i - 1, i + 1 < size ? i + 1 : kNone};  // 0 - 1 is kNone
  }
  for (std::uint32_t i = 0; i + 1 < size; ++i) note_pair(s, i);
}

void Bpe::join_rank(std::uint32_t rank, BpeScratch& s) const {
  s.places_.clear();
  for (std::uint32_t i = s.latest_[rank]; i != 0; i = s.candidates_[i - 1].earlier) {
    s.places_.push_back(s.candidates_[i - 1].place);
  }
  s.latest_[rank] = 0;
  std::ranges::reverse(s.places_);
  if (!std::ranges::is_sorted(s.places_)) std::ranges::sort(s.places_);
  const Merge merge = merges_[rank];
  for (std::size_t i = 0; i < s.places_.size(); ++i) {
    const std::uint32_t place = s.places_[i];
    BpeScratch::Symbol& a = s.symbols_[place];
    if (a.id != merge.left || a.after == kNone || s.symbols_[a.after].id != merge.right)
      continue;  // changed since
    s.symbols_[a.after].id = -1;
    a.id = merge.result;
    a.after = s.symbols_[a.after].after;
    if (a.after != kNone) s.symbols_[a.after].before = place;
    std::uint32_t lowest = note_pair(s, place);
    if (a.before != kNone) lowest = std::min(lowest, note_pair(s, a.before));
    if (lowest > rank) continue;
    for (++i; i < s.places_.size(); ++i) note_pair(s, s.places_[i]);  // come back to the rest later
  }
}

void Bpe::encode_long(std::string_view word, std::vector<std::int32_t>& out, BpeScratch& s) const {
  start_symbols(word, s);
  while (!s.ranks_.empty()) {
    const std::uint32_t rank = s.ranks_.front();
    std::pop_heap(s.ranks_.begin(), s.ranks_.end(), std::greater<>());
    s.ranks_.pop_back();
    join_rank(rank, s);
  }
  for (std::uint32_t i = 0; i != kNone; i = s.symbols_[i].after) out.push_back(s.symbols_[i].id);
  if (s.symbols_.capacity() > kKeptSymbols) {
    s.symbols_ = {};
    s.candidates_ = {};
    s.places_ = {};
  }
}

}  // namespace aima::text
