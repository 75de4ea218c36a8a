/// Snapshots of prompts, found again by their tokens.
///
/// Token sequences are cut into blocks of 64; a trie of blocks holds snapshots at its nodes. What is found is
/// always compared token by token, never by a hash.
///
/// Eviction is GreedyDual-Size (Cao, Irani: "Cost-aware WWW proxy caching algorithms", USITS 1997): an entry
/// is worth `clock + position / bytes that it added` when it comes in and again whenever it is used; the
/// least worth goes, the least recently used of equals, and the clock moves up to its worth. So a long prompt
/// outlasts many short ones, and still goes in the end if nobody asks for it. An entry that would itself be
/// the least worth is not taken in.
///
/// The budget counts bytes once however many snapshots share them. The trie itself (under 1 % beside) and
/// blocks that only a running sequence holds are not counted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/device.h"

namespace aima::engine {

struct CacheFacts {
  std::size_t budget = 0;  ///< bytes
  std::size_t bytes = 0;   ///< held, shared memory once
  std::int64_t entries = 0;
  std::int64_t hits = 0;    ///< of `find`
  std::int64_t misses = 0;  ///< of `find`
  std::int64_t insertions = 0;
  std::int64_t evictions = 0;
  std::int64_t refusals = 0;  ///< snapshots too large, or of the least worth
};

/// For one thread. Must not outlive the device of its snapshots.
class PrefixCache {
 public:
  using Ids = std::span<const std::int32_t>;

  /// `budget` bytes; 0 keeps nothing.
  explicit PrefixCache(std::size_t budget);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;
  ~PrefixCache();

  struct Match {
    std::int64_t shared =
        0;  ///< tokens, a multiple of 64, that some stored prompt has in common with the ids
    std::shared_ptr<const device::Snapshot> snapshot;  ///< the deepest on that way; null: none

    std::int64_t position() const { return snapshot == nullptr ? 0 : snapshot->position(); }
  };

  /// The longest stored prefix of `ids` that leaves at least one of them over.
  Match find(Ids ids);

  /// True when the state behind `ids` (their count a multiple of 64) is stored; it counts as used.
  bool touch(Ids ids);

  /// Stores the state behind `ids`. Evicts what it must; returns false when the snapshot was not taken in.
  bool insert(Ids ids, std::unique_ptr<device::Snapshot> snapshot);

  void clear();
  CacheFacts facts() const;

 private:
  using Block = std::array<std::int32_t, static_cast<std::size_t>(device::block_tokens)>;

  struct Node {
    Node* parent = nullptr;
    const Block* block = nullptr;  ///< key in the parent's `children`
    std::map<Block, std::unique_ptr<Node>> children;
    std::shared_ptr<const device::Snapshot> snapshot;
    double worth = 0;
    std::uint64_t used = 0;
  };

  static Block block_at(Ids ids, std::size_t start);
  Node* walk(Ids ids);
  Node& make_path(Ids ids);
  void mark_used(Node& node);
  double worth_of(const device::Snapshot& snapshot, std::uint32_t holders) const;
  std::size_t cost_of(const device::Snapshot& snapshot, std::uint32_t holders) const;
  bool make_room(const device::Snapshot& snapshot);
  void hold(const device::Snapshot& snapshot);
  void evict(Node& node);
  void prune(Node* node);

  Node root_;
  std::vector<Node*> entries_;
  std::unordered_map<const void*, std::uint32_t> holders_;  ///< of shared pieces: how many entries
  CacheFacts facts_;
  double clock_ = 0;
  std::uint64_t uses_ = 0;
};

}  // namespace aima::engine
