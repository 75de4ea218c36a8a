#include "engine/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace aima::engine {
namespace {

constexpr auto block_size = static_cast<std::size_t>(device::block_tokens);

}  // namespace

PrefixCache::PrefixCache(std::size_t budget) { facts_.budget = budget; }

PrefixCache::~PrefixCache() { clear(); }

void PrefixCache::clear() {
  while (!entries_.empty()) evict(*entries_.back());  // from the leaves up: no recursion along a long prompt
}

CacheFacts PrefixCache::facts() const {
  CacheFacts facts = facts_;
  facts.entries = static_cast<std::int64_t>(entries_.size());
  return facts;
}

PrefixCache::Block PrefixCache::block_at(Ids ids, std::size_t start) {
  Block block;
  std::ranges::copy(ids.subspan(start, block_size), block.begin());
  return block;
}

PrefixCache::Match PrefixCache::find(Ids ids) {
  Match match;
  Node* best = nullptr;
  Node* node = &root_;
  for (std::size_t start = 0; start + block_size < ids.size(); start += block_size) {
    const auto next = node->children.find(block_at(ids, start));
    if (next == node->children.end()) break;
    node = next->second.get();
    match.shared = static_cast<std::int64_t>(start + block_size);
    if (node->snapshot != nullptr) best = node;
  }
  ++(best != nullptr ? facts_.hits : facts_.misses);
  if (best == nullptr) return match;
  match.snapshot = best->snapshot;
  mark_used(*best);
  return match;
}

PrefixCache::Node* PrefixCache::walk(Ids ids) {
  Node* node = &root_;
  for (std::size_t start = 0; start < ids.size(); start += block_size) {
    const auto next = node->children.find(block_at(ids, start));
    if (next == node->children.end()) return nullptr;
    node = next->second.get();
  }
  return node;
}

PrefixCache::Node& PrefixCache::make_path(Ids ids) {
  Node* node = &root_;
  for (std::size_t start = 0; start < ids.size(); start += block_size) {
    const auto [place, made] = node->children.try_emplace(block_at(ids, start));
    if (made) {
      place->second = std::make_unique<Node>();
      place->second->parent = node;
      place->second->block = &place->first;
    }
    node = place->second.get();
  }
  return *node;
}

bool PrefixCache::touch(Ids ids) {
  Node* node = walk(ids);
  if (node == nullptr || node->snapshot == nullptr) return false;
  mark_used(*node);
  return true;
}

void PrefixCache::mark_used(Node& node) {
  node.used = ++uses_;
  node.worth = worth_of(*node.snapshot, 1);
}

/// Bytes that come and go with the snapshot: `holders` is how many of the cache's snapshots hold a piece that
/// counts, 0 before it is in, 1 while it is.
std::size_t PrefixCache::cost_of(const device::Snapshot& snapshot, std::uint32_t holders) const {
  std::size_t bytes = snapshot.own_bytes();
  for (const device::SharedMemory& piece : snapshot.shared()) {
    const auto found = holders_.find(piece.id);
    if ((found == holders_.end() ? 0 : found->second) == holders) bytes += piece.bytes;
  }
  return bytes;
}

double PrefixCache::worth_of(const device::Snapshot& snapshot, std::uint32_t holders) const {
  const auto mebibytes = static_cast<double>(cost_of(snapshot, holders) + 1) / (1 << 20);
  return clock_ + static_cast<double>(snapshot.position()) / mebibytes;
}

bool PrefixCache::insert(Ids ids, std::unique_ptr<device::Snapshot> snapshot) {
  if (ids.empty() || touch(ids)) return false;
  if (!make_room(*snapshot)) {
    ++facts_.refusals;
    return false;
  }
  facts_.bytes += cost_of(*snapshot, 0);
  hold(*snapshot);
  Node& node = make_path(ids);
  node.snapshot = std::move(snapshot);
  entries_.push_back(&node);
  mark_used(node);
  ++facts_.insertions;
  return true;
}

bool PrefixCache::make_room(const device::Snapshot& snapshot) {
  std::size_t whole = snapshot.own_bytes();
  for (const device::SharedMemory& piece : snapshot.shared()) whole += piece.bytes;
  if (whole > facts_.budget) return false;
  while (facts_.bytes + cost_of(snapshot, 0) > facts_.budget) {
    Node* least = *std::ranges::min_element(entries_, [](const Node* a, const Node* b) {
      return a->worth != b->worth ? a->worth < b->worth : a->used < b->used;
    });
    const double worth = worth_of(snapshot, 0);
    clock_ = std::min(worth, least->worth);
    if (worth < least->worth) return false;
    evict(*least);
    ++facts_.evictions;
  }
  return true;
}

void PrefixCache::hold(const device::Snapshot& snapshot) {
  for (const device::SharedMemory& piece : snapshot.shared()) ++holders_[piece.id];
}

void PrefixCache::evict(Node& node) {
  facts_.bytes -= cost_of(*node.snapshot, 1);
  for (const device::SharedMemory& piece : node.snapshot->shared()) {
    const auto found = holders_.find(piece.id);
    if (--found->second == 0) holders_.erase(found);
  }
  node.snapshot.reset();
  std::erase(entries_, &node);
  prune(&node);
}

void PrefixCache::prune(Node* node) {
  while (node->parent != nullptr && node->snapshot == nullptr && node->children.empty()) {
    Node* parent = node->parent;
    const auto place = parent->children.find(*node->block);
    parent->children.erase(place);
    node = parent;
  }
}

}  // namespace aima::engine
