/// The draft head on a small model: one function of the tokens, beside the model and not in its way. Its
/// values are held against Hugging Face's modules by tests/engine/test_golden.py.
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

constexpr std::size_t vocab = 101;

struct Loaded {
  explicit Loaded(Math math, bool draft = true) {
    test::SmallModel small;
    small.extras = draft;
    small.write(folder.path());
    model = engine::load_model(folder.path(), math);
  }
  test::TemporaryFolder folder;
  std::unique_ptr<engine::LoadedModel> model;
};

std::vector<std::int32_t> random_ids(std::int64_t count, std::uint32_t seed) {
  test::Random random(seed);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>(random.below(vocab)));
  return ids;
}

using Rows = std::vector<float>;

engine::LogitsSink collect(Rows& rows) {
  return [&rows](std::span<const float> more) { rows.insert(rows.end(), more.begin(), more.end()); };
}

struct Result {
  Rows logits, drafts;
};

/// A prefill in passes of `context_tokens`, drafted or not.
Result prefill(Loaded& loaded, Math math, std::span<const std::int32_t> ids, std::int64_t context_tokens,
               int threads, bool draft = true) {
  CpuDevice device(loaded.model->config, loaded.model->weights, {.math = math, .threads = threads});
  Session session(device, loaded.model->config, 4096, context_tokens);
  Result result;
  engine::Probe probe;
  if (draft) probe.draft = collect(result.drafts);
  session.prefill(ids, collect(result.logits), probe);
  CHECK(session.state().draft_position() == (draft ? static_cast<std::int64_t>(ids.size()) - 1 : 0));
  return result;
}

bool same_bits(const Rows& a, const Rows& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("drafts are one function of the tokens, and leave the model's logits alone") {
  for (const Math math : {Math::f32, Math::bf16}) {
    Loaded loaded(math);
    for (const std::int64_t tokens : {1, 2, 64, 65, 150, 193}) {
      CAPTURE(tokens);
      const auto ids = random_ids(tokens, static_cast<std::uint32_t>(tokens));
      const Result whole = prefill(loaded, math, ids, 8192, 1);
      CHECK(whole.drafts.size() == static_cast<std::size_t>(tokens - 1) * vocab);
      CHECK(same_bits(whole.logits, prefill(loaded, math, ids, 8192, 1, false).logits));
      for (const std::int64_t context : {64, 128}) {
        const Result split = prefill(loaded, math, ids, context, 3);
        CHECK(same_bits(whole.drafts, split.drafts));
        CHECK(same_bits(whole.logits, split.logits));
      }
    }
  }
}

TEST_CASE("token by token, each drafted with the next one, agrees with the drafts of a prefill") {
  Loaded loaded(Math::f32);
  const auto ids = random_ids(80, 4);
  const Rows expected = prefill(loaded, Math::f32, ids, 8192, 1).drafts;
  CpuDevice device(loaded.model->config, loaded.model->weights, {.math = Math::f32, .threads = 2});
  Session session(device, loaded.model->config, 128);
  Rows drafts;
  for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
    session.decode(ids[t]);
    engine::run_draft(device, loaded.model->config, session.state(), std::span(ids).subspan(t + 1, 1),
                      collect(drafts));
  }
  REQUIRE(drafts.size() == expected.size());
  double most = 0;
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    most = std::max(most, static_cast<double>(std::abs(drafts[i] - expected[i])));
  }
  CHECK(most > 0);
  CHECK(most < 1e-4);
}

TEST_CASE("a draft out of order is refused") {
  Loaded loaded(Math::f32);
  const auto ids = random_ids(70, 5);
  CpuDevice device(loaded.model->config, loaded.model->weights, {.math = Math::f32, .threads = 1});
  Session session(device, loaded.model->config, 128);
  const std::vector<std::int32_t> one = {1};
  const auto draft = [&] { device.draft(session.state(), one); };
  CHECK_THROWS_WITH_AS(draft(), doctest::Contains("a draft follows its pass"), base::Error);
  session.prefill(std::span(ids).first(64));
  const auto more = random_ids(65, 6);
  CHECK_THROWS_WITH_AS(device.draft(session.state(), more), doctest::Contains("at most as many"),
                       base::Error);
  const auto snapshot = device.snapshot(session.state());
  session.prefill(std::span(ids).last(6));
  CHECK_THROWS_WITH_AS(draft(), doctest::Contains("has not seen the tokens"), base::Error);
  device.clear(session.state());
  session.decode(3);
  draft();
  CHECK_THROWS_WITH_AS(draft(), doctest::Contains("once"), base::Error);
  CHECK(session.state().draft_position() == 1);
  device.restore(session.state(), *snapshot);
  CHECK(session.state().draft_position() == 0);
  CHECK(device.draft_state_bytes(65) == 2 * 2 * (2 * 20 * 64 * 4));  // 2 blocks, K and V, 2 heads of 20, f32
}

TEST_CASE("without a draft head there is no draft") {
  Loaded loaded(Math::f32, false);
  CpuDevice device(loaded.model->config, loaded.model->weights, {.math = Math::f32, .threads = 1});
  CHECK_FALSE(device.has_draft_head());
  CHECK(device.draft_state_bytes(64) == 0);
  Session session(device, loaded.model->config, 64);
  session.decode(1);
  const std::vector<std::int32_t> one = {1};
  CHECK_THROWS_WITH_AS(device.draft(session.state(), one), doctest::Contains("has no draft head"),
                       base::Error);
}

TEST_CASE("the router's choices and the delta state can be read") {
  Loaded loaded(Math::f32);
  const auto ids = random_ids(130, 7);
  CpuDevice device(loaded.model->config, loaded.model->weights, {.math = Math::f32, .threads = 2});
  Session session(device, loaded.model->config, 256, 64);
  std::vector<std::vector<std::int32_t>> chosen(4);
  double weight = 0;
  engine::Probe probe;
  probe.routing = [&](int layer, std::span<const std::int32_t> experts, std::span<const float> weights) {
    auto& all = chosen[static_cast<std::size_t>(layer)];
    all.insert(all.end(), experts.begin(), experts.end());
    for (const float w : weights) weight += w;
  };
  session.prefill(ids, {}, probe);
  for (const auto& all : chosen) {
    REQUIRE(all.size() == 130 * 3);
    CHECK(*std::ranges::max_element(all) < 7);
    CHECK(all[0] != all[1]);
  }
  CHECK(weight == doctest::Approx(4 * 130));
  Rows delta(6 * 12 * 18);
  Rows tail(3 * 156);
  device.read_delta_state(session.state(), 0, delta, tail);
  CHECK(*std::ranges::max_element(delta) > 0);
  CHECK_THROWS_AS(device.read_delta_state(session.state(), 1, delta, tail), base::Error);
}
