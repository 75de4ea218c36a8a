#include "engine/loaded_model.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/memory.h"
#include "model/manifest.h"

namespace aima::engine {
namespace {

std::optional<std::filesystem::path> find_manifest(const std::filesystem::path& folder,
                                                   const LoadRequest& request) {
  if (request.manifest) return request.manifest;
  const std::filesystem::path beside = folder / model::manifest_name;
  if (base::is_there(beside)) return beside;
  return std::nullopt;
}

/// Refuses what would end in the system's killing the process half way.
void check_memory(const std::filesystem::path& folder, const model::StoreSize& size) {
  using base::format_bytes;
  for (const base::MemoryLimit& limit : base::memory_limits()) {
    const std::uint64_t needed =
        size.held_bytes + size.passing_bytes + (limit.counts_mapped ? size.mapped_bytes : 0);
    if (needed <= limit.available) continue;
    throw base::Error({.what = "the weights do not fit into memory",
                       .where = folder.string(),
                       .why = format_bytes(needed) + " are to be taken and " + format_bytes(limit.available) +
                              " available (" + limit.source + ")",
                       .hint = "--mmap leaves weights in their files, to be brought in as they are used"});
  }
}

void load_weights(LoadedModel& loaded, const std::filesystem::path& folder, Math math,
                  const LoadRequest& request) {
  model::LoadOptions options = request.options;
  model::Manifest manifest;
  const std::string where = loaded.manifest ? loaded.manifest->string() : "";
  if (loaded.manifest) {
    manifest = model::parse_manifest(base::read_text(*loaded.manifest), where);
    model::check_listing(manifest, where, loaded.checkpoint);
    options.digest = true;
  }
  const model::WeightsPlan plan = model::plan_weights(loaded.checkpoint, loaded.config, math);
  check_memory(folder, plan.size(options.method));
  loaded.weights =
      model::bind_weights(loaded.checkpoint, loaded.config, math,
                          std::make_shared<model::TensorStore>(loaded.checkpoint, plan.wanted, options));
  const model::Digests& digests = loaded.weights.store->digests();
  if (loaded.manifest) model::check_digests(manifest, where, loaded.checkpoint, digests);
  if (options.digest || options.method == model::Method::read)
    loaded.weights_digest = model::digest_of(digests);
}

}  // namespace

std::int32_t LoadedModel::vocab_limit() const {
  const auto rows = static_cast<std::int32_t>(config.vocab);
  return tokenizer == nullptr ? rows : std::min(rows, tokenizer->vocab_size());
}

std::unique_ptr<LoadedModel> load_model(const std::filesystem::path& folder, Math math,
                                        const LoadRequest& request) {
  auto loaded = std::make_unique<LoadedModel>();
  loaded->config = model::read_config(folder);
  loaded->stop_ids = model::read_stop_ids(folder, loaded->config);
  // Small files first: what is wrong with them should not take the time of reading the weights to appear.
  const std::filesystem::path tokenizer = folder / "tokenizer.json";
  if (base::is_there(tokenizer)) loaded->tokenizer = text::Tokenizer::load(tokenizer);
  loaded->checkpoint = model::Checkpoint::open(folder);
  loaded->manifest = find_manifest(folder, request);
  load_weights(*loaded, folder, math, request);
  return loaded;
}

}  // namespace aima::engine
