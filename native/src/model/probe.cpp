#include "model/probe.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "base/threads.h"

namespace aima::model {
namespace {

using Clock = std::chrono::steady_clock;

/// What one worker takes at a time: tensors of one shard, in the order of the file.
struct Group {
  std::size_t shard = 0;
  std::vector<const Tensor*> tensors;
  std::vector<std::string*> digests;  ///< where they go
};

void add(Group& group, const Tensor& tensor, std::string& digest) {
  group.shard = tensor.shard;
  group.tensors.push_back(&tensor);
  group.digests.push_back(&digest);
}

std::vector<Group> groups_of(const Checkpoint& checkpoint, Digests& digests, bool whole_shards) {
  std::vector<std::pair<const Tensor*, std::string*>> all;
  for (const auto& [name, tensor] : checkpoint.tensors()) all.emplace_back(&tensor, &digests[name]);
  if (whole_shards) {
    std::ranges::sort(all, {}, [](const auto& e) { return std::pair(e.first->shard, e.first->begin); });
  } else {
    std::ranges::sort(all, {}, [](const auto& e) { return work_order(*e.first); });
  }
  std::vector<Group> groups(whole_shards ? checkpoint.file_count() : 0);
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].shard = i;
  for (const auto& [tensor, digest] : all) {
    if (!whole_shards) groups.emplace_back();
    add(whole_shards ? groups[tensor->shard] : groups.back(), *tensor, *digest);
  }
  return groups;
}

/// The whole file in one go: its header, then tensors, which lie without gaps.
std::string sha256_of(const Checkpoint& checkpoint, const Group& group, TensorReader& reader) {
  base::Sha256 sha;
  const auto take = [&](std::span<const std::byte> block) { sha.add(block); };
  std::uint64_t data_at = checkpoint.shard(group.shard).bytes;
  if (!group.tensors.empty()) data_at = group.tensors.front()->begin;
  reader.blocks(group.shard, {0, data_at}, nullptr, take);
  for (std::size_t i = 0; i < group.tensors.size(); ++i)
    *group.digests[i] = reader.stream(*group.tensors[i], take);
  return sha.hex();
}

void check_published(const Checkpoint& checkpoint, const std::vector<ProbedShard>& shards) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const ProbedShard& shard = shards[i];
    if (!shard.published || shard.published->sha256 == shard.sha256) continue;
    throw base::Error({.what = "the file is not what was published",
                       .where = checkpoint.shard(i).path,
                       .why = "its SHA-256 is " + *shard.sha256 + "; " + shard.published->source + " says " +
                              shard.published->sha256,
                       .hint = "download it again"},
                      base::Exit::check_failed);
  }
}

}  // namespace

Probe probe_weights(const std::filesystem::path& folder, const Checkpoint& checkpoint, bool sha256,
                    int workers, const Watch& watch) {
  const Clock::time_point start = Clock::now();
  Probe probe;
  probe.shards.resize(checkpoint.file_count());
  if (sha256) {
    for (std::size_t i = 0; i < probe.shards.size(); ++i)
      probe.shards[i].published = find_published(folder, checkpoint.shard(i).name);
  }
  const std::vector<Group> groups = groups_of(checkpoint, probe.digests, sha256);
  Meter meter(watch, checkpoint.bytes());
  base::ThreadPool pool(load_workers(workers));
  std::deque<TensorReader> readers;
  for (int i = 0; i < pool.size(); ++i) readers.emplace_back(checkpoint, meter);
  pool.run(static_cast<std::int64_t>(groups.size()), [&](std::int64_t task, int worker) {
    const Group& group = groups[static_cast<std::size_t>(task)];
    TensorReader& reader = readers[static_cast<std::size_t>(worker)];
    if (sha256) {
      probe.shards[group.shard].sha256 = sha256_of(checkpoint, group, reader);
    } else {
      *group.digests[0] = reader.stream(*group.tensors[0], [](std::span<const std::byte>) {});
    }
  });
  check_published(checkpoint, probe.shards);
  probe.manifest = manifest_of(checkpoint, probe.digests);
  for (std::size_t i = 0; i < probe.shards.size(); ++i)
    probe.manifest.shards.at(checkpoint.shard(i).name).sha256 = probe.shards[i].sha256;
  probe.report = {.workers = pool.size(),
                  .tensors = probe.digests.size(),
                  .bytes = checkpoint.bytes(),
                  .read_bytes = checkpoint.bytes(),
                  .seconds = std::chrono::duration<double>(Clock::now() - start).count()};
  return probe;
}

}  // namespace aima::model
