#include <array>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <span>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "cli/commands.h"
#include "cli/load_options.h"
#include "model/manifest.h"
#include "model/probe.h"

namespace aima::cli {
namespace {

namespace bj = boost::json;

constexpr std::array<Option, 6> options = {{
    {"model-dir", "DIR", "folder with the .safetensors files"},
    {"sha256", "", "the shards' SHA-256 too, checked against published ones where the folder has them"},
    {"out", "FILE",
     "write the manifest; as aima-weights.json in the model folder it is enforced from then on"},
    {"expect-manifest", "FILE", "compare every tensor with this manifest"},
    {"load-threads", "N", "workers (default: one per usable core, 4 to 8)"},
    {"json", "", "print the manifest (aima/weights-manifest/v1) with the load's report"},
}};

/// The manifest with "load" and "published" added.
std::string json_text(const model::Checkpoint& checkpoint, const model::Probe& probe) {
  bj::object report = bj::parse(model::manifest_text(probe.manifest)).as_object();
  report["load"] = json_of(probe.report);
  bj::object published;
  for (std::size_t i = 0; i < probe.shards.size(); ++i) {
    const auto& hash = probe.shards[i].published;
    if (hash)
      published[checkpoint.shard(i).name] = bj::object{{"sha256", hash->sha256}, {"source", hash->source}};
  }
  report["published"] = std::move(published);
  return bj::serialize(report) + "\n";
}

std::string plain_text(const model::Checkpoint& checkpoint, const model::Probe& probe, bool sha256) {
  std::string text;
  std::size_t published = 0;
  for (std::size_t i = 0; i < probe.shards.size(); ++i) {
    const model::ProbedShard& shard = probe.shards[i];
    text +=
        shard.sha256.value_or(std::to_string(checkpoint.shard(i).bytes)) + "  " + checkpoint.shard(i).name;
    text += shard.published ? "  as published\n" : "\n";
    published += shard.published ? 1 : 0;
  }
  text += std::to_string(probe.report.tensors) + " tensors: " + load_line(probe.report) + "\n";
  if (sha256 && published < probe.shards.size()) {
    text += "no published hash for " + std::to_string(probe.shards.size() - published) + " of " +
            std::to_string(probe.shards.size()) + " files (SHA256SUMS, or a download by `hf`, has them)\n";
  }
  return text;
}

int run_command(const Arguments& arguments) {
  const std::filesystem::path folder = arguments.required("model-dir");
  const auto workers = static_cast<int>(arguments.integer("load-threads", 0, 1, 256));
  const model::Checkpoint checkpoint = model::Checkpoint::open(folder);
  const std::string where = arguments.value("expect-manifest").value_or("");
  model::Manifest expected;
  if (!where.empty()) {
    expected = model::parse_manifest(base::read_text(where), where);
    model::check_listing(expected, where, checkpoint);
  }
  const bool sha256 = arguments.has("sha256");
  const model::Probe probe = model::probe_weights(folder, checkpoint, sha256, workers, terminal_watch());
  if (!where.empty()) model::check_digests(expected, where, checkpoint, probe.digests);
  if (const auto out = arguments.value("out")) {
    base::AtomicFile file(*out);
    const std::string text = model::manifest_text(probe.manifest);
    file.append(std::as_bytes(std::span(text)));
    file.commit();
  }
  write_out(arguments.has("json") ? json_text(checkpoint, probe) : plain_text(checkpoint, probe, sha256));
  return 0;
}

}  // namespace

const Command weights_probe_command = {
    .name = "weights-probe",
    .summary = "Digest every tensor of a model folder, and write or check a manifest",
    .usage = "--model-dir DIR [--sha256] [--out FILE] [--json]",
    .options = options,
    .notes =
        "Published hashes are looked for in SHA256SUMS, in .cache/huggingface/download/*.metadata, and in "
        "links\n"
        "into a Hugging Face cache. A tensor or file that differs ends with exit code 3.",
    .run = run_command};

}  // namespace aima::cli
