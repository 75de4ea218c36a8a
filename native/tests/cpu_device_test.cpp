/// The whole CPU device on a small model: one function of the tokens, whatever the passes, threads and
/// history.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "engine/loaded_model.h"
#include "engine/session.h"
#include "support.h"

using namespace aima;
using device::cpu::CpuDevice;
using engine::Session;

namespace {

struct Loaded {
  explicit Loaded(Math math, const test::SmallModel& small = {}) {
    small.write(folder.path());
    model = engine::load_model(folder.path(), math);
  }
  test::TemporaryFolder folder;
  std::unique_ptr<engine::LoadedModel> model;
};

std::vector<std::int32_t> random_ids(std::int64_t count, std::uint32_t seed) {
  test::Random random(seed);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>(random.below(101)));
  return ids;
}

using Rows = std::vector<float>;

engine::LogitsSink collect(Rows& rows) {
  return [&rows](std::span<const float> more) { rows.insert(rows.end(), more.begin(), more.end()); };
}

/// Logits of all prompt rows and of `steps` greedy steps.
Rows run(Loaded& loaded, const device::cpu::CpuOptions& options, std::span<const std::int32_t> ids,
         std::int64_t context_tokens, int steps = 5) {
  CpuDevice device(loaded.model->config, loaded.model->weights, options);
  Session session(device, loaded.model->config, 4096, context_tokens);
  Rows rows;
  std::int32_t token = session.prefill(ids, collect(rows));
  for (int step = 0; step < steps; ++step) token = session.decode(token, collect(rows));
  return rows;
}

bool same_bits(const Rows& a, const Rows& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double largest_difference(const Rows& a, const Rows& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    most = std::max(most, static_cast<double>(std::abs(a[i] - b[i])));
  return most;
}

}  // namespace

TEST_CASE("prefill is one function of the tokens: any split, any number of threads, any workspace") {
  const std::vector<std::int32_t> ids = random_ids(333, 1);
  for (const Math math : {Math::f32, Math::bf16}) {
    Loaded loaded(math);
    for (const device::cpu::Isa* isa : test::usable_isas()) {
      const Rows whole = run(loaded, {.math = math, .threads = 1, .isa = isa}, ids, 8192);
      REQUIRE(whole.size() == (333 + 5) * 101);
      for (const std::int64_t context : {64, 128, 192, 320}) {
        for (const int threads : {1, 2, 5}) {
          CAPTURE(context);
          CAPTURE(threads);
          CHECK(same_bits(run(loaded, {.math = math, .threads = threads, .isa = isa}, ids, context), whole));
        }
      }
      const Rows shorter =
          run(loaded, {.math = math, .threads = 2, .isa = isa}, std::span(ids).first(100), 8192, 0);
      CHECK(std::memcmp(shorter.data(), whole.data(), shorter.size() * 4) == 0);
    }
  }
}

TEST_CASE("token by token agrees with prefill") {
  const std::vector<std::int32_t> ids = random_ids(150, 2);
  Loaded loaded(Math::f32);
  for (const device::cpu::Isa* isa : test::usable_isas()) {
    const device::cpu::CpuOptions options{.math = Math::f32, .threads = 2, .isa = isa};
    const Rows whole = run(loaded, options, ids, 8192, 0);
    CpuDevice device(loaded.model->config, loaded.model->weights, options);
    Session session(device, loaded.model->config, 256);
    Rows rows;
    for (const std::int32_t id : ids) session.decode(id, collect(rows));
    CHECK(largest_difference(rows, whole) < 1e-4);
    CHECK_THROWS_AS(session.prefill(ids), base::Error);  // 150 is no multiple of 64
  }
}

TEST_CASE("instruction sets agree within rounding, and bf16 stays near f32") {
  const std::vector<std::int32_t> ids = random_ids(70, 3);
  Loaded exact(Math::f32);
  const Rows reference =
      run(exact, {.math = Math::f32, .threads = 1, .isa = &device::cpu::isa_portable()}, ids, 8192, 0);
  for (const device::cpu::Isa* isa : test::usable_isas()) {
    CHECK(largest_difference(run(exact, {.math = Math::f32, .threads = 1, .isa = isa}, ids, 8192, 0),
                             reference) < 1e-4);
  }
  Loaded rounded(Math::bf16);
  const Rows rows = run(rounded, {.math = Math::bf16, .threads = 1}, ids, 8192, 0);
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) sum += std::pow(rows[i] - reference[i], 2);
  const double rms = std::sqrt(sum / static_cast<double>(rows.size()));
  CHECK(rms < 0.14);
  CHECK(rms > 1e-4);  // it does round
}

TEST_CASE("snapshots: a sequence restored goes on with the same bits, whatever ran in between") {
  const std::vector<std::int32_t> a = random_ids(200, 4);
  const std::vector<std::int32_t> b = random_ids(180, 5);
  for (const Math math : {Math::f32, Math::bf16}) {
    Loaded loaded(math);
    const model::Config& config = loaded.model->config;
    CpuDevice device(config, loaded.model->weights, {.math = math, .threads = 2});
    const auto cold = [&](std::span<const std::int32_t> ids) {
      Session session(device, config, 1024);
      Rows rows;
      session.decode(session.prefill(ids, collect(rows)), collect(rows));
      return rows;
    };
    Session session(device, config, 1024);
    const std::span<const std::int32_t> head = std::span(a).first(128);
    session.prefill(head);
    const std::unique_ptr<device::Snapshot> at_128 = device.snapshot(session.state());
    CHECK(at_128->position() == 128);
    CHECK(at_128->own_bytes() == device.state_bytes(0));
    REQUIRE(at_128->shared().size() == 2);
    CHECK(at_128->own_bytes() + 2 * at_128->shared()[0].bytes == device.state_bytes(128));
    session.prefill(std::span(a).subspan(128, 64));
    const std::unique_ptr<device::Snapshot> at_192 = device.snapshot(session.state());
    CHECK(at_192->shared().size() == 3);
    CHECK(at_192->shared()[1].id == at_128->shared()[1].id);  // the same memory
    CHECK(at_192->shared()[2].id != at_128->shared()[1].id);
    device.restore(session.state(), *at_128);
    session.prefill(std::span(a).subspan(128));
    CHECK_THROWS_AS(device.snapshot(session.state()), base::Error);  // 200 is no multiple of 64

    device.clear(session.state());
    Rows other;
    session.decode(session.prefill(b, collect(other)), collect(other));
    CHECK(same_bits(other, cold(b)));

    for (int repeat = 0; repeat < 2; ++repeat) {  // into the used state, then into a new one
      Session fresh(device, config, 1024);
      Session& target = repeat == 0 ? session : fresh;
      device.restore(target.state(), *at_128);
      CHECK(target.position() == 128);
      Rows rest;
      target.decode(target.prefill(std::span(a).subspan(128), collect(rest)), collect(rest));
      const Rows whole = cold(a);
      CHECK(same_bits(rest, Rows(whole.begin() + 128 * 101, whole.end())));
    }

    std::vector<std::int32_t> branch(head.begin(), head.end());
    branch.insert(branch.end(), b.begin(), b.begin() + 40);
    device.restore(session.state(), *at_128);
    Rows rest;
    session.prefill(std::span(b).first(40), collect(rest));
    const Rows whole = cold(branch);
    CHECK(std::memcmp(rest.data(), whole.data() + 128 * 101, rest.size() * 4) == 0);
    Session small(device, config, 100);
    CHECK_THROWS_AS(device.restore(small.state(), *at_128), base::Error);
  }
}

TEST_CASE("rows of the head are the same one by one") {
  const std::vector<std::int32_t> ids = random_ids(90, 6);
  Loaded loaded(Math::bf16);
  const Rows whole = run(loaded, {.math = Math::bf16, .threads = 2}, ids, 8192, 0);
  CpuDevice device(loaded.model->config, loaded.model->weights, {.math = Math::bf16, .threads = 2});
  Session session(device, loaded.model->config, 128);
  const std::int32_t token = session.prefill(ids);
  Rows last(101);
  device.read_logits(last);
  CHECK(std::memcmp(last.data(), whole.data() + 89 * 101, last.size() * 4) == 0);
  CHECK(token == std::max_element(last.begin(), last.end()) - last.begin());
}

TEST_CASE("padding rows of the vocabulary are never chosen") {
  const std::vector<std::int32_t> ids = random_ids(20, 7);
  Loaded loaded(Math::f32);
  CpuDevice device(loaded.model->config, loaded.model->weights, {.math = Math::f32, .threads = 1});
  Session session(device, loaded.model->config, 64);
  const std::int32_t best = session.prefill(ids);
  REQUIRE(best > 0);
  device.set_vocab_limit(best);
  CHECK(device.read_argmax() < best);
}

TEST_CASE("weights with NaN are an error, not a token, be it one logit of all") {
  for (const char* name : {"model.language_model.norm.weight", "lm_head.weight"}) {
    test::SmallModel small;
    auto tensors = small.tensors();
    tensors[name].values[name[0] == 'l' ? 87 : 43] =
        std::nanf("");  // after the norm every logit; of the head, that of token 1
    const test::TemporaryFolder folder;
    test::write_file(folder.path() / "config.json", small.config());
    test::write_file(folder.path() / "model.safetensors", test::safetensors(tensors));
    const auto model = engine::load_model(folder.path(), Math::bf16);
    CpuDevice device(model->config, model->weights, {.math = Math::bf16, .threads = 1});
    Session session(device, model->config, 64);
    const std::vector<std::int32_t> ids = {1, 2, 3};
    CHECK_THROWS_WITH_AS(session.prefill(ids), doctest::Contains("not finite"), base::Error);
  }
}

TEST_CASE("a raised stop flag ends a prefill, and the device goes on afterwards") {
  const std::vector<std::int32_t> ids = random_ids(500, 8);
  Loaded loaded(Math::bf16);
  CpuDevice device(loaded.model->config, loaded.model->weights, {.math = Math::bf16, .threads = 2});
  Session session(device, loaded.model->config, 600);
  std::atomic<bool> stop = true;
  device.set_stop(&stop);
  CHECK_THROWS_AS(session.prefill(ids), base::Cancelled);
  stop = false;
  device.clear(session.state());
  Rows rows;
  session.prefill(ids, collect(rows));
  CHECK(same_bits(rows, run(loaded, {.math = Math::bf16, .threads = 1}, ids, 8192, 0)));
}

TEST_CASE("sizes are stated before memory is taken") {
  Loaded loaded(Math::bf16);
  CpuDevice device(loaded.model->config, loaded.model->weights, {.math = Math::bf16, .threads = 1});
  const std::size_t gdn = 2 * (6 * 12 * 18 + 3 * 156) * 4;
  const std::size_t block = 2 * 2 * (2 * 20 * 64 * 2);  // 2 layers, K and V, 2 heads of 20, 64 tokens, bf16
  CHECK(device.state_bytes(0) == gdn);
  CHECK(device.state_bytes(65) == gdn + 2 * block);
  CHECK(device.workspace_bytes(2048) > device.workspace_bytes(1024));
  Session session(device, loaded.model->config, 70);
  CHECK_THROWS_WITH_AS(session.prefill(random_ids(71, 1)), doctest::Contains("71 tokens do not fit into 70"),
                       base::Error);
}
