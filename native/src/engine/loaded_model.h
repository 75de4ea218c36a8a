/// A model folder, read: config, weights, tokenizer, stop ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/math_mode.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/weights.h"
#include "text/tokenizer.h"

namespace aima::engine {

struct LoadedModel {
  model::Config config;
  model::Checkpoint checkpoint;
  model::Weights weights;
  std::vector<std::int32_t> stop_ids;
  std::unique_ptr<text::Tokenizer> tokenizer;  ///< null where the folder has no tokenizer.json

  std::string
      weights_digest;  ///< one digest of all tensors read; empty where they are mapped and not digested
  std::optional<std::filesystem::path> manifest;  ///< what the weights were checked against

  const model::LoadReport& load_report() const { return weights.store->report(); }
  /// Ids from this one on are padding rows of the vocabulary, as far as that is known.
  std::int32_t vocab_limit() const;
};

struct LoadRequest {
  model::LoadOptions options = {};
  /// A manifest that must hold; none: the folder's aima-weights.json, if there is one.
  std::optional<std::filesystem::path> manifest = {};
};

/// Throws base::Error: usage, naming the file and field that cannot be accepted; failed, when memory or a
/// file gives out; check_failed, naming the first tensor that is not the manifest's. base::Cancelled when
/// told to stop.
std::unique_ptr<LoadedModel> load_model(const std::filesystem::path& folder, Math math,
                                        const LoadRequest& request = {});

}  // namespace aima::engine
