#include "model/manifest.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <span>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"

namespace aima::model {
namespace {

namespace bj = boost::json;
using base::json::Object;

std::uint64_t read_size(const Object& entry, std::string_view key) {
  const std::int64_t value = entry.integer(key);
  if (value < 0) entry.refuse(key, "a number of bytes is expected here");
  return static_cast<std::uint64_t>(value);
}

std::string read_hex(const Object& entry, std::string_view key, std::size_t digits) {
  const std::string_view text = entry.string(key);
  const bool hex =
      std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (!hex || text.size() != digits)
    entry.refuse(key, std::to_string(digits) + " lower-case hex digits are expected here");
  return std::string(text);
}

ManifestTensor read_tensor(const Object& entry) {
  ManifestTensor tensor;
  tensor.dtype = entry.string("dtype");
  for (const bj::value& size : entry.array("shape")) {
    if (!size.is_int64() || size.get_int64() < 0) entry.refuse("shape", "a list of sizes is expected here");
    tensor.shape.push_back(size.get_int64());
  }
  tensor.bytes = read_size(entry, "bytes");
  tensor.xxh3_128 = read_hex(entry, "xxh3_128", 32);
  return tensor;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return bj::serialize(bj::array(shape.begin(), shape.end()));
}

std::string line_of(const std::string& name, const ManifestTensor& tensor) {
  const bj::object entry{{"dtype", tensor.dtype},
                         {"shape", bj::array(tensor.shape.begin(), tensor.shape.end())},
                         {"bytes", tensor.bytes},
                         {"xxh3_128", tensor.xxh3_128}};
  return bj::serialize(bj::string(name)) + ": " + bj::serialize(entry);
}

std::string line_of(const std::string& name, const ManifestShard& shard) {
  bj::object entry{{"bytes", shard.bytes}};
  if (shard.sha256) entry["sha256"] = *shard.sha256;
  return bj::serialize(bj::string(name)) + ": " + bj::serialize(entry);
}

template <typename Entries>
std::string lines_of(const Entries& entries) {
  std::string text;
  for (const auto& [name, entry] : entries)
    text += (text.empty() ? "\n    " : ",\n    ") + line_of(name, entry);
  return text + "\n  ";
}

[[noreturn]] void differ(std::string what, std::string_view where, std::string why) {
  throw base::Error(
      {.what = std::move(what),
       .where = std::string(where),
       .why = std::move(why),
       .hint = "the files are damaged or of another version; weights that are meant to differ need "
               "a new manifest: aima-engine weights-probe --out"},
      base::Exit::check_failed);
}

}  // namespace

Manifest parse_manifest(std::string_view text, std::string_view where) {
  const bj::value document = base::json::parse(text, where);
  const Object top(document, std::string(where));
  if (top.string("schema") != manifest_schema)
    top.refuse("schema", "`" + std::string(manifest_schema) + "` is expected here");
  Manifest manifest;
  const Object tensors = top.object("tensors");
  for (const auto& field : tensors.raw())
    manifest.tensors.emplace(field.key(), read_tensor(tensors.object(field.key())));
  const Object shards = top.object("shards");
  for (const auto& field : shards.raw()) {
    const Object entry = shards.object(field.key());
    ManifestShard shard{.bytes = read_size(entry, "bytes"), .sha256 = {}};
    if (entry.has("sha256")) shard.sha256 = read_hex(entry, "sha256", 64);
    manifest.shards.emplace(field.key(), std::move(shard));
  }
  return manifest;
}

std::string manifest_text(const Manifest& manifest) {
  return "{\n  \"schema\": \"" + std::string(manifest_schema) + "\",\n  \"shards\": {" +
         lines_of(manifest.shards) + "},\n  \"tensors\": {" + lines_of(manifest.tensors) + "}\n}\n";
}

Manifest manifest_of(const Checkpoint& checkpoint, const Digests& digests) {
  Manifest manifest;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    manifest.tensors.emplace(name, ManifestTensor{.dtype = tensor.dtype_name,
                                                  .shape = tensor.shape,
                                                  .bytes = tensor.bytes,
                                                  .xxh3_128 = digests.at(name)});
  }
  for (std::size_t i = 0; i < checkpoint.file_count(); ++i) {
    const Shard& shard = checkpoint.shard(i);
    manifest.shards.emplace(shard.name, ManifestShard{.bytes = shard.bytes, .sha256 = {}});
  }
  return manifest;
}

void check_listing(const Manifest& manifest, std::string_view where, const Checkpoint& checkpoint) {
  auto expected = manifest.tensors.begin();
  auto found = checkpoint.tensors().begin();
  while (expected != manifest.tensors.end() || found != checkpoint.tensors().end()) {
    const bool no_more = found == checkpoint.tensors().end();
    if (no_more || (expected != manifest.tensors.end() && expected->first < found->first))
      differ("the tensor `" + expected->first + "` is missing", checkpoint.where(),
             std::string(where) + " lists it");
    const Tensor& tensor = found->second;
    if (expected == manifest.tensors.end() || found->first < expected->first)
      differ("the tensor `" + found->first + "` is not in the manifest", tensor.file, std::string(where));
    const ManifestTensor& wanted = expected->second;
    if (tensor.dtype_name != wanted.dtype || tensor.shape != wanted.shape || tensor.bytes != wanted.bytes)
      differ("the tensor `" + found->first + "` is not the manifest's", tensor.file,
             "it is " + tensor.dtype_name + " " + shape_text(tensor.shape) + "; " + std::string(where) +
                 " has " + wanted.dtype + " " + shape_text(wanted.shape));
    ++expected;
    ++found;
  }
}

void check_digests(const Manifest& manifest, std::string_view where, const Checkpoint& checkpoint,
                   const Digests& digests) {
  const auto differs = [&](const Digests::value_type& entry) {
    return manifest.tensors.at(entry.first).xxh3_128 != entry.second;
  };
  const auto first = std::ranges::find_if(digests, differs);
  if (first == digests.end()) return;
  const auto others = std::count_if(std::next(first), digests.end(), differs);
  const std::string more = others == 0 ? "" : "; " + std::to_string(others) + " more tensors differ";
  differ("the tensor `" + first->first + "` is not the manifest's", checkpoint.find(first->first)->file,
         "its XXH3-128 is " + first->second + "; " + std::string(where) + " has " +
             manifest.tensors.at(first->first).xxh3_128 + more);
}

std::string digest_of(const Digests& digests) {
  base::Digest all;
  for (const auto& [name, digest] : digests) {
    const std::string line = name + " " + digest + "\n";
    all.add(std::as_bytes(std::span(line)));
  }
  return all.hex();
}

}  // namespace aima::model
