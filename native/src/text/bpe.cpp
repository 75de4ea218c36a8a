#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "base/error.h"

namespace aima::text {
namespace {

constexpr std::size_t kShortWord = 32;       // up to here a plain search for the lowest rank is fastest
constexpr std::uint32_t kNone = UINT32_MAX;  // no neighbour

std::uint64_t mix(std::uint64_t x) {
  x *= 0x9E3779B97F4A7C15u;
  return x ^ x >> 32;
}

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

Bpe::Bpe(const TokenizerFile& file) {
  std::copy_n(file.byte_tokens.begin(), 256, byte_token_.begin());
  table_.resize(std::bit_ceil(std::max<std::size_t>(file.merges.size() * 2, 16)), Entry{0, kNoRank, 0});
  for (std::size_t rank = 0; rank < file.merges.size(); ++rank) {
    const Merge& m = file.merges[rank];
    insert(m.left, m.right, {pair_key(m.left, m.right), static_cast<std::uint32_t>(rank), m.result});
  }
  byte_pairs_.reserve(256 * 256);
  for (const std::int32_t left : byte_token_) {
    for (const std::int32_t right : byte_token_) byte_pairs_.push_back(find(left, right));
  }
}

void Bpe::insert(std::int32_t left, std::int32_t right, Entry entry) {
  const std::size_t mask = table_.size() - 1;
  std::size_t slot = mix(pair_key(left, right)) & mask;
  while (table_[slot].rank != kNoRank && table_[slot].pair != entry.pair) slot = (slot + 1) & mask;
  table_[slot] = entry;  // of two merges of one pair the later counts, as in the reference
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

void Bpe::push_pair(BpeScratch& scratch, std::uint32_t left) const {
  const BpeScratch::Symbol& symbol = scratch.symbols_[left];
  if (symbol.after == kNone) return;
  const std::uint32_t rank = find(symbol.id, scratch.symbols_[symbol.after].id).rank;
  if (rank == kNoRank) return;
  scratch.heap_.push_back(std::uint64_t{rank} << 32 | left);
  std::push_heap(scratch.heap_.begin(), scratch.heap_.end(), std::greater<>());
}

void Bpe::encode_long(std::string_view word, std::vector<std::int32_t>& out, BpeScratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  const auto size = static_cast<std::uint32_t>(word.size());
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(word[i]); };
  symbols.resize(size);
  heap.clear();
  for (std::uint32_t i = 0; i < size; ++i) {
    symbols[i] = {byte_token_[byte(i)], i - 1, i + 1 < size ? i + 1 : kNone};  // 0 - 1 is kNone
    if (i + 1 == size) break;
    const std::uint32_t rank = byte_pairs_[std::size_t{byte(i)} << 8 | byte(i + 1)].rank;
    if (rank != kNoRank) heap.push_back(std::uint64_t{rank} << 32 | i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    const std::uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto left = static_cast<std::uint32_t>(top);
    BpeScratch::Symbol& a = symbols[left];
    if (a.id < 0 || a.after == kNone) continue;  // joined into its neighbour since
    BpeScratch::Symbol& b = symbols[a.after];
    const Found found = find(a.id, b.id);
    if (found.rank != top >> 32) continue;  // one of the two has changed since
    a.id = found.result;
    a.after = b.after;
    b.id = -1;
    if (a.after != kNone) symbols[a.after].before = left;
    push_pair(scratch, left);
    if (a.before != kNone) push_pair(scratch, a.before);
  }
  for (std::uint32_t i = 0; i != kNone; i = symbols[i].after) out.push_back(symbols[i].id);
}

}  // namespace aima::text
