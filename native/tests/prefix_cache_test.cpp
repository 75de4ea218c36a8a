/// The prefix cache with snapshots that only count, and the places where prefill stops for one.
#include "engine/prefix_cache.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "engine/snapshot_points.h"
#include "support.h"

using namespace aima;
using engine::PrefixCache;
using Ids = std::vector<std::int32_t>;

namespace {

constexpr std::size_t mib = 1 << 20;

/// What is alive of the counting snapshots: the truth that the cache's own count is held against.
struct Ledger {
  std::size_t own = 0;
  std::map<int, int> blocks;  ///< block number -> snapshots that hold it

  std::size_t bytes(std::size_t block_bytes) const { return own + blocks.size() * block_bytes; }
};

class CountingSnapshot final : public device::Snapshot {
 public:
  CountingSnapshot(Ledger& ledger, std::vector<int> blocks, std::size_t own, std::size_t block_bytes)
      : ledger_(ledger), blocks_(std::move(blocks)), own_(own), block_bytes_(block_bytes) {
    ledger_.own += own_;
    for (const int block : blocks_) ++ledger_.blocks[block];
  }
  ~CountingSnapshot() override {
    ledger_.own -= own_;
    for (const int block : blocks_) {
      if (--ledger_.blocks[block] == 0) ledger_.blocks.erase(block);
    }
  }
  std::int64_t position() const override { return static_cast<std::int64_t>(blocks_.size()) * 64; }
  std::size_t own_bytes() const override { return own_; }
  std::vector<device::SharedMemory> shared() const override {
    std::vector<device::SharedMemory> pieces;
    for (const int block : blocks_)
      pieces.push_back({.id = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(block) + 1),
                        .bytes = block_bytes_});
    return pieces;
  }

 private:
  Ledger& ledger_;
  std::vector<int> blocks_;
  std::size_t own_;
  std::size_t block_bytes_;
};

/// `count` ids of a conversation: the same number gives the same ids.
Ids ids_of(int conversation, std::int64_t count) {
  Ids ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = conversation * 7919 + static_cast<int>(i);
  return ids;
}

struct Cache {
  explicit Cache(std::size_t budget) : cache(budget) {}

  /// Stores the first `count` ids of a conversation, whose blocks are its own.
  bool insert(int conversation, std::int64_t count) {
    std::vector<int> blocks;
    for (int i = 0; i < count / 64; ++i) blocks.push_back(conversation * 10000 + i);
    return cache.insert(ids_of(conversation, count),
                        std::make_unique<CountingSnapshot>(ledger, blocks, 10 * mib, mib));
  }
  std::int64_t find(int conversation, std::int64_t count) {
    return cache.find(ids_of(conversation, count)).position();
  }
  bool honest() const {
    return cache.facts().bytes == ledger.bytes(mib) && cache.facts().bytes <= cache.facts().budget;
  }

  Ledger ledger;
  PrefixCache cache;
};

}  // namespace

TEST_CASE("the longest stored prefix is found that leaves a token to compute") {
  Cache c(1000 * mib);
  CHECK(c.find(1, 1000) == 0);
  CHECK(c.insert(1, 128));
  CHECK(c.insert(1, 256));
  CHECK(c.find(1, 1000) == 256);
  CHECK(c.find(1, 257) == 256);
  CHECK(c.find(1, 256) == 128);  // the whole prompt is stored, but its logits are not
  CHECK(c.find(1, 129) == 128);
  CHECK(c.find(1, 128) == 0);
  CHECK(c.find(2, 1000) == 0);
  Ids branch = ids_of(1, 300);
  branch[200] = -5;
  CHECK(c.cache.find(branch).position() == 128);
  CHECK(c.cache.find(branch).shared == 192);
  branch = ids_of(1, 300);
  branch[127] = -5;  // the last token of a block counts
  CHECK(c.cache.find(branch).position() == 0);
  CHECK(c.cache.find(branch).shared == 64);
  CHECK(c.cache.find({}).position() == 0);
  CHECK(c.cache.facts().hits == 6);
  CHECK(c.cache.facts().misses == 6);
  CHECK_FALSE(c.insert(1, 256));  // already there
  CHECK(c.cache.touch(ids_of(1, 256)));
  CHECK_FALSE(c.cache.touch(ids_of(1, 192)));
  CHECK(c.cache.facts().entries == 2);
  c.cache.clear();
  CHECK(c.find(1, 1000) == 0);
  CHECK(c.ledger.bytes(mib) == 0);
  CHECK(c.honest());
}

TEST_CASE("memory that snapshots share is counted once") {
  Cache c(100 * mib);
  CHECK(c.insert(1, 640));  // 10 MiB and 10 blocks
  CHECK(c.cache.facts().bytes == 20 * mib);
  CHECK(c.insert(1, 1280));  // 10 more and 10 more blocks
  CHECK(c.cache.facts().bytes == 40 * mib);
  CHECK(c.insert(1, 320));  // inside: its own 10 alone
  CHECK(c.cache.facts().bytes == 50 * mib);
  CHECK(c.honest());
}

TEST_CASE("the budget holds, and a snapshot larger than it is refused") {
  Cache c(60 * mib);
  CHECK(c.insert(1, 50 * 64));  // 10 + 50: exactly
  CHECK(c.honest());
  CHECK_FALSE(c.insert(2, 51 * 64));
  CHECK(c.cache.facts().refusals == 1);
  CHECK(c.find(1, 5000) == 50 * 64);  // and it has thrown nothing out
  Cache none(0);
  CHECK_FALSE(none.insert(1, 64));
  CHECK(none.find(1, 100) == 0);
}

TEST_CASE("short prompts do not push a long one out, but in the end the unused one goes") {
  Cache c(100 * mib);
  CHECK(c.insert(1, 60 * 64));  // 70 MiB, worth 3840 / 70 = 55 tokens a MiB
  int others = 2;
  for (; others < 6; ++others) {  // 14 MiB each, worth 256 / 14 = 18
    CHECK(c.insert(others, 4 * 64));
    CHECK(c.find(others, 300) == 256);
    CHECK(c.honest());
  }
  CHECK(c.find(1, 60 * 64 + 1) == 60 * 64);
  CHECK(c.cache.facts().evictions == 2);  // the oldest short ones
  CHECK(c.find(2, 300) == 0);
  const int before = others;
  while (c.cache.touch(ids_of(1, 60 * 64)) && others < before) ++others;  // used: it stays for ever
  for (int more = 0; more < 40; ++more) {
    c.insert(others++, 4 * 64);
    CHECK(c.honest());
  }
  CHECK(c.find(1, 60 * 64 + 1) == 0);
}

TEST_CASE("of equals the least recently used goes") {
  Cache c(42 * mib);
  for (const int conversation : {1, 2, 3}) CHECK(c.insert(conversation, 4 * 64));
  CHECK(c.find(1, 300) == 256);
  CHECK(c.insert(4, 4 * 64));
  CHECK(c.find(2, 300) == 0);
  CHECK(c.find(1, 300) == 256);
  CHECK(c.find(3, 300) == 256);
}

TEST_CASE("random use: what is found is right, and every byte is accounted for") {
  test::Random random(3);
  for (const std::size_t budget : {30 * mib, 120 * mib, 2000 * mib}) {
    Ledger ledger;
    PrefixCache cache(budget);
    std::set<Ids> inserted;
    int next_block = 0;
    std::map<Ids, int> block_of;  // the same prefix lies in the same block, as states share them
    std::int64_t taken_in = 0;
    for (int step = 0; step < 2000; ++step) {
      Ids ids(static_cast<std::size_t>(random.below(700)));
      for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = i % 64 == 63 && random.below(6) == 0 ? 1 : 0;
      PrefixCache::Match match = cache.find(ids);
      if (match.snapshot != nullptr) {
        CHECK(match.position() < static_cast<std::int64_t>(ids.size()));
        CHECK(inserted.contains(Ids(ids.begin(), ids.begin() + match.position())));
      }
      CHECK(match.shared >= match.position());
      match.snapshot.reset();  // it would outlive its eviction
      Ids prefix(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(ids.size() / 64 * 64));
      if (prefix.empty()) continue;
      std::vector<int> blocks;
      for (std::size_t end = 64; end <= prefix.size(); end += 64) {
        const auto [at, made] = block_of.try_emplace(
            Ids(prefix.begin(), prefix.begin() + static_cast<std::ptrdiff_t>(end)), next_block);
        next_block += made ? 1 : 0;
        blocks.push_back(at->second);
      }
      const bool there = cache.touch(prefix);
      const bool taken =
          cache.insert(prefix, std::make_unique<CountingSnapshot>(ledger, blocks, 5 * mib, mib));
      CHECK((taken ? !there : true));
      taken_in += taken ? 1 : 0;
      inserted.insert(prefix);
      CHECK(cache.touch(prefix) == (there || taken));
      CHECK(cache.facts().bytes <= budget);
      CHECK(cache.facts().bytes == ledger.bytes(mib));
    }
    CHECK(cache.facts().insertions == taken_in);
    CHECK(cache.facts().entries == taken_in - cache.facts().evictions);
    CHECK(cache.facts().hits > 100);
  }
}

TEST_CASE("a long prompt's chain of blocks is taken down without recursion") {
  Cache c(100000 * mib);
  CHECK(c.insert(1, 262144));
  c.cache.clear();
  CHECK(c.ledger.bytes(mib) == 0);
}

TEST_CASE("prefill stops before the generation prompt, a branch, and message boundaries") {
  using engine::snapshot_points;
  using Points = std::vector<std::int64_t>;
  const Points boundaries = {0, 1000, 3000, 3300, 9000, 9020};
  const auto points = [&](std::int64_t tokens, std::int64_t start, std::int64_t shared,
                          std::optional<std::int64_t> generation, std::span<const std::int64_t> at) {
    return snapshot_points(
        {.tokens = tokens, .start = start, .shared = shared, .boundaries = at, .generation = generation});
  };
  CHECK(points(63, 0, 0, {}, {}).empty());
  CHECK(points(64, 0, 0, {}, {}).empty());  // one token has to be left
  CHECK(points(65, 0, 0, {}, {}) == Points{64});
  CHECK(points(1000, 0, 0, {}, {}) == Points{960});
  CHECK(points(1000, 960, 0, {}, {}).empty());
  CHECK(points(1000, 0, 0, 700, {}) == Points{640});
  CHECK(points(1000, 640, 0, 700, {}).empty());
  CHECK(points(1000, 0, 0, 5000, {}) == Points{960});  // a hint beyond the prompt
  CHECK(points(1000, 128, 512, {}, {}) == Points{512, 960});
  // The system prompt's end; then from the last, those at least 1024 tokens apart: 9020 and 9000 are near the
  // generation prompt, 3000 is near 3300.
  CHECK(points(9100, 0, 0, 9030, boundaries) == Points{960, 3264, 9024});
  CHECK(points(9100, 3264, 3264, 9030, boundaries) == Points{9024});
  Points many;
  for (std::int64_t offset = 0; offset < 100000; offset += 2000) many.push_back(offset);
  const Points got = points(100000, 0, 0, 99990, many);
  CHECK(got.size() == 1 + engine::most_boundaries);
  CHECK(got.front() == 1984);
  CHECK(got.back() == 99968);
  for (const std::int64_t point : got) CHECK(point % 64 == 0);
}
