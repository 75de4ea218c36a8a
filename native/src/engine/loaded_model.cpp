#include "engine/loaded_model.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"

namespace aima::engine {

std::int32_t LoadedModel::vocab_limit() const {
  const auto rows = static_cast<std::int32_t>(config.vocab);
  return tokenizer == nullptr ? rows : std::min(rows, tokenizer->vocab_size());
}

std::unique_ptr<LoadedModel> load_model(const std::filesystem::path& folder, Math math) {
  auto loaded = std::make_unique<LoadedModel>();
  loaded->config = model::read_config(folder);
  loaded->checkpoint = model::Checkpoint::open(folder);
  loaded->weights = model::bind_weights(loaded->checkpoint, loaded->config, math);
  loaded->stop_ids = model::read_stop_ids(folder, loaded->config);
  const std::filesystem::path tokenizer = folder / "tokenizer.json";
  if (base::is_there(tokenizer)) loaded->tokenizer = text::Tokenizer::load(tokenizer);
  return loaded;
}

}  // namespace aima::engine
