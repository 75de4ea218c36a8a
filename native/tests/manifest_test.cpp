/// Manifests of weights and published hashes.
#include <doctest/doctest.h>

#include "engine/loaded_model.h"
#include "model/manifest.h"
#include "model/probe.h"
#include "model/published.h"
#include "support.h"

using namespace aima;

namespace {

const std::string hash_a(64, 'a');

/// A small model with its manifest.
struct Probed {
  test::TemporaryFolder folder;
  test::SmallModel small;
  model::Manifest manifest;

  Probed() {
    small.write(folder.path());
    const model::Checkpoint checkpoint = model::Checkpoint::open(folder.path());
    manifest = model::probe_weights(folder.path(), checkpoint, false, 1).manifest;
  }
  std::filesystem::path beside() const { return folder.path() / model::manifest_name; }
  void keep() const { test::write_file(beside(), model::manifest_text(manifest)); }
  base::Error load(engine::LoadRequest request = {}) const {
    return test::error_of([&] { engine::load_model(folder.path(), Math::bf16, request); });
  }
};

}  // namespace

TEST_CASE("a manifest is read as it was written") {
  Probed probed;
  probed.manifest.shards.begin()->second.sha256 = hash_a;
  const std::string text = model::manifest_text(probed.manifest);
  const model::Manifest again = model::parse_manifest(text, "m");
  CHECK(again.tensors == probed.manifest.tensors);
  CHECK(again.shards == probed.manifest.shards);
  CHECK(model::manifest_text(again) == text);
}

TEST_CASE("a malformed manifest is refused with its field") {
  const std::string good =
      R"({"schema":"aima/weights-manifest/v1","shards":{"s":{"bytes":1}},"tensors":{"t":)"
      R"({"dtype":"F32","shape":[2],"bytes":8,"xxh3_128":"0123456789abcdef0123456789abcdef"}}})";
  CHECK(model::parse_manifest(good, "m").tensors.size() == 1);
  const auto where = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    const base::Error error = test::error_of([&] { model::parse_manifest(text, "m"); });
    CHECK(error.exit() == base::Exit::usage);
    return error.text().where;
  };
  CHECK(where("/v1", "/v2") == "m: schema");
  CHECK(where("[2]", "[-2]") == "m: tensors.t.shape");
  CHECK(where("[2]", "2") == "m: tensors.t.shape");
  CHECK(where("\"bytes\":8", "\"bytes\":-8") == "m: tensors.t.bytes");
  CHECK(where("0123456789abcdef\"", "\"") == "m: tensors.t.xxh3_128");
  CHECK(where("0123456789abcdef\"", "0123456789ABCDEF\"") == "m: tensors.t.xxh3_128");
  CHECK(where("{\"bytes\":1}", R"({"bytes":1,"sha256":"00"})") == "m: shards.s.sha256");
  CHECK(where("\"tensors\"", "\"tensor\"") == "m: tensors");
}

TEST_CASE("the manifest beside the model is enforced, by both methods") {
  const Probed probed;
  probed.keep();
  for (const model::Method method : {model::Method::read, model::Method::mmap}) {
    const engine::LoadRequest request{.options = {.method = method}};
    CHECK(probed.load(request).text().what.empty());
    const auto loaded = engine::load_model(probed.folder.path(), Math::bf16, request);
    CHECK(loaded->manifest == probed.beside());
    CHECK_FALSE(loaded->weights_digest.empty());
  }
  auto tensors = probed.small.tensors();
  tensors.at("lm_head.weight").values[5] += 1;
  tensors.at("model.language_model.norm.weight").values[0] += 1;
  test::write_file(probed.folder.path() / "model.safetensors", test::safetensors(tensors));
  for (const model::Method method : {model::Method::read, model::Method::mmap}) {
    const base::Error error = probed.load({.options = {.method = method}});
    CHECK(error.exit() == base::Exit::check_failed);
    CHECK(error.text().what == "the tensor `lm_head.weight` is not the manifest's");
    CHECK(error.text().where.ends_with("model.safetensors"));
    CHECK(error.text().why.ends_with("; 1 more tensors differ"));
  }
}

TEST_CASE("a manifest that is named goes before the one beside the model") {
  const Probed probed;
  probed.keep();
  model::Manifest other = probed.manifest;
  other.tensors.at("lm_head.weight").xxh3_128 = std::string(32, '0');
  const std::filesystem::path named = probed.folder.path() / "other.json";
  test::write_file(named, model::manifest_text(other));
  const base::Error error = probed.load({.manifest = named});
  CHECK(error.text().what == "the tensor `lm_head.weight` is not the manifest's");
  CHECK(error.text().why.find("other.json has 00000000") != std::string::npos);
}

TEST_CASE("a manifest of other tensors is refused before anything is read") {
  const auto what = [](const std::function<void(model::Manifest&)>& edit) {
    Probed probed;
    edit(probed.manifest);
    probed.keep();
    const base::Error error = probed.load();
    CHECK(error.exit() == base::Exit::check_failed);
    return error.text().what;
  };
  CHECK(what([](auto& m) { m.tensors.erase("lm_head.weight"); }) ==
        "the tensor `lm_head.weight` is not in the manifest");
  CHECK(what([](auto& m) { m.tensors["a"] = m.tensors.at("lm_head.weight"); }) ==
        "the tensor `a` is missing");
  CHECK(what([](auto& m) { m.tensors["z"] = m.tensors.at("lm_head.weight"); }) ==
        "the tensor `z` is missing");
  CHECK(what([](auto& m) { m.tensors.at("lm_head.weight").dtype = "F16"; }) ==
        "the tensor `lm_head.weight` is not the manifest's");
  CHECK(what([](auto& m) { m.tensors.at("lm_head.weight").shape = {44, 101}; }) ==
        "the tensor `lm_head.weight` is not the manifest's");
}

TEST_CASE("lines of sha256sum") {
  const std::string text =
      "# sums\n" + hash_a + "  other\r\n" + std::string(64, 'B') + " *./model.safetensors\n";
  CHECK(model::parse_sums(text, "model.safetensors", "S") == std::string(64, 'b'));
  CHECK(model::parse_sums(text, "other", "S") == hash_a);
  CHECK(model::parse_sums(text, "more", "S") == std::nullopt);
  CHECK(model::parse_sums("", "more", "S") == std::nullopt);
  for (const std::string& wrong : {std::string("x"), hash_a, hash_a + " one", hash_a.substr(1) + "   file"}) {
    const base::Error error = test::error_of([&] { model::parse_sums("\n" + wrong, "file", "S"); });
    CHECK(error.text().where == "S:2");
  }
}

TEST_CASE("published hashes come from a sums file, a download's metadata or the cache's link") {
  const test::TemporaryFolder folder;
  const auto found = [&] { return model::find_published(folder.path(), "model.safetensors"); };
  CHECK_FALSE(found());
  std::filesystem::create_directories(folder.path() / "blobs");
  const std::filesystem::path blob = std::filesystem::path("blobs") / std::string(64, '1');
  test::write_file(folder.path() / blob, "x");
  std::filesystem::create_symlink(blob, folder.path() / "model.safetensors");
  CHECK(found()->sha256 == std::string(64, '1'));
  const std::filesystem::path cache = folder.path() / ".cache/huggingface/download";
  std::filesystem::create_directories(cache);
  const auto metadata = [&](const std::string& tag) {
    test::write_file(cache / "model.safetensors.metadata", "995ad96e\n" + tag + "\n1700000000.5\n");
  };
  metadata(std::string(40, '2'));  // a small file's tag is no SHA-256
  CHECK(found()->sha256 == std::string(64, '1'));
  metadata(std::string(64, '2'));
  CHECK(found()->sha256 == std::string(64, '2'));
  CHECK(found()->source.ends_with("model.safetensors.metadata"));
  test::write_file(folder.path() / "SHA256SUMS", std::string(64, '3') + "  model.safetensors\n");
  CHECK(found()->sha256 == std::string(64, '3'));
}
