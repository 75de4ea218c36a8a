/// Digests every tensor of a checkpoint, without holding any.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/manifest.h"
#include "model/published.h"
#include "model/tensor_store.h"

namespace aima::model {

struct ProbedShard {
  std::optional<std::string> sha256;
  std::optional<PublishedHash> published;
};

struct Probe {
  Manifest manifest;
  Digests digests;
  std::vector<ProbedShard> shards;  ///< in the checkpoint's order
  LoadReport report;                ///< nothing is held or mapped
};

/// Reads all of the checkpoint once, with several workers; a shard is one worker's work where `sha256` is
/// asked for, a tensor otherwise. With `sha256` a shard that is not what was published is an error
/// (check_failed). Throws as TensorStore does.
Probe probe_weights(const std::filesystem::path& folder, const Checkpoint& checkpoint, bool sha256,
                    int workers, const Watch& watch = {});

}  // namespace aima::model
