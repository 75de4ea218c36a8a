/// A manifest of weights: what every tensor was when the folder was known to be good.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint.h"

namespace aima::model {

/// The manifest's name beside the model, where it is enforced without being asked for.
inline constexpr std::string_view manifest_name = "aima-weights.json";

inline constexpr std::string_view manifest_schema = "aima/weights-manifest/v1";

using Digests = std::map<std::string, std::string, std::less<>>;  ///< XXH3-128 in hex by tensor name

struct ManifestTensor {
  std::string dtype;  ///< as the file spells it
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
  std::string xxh3_128;  ///< 32 lower-case hex digits

  bool operator==(const ManifestTensor&) const = default;
};

struct ManifestShard {
  std::uint64_t bytes = 0;
  std::optional<std::string> sha256;  ///< 64 lower-case hex digits

  bool operator==(const ManifestShard&) const = default;
};

/// Shards are told for people and other tools; what is enforced is the tensors, however they lie in files.
struct Manifest {
  std::map<std::string, ManifestTensor, std::less<>> tensors;
  std::map<std::string, ManifestShard, std::less<>> shards;
};

/// Throws base::Error (usage) naming the field that is missing or malformed. `where` names the source.
Manifest parse_manifest(std::string_view text, std::string_view where);

/// JSON, one tensor a line, in the order of the names: the same weights give the same bytes.
std::string manifest_text(const Manifest& manifest);

/// Of a checkpoint whose tensors have all been digested.
Manifest manifest_of(const Checkpoint& checkpoint, const Digests& digests);

/// Compares names, dtypes and shapes with the checkpoint's, before anything is read. Throws base::Error
/// (check_failed) naming the first tensor that differs, in the order of the names.
void check_listing(const Manifest& manifest, std::string_view where, const Checkpoint& checkpoint);

/// Compares the digests of the tensors that were loaded. Throws as above.
void check_digests(const Manifest& manifest, std::string_view where, const Checkpoint& checkpoint,
                   const Digests& digests);

/// One digest of all `digests`: of the lines "NAME DIGEST\n" in the order of the names.
std::string digest_of(const Digests& digests);

}  // namespace aima::model
