/// Loading: tensors in memory by both methods, digests, what happens when reading fails or is stopped.
#include <doctest/doctest.h>

#include <atomic>
#include <set>
#include <vector>

#include "base/digest.h"
#include "base/files.h"
#include "base/pages.h"
#include "base/sha256.h"
#include "base/threads.h"
#include "engine/loaded_model.h"
#include "model/probe.h"
#include "model/tensor_store.h"
#include "support.h"

using namespace aima;
using model::DType;
using model::Method;

namespace {

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string digest_of(const std::string& text) {
  base::Digest digest;
  digest.add(bytes(text));
  return digest.hex();
}

std::string random_bytes(std::size_t size, std::uint32_t seed) {
  test::Random random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random.below(256));
  return text;
}

/// A folder of two shards: bf16 "big" (several blocks), f32 "wide", f16 "half".
struct Folder {
  test::TemporaryFolder place;
  std::string big = random_bytes(2 * model::read_block + 34, 1);
  std::vector<float> wide = {1.0F, 1.00390625F, -3.5F};  // the second is a tie between two bf16 values

  Folder() {
    const std::string wide_bytes(reinterpret_cast<const char*>(wide.data()), 12);
    write("1.safetensors",
          R"({"big":{"dtype":"BF16","shape":[)" + std::to_string(big.size() / 2) + R"(],"data_offsets":[0,)" +
              std::to_string(big.size()) + "]}}",
          big);
    write("2.safetensors",
          R"({"wide":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
          R"("half":{"dtype":"F16","shape":[2],"data_offsets":[12,16]}})",
          wide_bytes + std::string("\x00\x3c\x00\xc1", 4));
    test::write_file(
        path() / "model.safetensors.index.json",
        R"({"weight_map":{"big":"1.safetensors","wide":"2.safetensors","half":"2.safetensors"}})");
  }
  const std::filesystem::path& path() const { return place.path(); }
  void write(const std::string& name, const std::string& header, const std::string& data) const {
    test::write_file(path() / name, test::safetensors(header, data));
  }
};

std::vector<model::Wanted> all_wanted(const model::Checkpoint& checkpoint) {
  std::vector<model::Wanted> wanted;
  for (const auto& [name, tensor] : checkpoint.tensors())
    wanted.push_back({.name = name, .tensor = &tensor, .dtype = DType::bf16});
  return wanted;
}

}  // namespace

TEST_CASE("XXH3-128 has the published values, however the bytes come") {
  CHECK(digest_of("") == "99aa06d3014798d86001c324468d497f");
  const std::string text = random_bytes(5000, 3);
  base::Digest parts;
  parts.add(bytes(text).first(1));
  parts.add(bytes(text).subspan(1, 3000));
  parts.add(bytes(text).subspan(3001));
  CHECK(parts.hex() == digest_of(text));
  parts.reset();
  CHECK(parts.hex() == digest_of(""));
}

TEST_CASE("SHA-256 has the standard's values, with and without the processor's instructions") {
  for (const bool portable : {true, false}) {
    const auto sha = [&](const std::string& text, std::size_t step) {
      base::Sha256 hash(portable);
      for (std::size_t at = 0; at < text.size(); at += step)
        hash.add(bytes(text).subspan(at, std::min(step, text.size() - at)));
      return hash.hex();
    };
    CHECK(sha("", 1) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(sha("abc", 1) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 5) ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(sha(std::string(1000000, 'a'), 977) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

TEST_CASE("memory for weights begins at a huge page and is zero") {
  const base::Pages pages(5000000, "a test");
  CHECK(reinterpret_cast<std::uintptr_t>(pages.data()) % (2 << 20) == 0);
  CHECK(std::to_integer<int>(pages.data()[4999999]) == 0);
  CHECK(base::Pages().data() == nullptr);
  const base::Error error = test::error_of([] { base::Pages(std::uint64_t{1} << 60, "a test"); });
  CHECK(error.exit() == base::Exit::failed);
  CHECK(error.text().what == "memory for a test cannot be taken (1152921504606846976 bytes)");
}

TEST_CASE("both methods give the same values, and the sizes said before") {
  const Folder folder;
  const model::Checkpoint checkpoint = model::Checkpoint::open(folder.path());
  const std::vector<model::Wanted> wanted = all_wanted(checkpoint);
  for (const Method method : {Method::read, Method::mmap}) {
    for (const int workers : {1, 3}) {
      const model::TensorStore store(checkpoint, wanted, {.method = method, .workers = workers});
      CHECK(std::memcmp(store.find("big"), folder.big.data(), folder.big.size()) == 0);
      const auto value = [&](const char* name, int i) {
        return base::float_from_bf16(base::load_unaligned<std::uint16_t>(store.find(name) + 2 * i));
      };
      CHECK(value("wide", 0) == 1.0F);
      CHECK(value("wide", 1) == 1.0F);  // ties go to even
      CHECK(value("wide", 2) == -3.5F);
      CHECK(value("half", 0) == 1.0F);
      CHECK(value("half", 1) == -2.5F);
      const model::StoreSize size = model::store_size(wanted, method);
      CHECK(store.report().held_bytes == size.held_bytes);
      CHECK(store.report().mapped_bytes == size.mapped_bytes);
      CHECK(size.mapped_bytes == (method == Method::mmap ? folder.big.size() : 0));
      CHECK(store.report().bytes == folder.big.size() + 16);
      CHECK(store.report().workers == workers);
    }
  }
}

TEST_CASE("what is read is digested; what is mapped only when asked") {
  const Folder folder;
  const model::Checkpoint checkpoint = model::Checkpoint::open(folder.path());
  const std::vector<model::Wanted> wanted = all_wanted(checkpoint);
  const auto digests = [&](Method method, bool digest) {
    return model::TensorStore(checkpoint, wanted, {.method = method, .workers = 2, .digest = digest})
        .digests();
  };
  const auto read = digests(Method::read, false);
  CHECK(read.at("big") == digest_of(folder.big));
  CHECK(read.at("wide") == digest_of(std::string(reinterpret_cast<const char*>(folder.wide.data()), 12)));
  CHECK(digests(Method::mmap, true) == read);
  CHECK_FALSE(digests(Method::mmap, false).contains("big"));
  CHECK(model::probe_weights(folder.path(), checkpoint, false, 2).digests == read);
  CHECK(model::probe_weights(folder.path(), checkpoint, true, 2).digests == read);
}

TEST_CASE("tensors needed in passing are given back") {
  const Folder folder;
  const model::Checkpoint checkpoint = model::Checkpoint::open(folder.path());
  std::vector<model::Wanted> wanted = all_wanted(checkpoint);
  for (model::Wanted& each : wanted) each.passing = each.name != "big";
  model::TensorStore store(checkpoint, wanted, {.workers = 1});
  CHECK(store.report().held_bytes == (folder.big.size() + 63) / 64 * 64);
  store.release_passing();
  CHECK(std::memcmp(store.find("big"), folder.big.data(), folder.big.size()) == 0);
}

TEST_CASE("a file cut after it was opened is one error with file and offset") {
  const Folder folder;
  const model::Checkpoint checkpoint = model::Checkpoint::open(folder.path());
  const std::vector<model::Wanted> wanted = all_wanted(checkpoint);
  const std::uint64_t cut = checkpoint.shard(0).bytes - 40;
  std::filesystem::resize_file(folder.path() / "1.safetensors", cut);
  for (const int workers : {1, 4}) {
    const base::Error error =
        test::error_of([&] { model::TensorStore(checkpoint, wanted, {.workers = workers}); });
    CHECK(error.exit() == base::Exit::failed);
    CHECK(error.text().what == "the file cannot be read at byte " + std::to_string(cut));
    CHECK(error.text().where == (folder.path() / "1.safetensors").string());
  }
  const base::Error mapped =
      test::error_of([&] { model::TensorStore(checkpoint, wanted, {.method = Method::mmap}); });
  CHECK(mapped.text().what == "the file's size changed while it was being loaded");
}

TEST_CASE("an error of the system is told with file and offset") {
  const base::ReadFile file("/proc/self/mem");  // opens, and gives EIO where nothing is mapped
  std::vector<std::byte> into(16);
  const base::Error error = test::error_of([&] { file.read_at(0, into); });
  CHECK(error.text().what == "the file cannot be read at byte 0");
  CHECK(error.text().where == "/proc/self/mem");
  CHECK(error.text().why == "Input/output error");
}

TEST_CASE("a load can be stopped") {
  const Folder folder;
  const model::Checkpoint checkpoint = model::Checkpoint::open(folder.path());
  const std::vector<model::Wanted> wanted = all_wanted(checkpoint);
  std::atomic<bool> stop = false;
  std::uint64_t seen = 0;
  model::LoadOptions options{.workers = 1};
  options.watch = {.stop = &stop, .progress = [&](std::uint64_t done, std::uint64_t total) {
                     seen = done;
                     CHECK(total == folder.big.size() + 16);
                     stop = true;
                   }};
  CHECK_THROWS_AS(model::TensorStore(checkpoint, wanted, options), base::Cancelled);
  CHECK(seen > 0);
  CHECK(seen < folder.big.size());
}

TEST_CASE("planning reads no data, and knows the sizes of the load") {
  for (const std::string dtype : {"BF16", "F32", "F16"}) {
    for (const Method method : {Method::read, Method::mmap}) {
      CAPTURE(dtype);
      test::SmallModel small;
      small.dtype = dtype;
      const test::TemporaryFolder folder;
      small.write(folder.path());
      const model::Checkpoint checkpoint = model::Checkpoint::open(folder.path());
      const model::Config config = model::read_config(folder.path());
      const model::StoreSize size = model::plan_weights(checkpoint, config, Math::bf16).size(method);
      const auto loaded = engine::load_model(folder.path(), Math::bf16, {.options = {.method = method}});
      CHECK(loaded->load_report().held_bytes == size.held_bytes);
      CHECK(loaded->load_report().mapped_bytes == size.mapped_bytes);
      CHECK((size.mapped_bytes > 0) == (method == Method::mmap && dtype == "BF16"));
      const std::uint64_t embed = 101 * 44 * 2;
      CHECK(size.held_bytes + size.mapped_bytes > 2 * embed);
      CHECK(loaded->weights_digest.empty() == (method == Method::mmap));
    }
  }
}
