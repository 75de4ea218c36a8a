/// A model folder, read: config, weights, tokenizer, stop ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/math_mode.h"
#include "model/config.h"
#include "model/safetensors.h"
#include "model/weights.h"
#include "text/tokenizer.h"

namespace aima::engine {

struct LoadedModel {
  model::Config config;
  model::Checkpoint checkpoint;
  model::Weights weights;  ///< points into `checkpoint`
  std::vector<std::int32_t> stop_ids;
  std::unique_ptr<text::Tokenizer> tokenizer;  ///< null where the folder has no tokenizer.json

  /// Ids from this one on are padding rows of the vocabulary, as far as that is known.
  std::int32_t vocab_limit() const;
};

/// Throws base::Error (usage) naming the file and field that cannot be accepted.
std::unique_ptr<LoadedModel> load_model(const std::filesystem::path& folder, Math math);

}  // namespace aima::engine
