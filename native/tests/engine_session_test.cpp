/// The engine on a small model: whatever the cache gives, whatever was cancelled, the bits are those of a
/// cold run.
#include "engine/engine.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "engine/loaded_model.h"
#include "support.h"

using namespace aima;
using engine::Engine;
using engine::EngineOptions;
using engine::Finish;
using engine::Request;
using engine::Result;
using Ids = std::vector<std::int32_t>;

namespace {

constexpr std::size_t plenty = std::size_t{1} << 30;

struct Fixture {
  explicit Fixture(Math math = Math::bf16) {
    test::SmallModel().write(folder.path());
    model = engine::load_model(folder.path(), math);
    device = std::make_unique<device::cpu::CpuDevice>(
        model->config, model->weights, device::cpu::CpuOptions{.math = math, .threads = 2, .isa = nullptr});
  }
  Engine engine(EngineOptions options) const {
    return Engine(*device, model->config, model->vocab_limit(), options);
  }
  test::TemporaryFolder folder;
  std::unique_ptr<engine::LoadedModel> model;
  std::unique_ptr<device::cpu::CpuDevice> device;
};

EngineOptions caching() {
  return {.capacity = 4096, .context_tokens = 256, .cache_bytes = plenty, .reuse_decode_state = false};
}

Ids random_ids(std::int64_t count, std::uint32_t seed) {
  test::Random random(seed);
  Ids ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>(random.below(101)));
  return ids;
}

Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Request request_of(Ids prompt, std::int64_t max_tokens = 6) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  return request;
}

struct Answer {
  Result result;
  std::vector<float> logits;
};

Answer run(Engine& engine, Request request) {
  Answer answer;
  request.logits = [&](std::span<const float> row) {
    answer.logits.insert(answer.logits.end(), row.begin(), row.end());
  };
  answer.result = engine.run(request);
  return answer;
}

bool same_bits(const Answer& a, const Answer& b) {
  return a.result.tokens == b.result.tokens && a.logits.size() == b.logits.size() && !a.logits.empty() &&
         std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)) == 0;
}

Answer cold(const Fixture& fixture, Request request) {
  Engine engine = fixture.engine(
      {.capacity = 4096, .context_tokens = 1024, .cache_bytes = 0, .reuse_decode_state = false});
  Answer answer = run(engine, std::move(request));
  CHECK(answer.result.cached_tokens == 0);
  return answer;
}

}  // namespace

TEST_CASE("what the cache gives changes no bit: repeat, extension, branch, shorter prompt, A/B/A") {
  for (const Math math : {Math::bf16, Math::f32}) {
    const Fixture fixture(math);
    Engine engine = fixture.engine(caching());
    const Ids a = random_ids(700, 1);
    const Ids b = random_ids(500, 2);
    const Ids head(a.begin(), a.begin() + 400);
    const auto check = [&](const Ids& prompt, std::int64_t cached) {
      const Answer hit = run(engine, request_of(prompt));
      CHECK(hit.result.cached_tokens == cached);
      CHECK(hit.result.prefill_tokens == static_cast<std::int64_t>(prompt.size()) - cached);
      CHECK(hit.result.decode_steps == 5);
      CHECK(same_bits(hit, cold(fixture, request_of(prompt))));
    };
    check(a, 0);
    check(a, 640);                                // exact repeat: the last multiple of 64
    check(a + random_ids(100, 3), 640);           // extension
    check(head + random_ids(90, 4), 256);         // branch at 400: the end of a pass is before it
    check(head + random_ids(90, 5), 384);         // the first branch has left a snapshot at its place
    check(Ids(a.begin(), a.begin() + 300), 256);  // shorter
    check(b, 0);
    check(a, 640);
    check(b, 448);
    check(Ids(a.begin(), a.begin() + 65), 0);
    check(Ids(a.begin(), a.begin() + 65), 64);
    check(Ids(a.begin(), a.begin() + 64), 0);
    check({5}, 0);
  }
}

TEST_CASE("the next turn of a chat starts where the last generation prompt did") {
  const Fixture fixture;
  Engine engine = fixture.engine(caching());
  const Ids system = random_ids(150, 1);
  const Ids generation = random_ids(7, 9);  // history is written without it
  Ids history = system;
  std::vector<std::int64_t> boundaries = {0, 150};
  std::int64_t before = 0;
  for (std::uint32_t turn = 0; turn < 4; ++turn) {
    history = history + random_ids(70, 10 + turn);  // what the user says
    const auto at = static_cast<std::int64_t>(history.size());
    boundaries.push_back(at);
    Request request = request_of(history + generation);
    request.boundaries = boundaries;
    request.generation = at;
    const Answer answer = run(engine, request);
    CHECK(answer.result.cached_tokens == before);
    CHECK(same_bits(answer, cold(fixture, request_of(history + generation))));
    before = at / 64 * 64;
    history = history + answer.result.tokens;
    boundaries.push_back(static_cast<std::int64_t>(history.size()));
  }
  // Another conversation under the same system prompt.
  Request other = request_of(system + random_ids(80, 99));
  CHECK(run(engine, other).result.cached_tokens == 128);
}

TEST_CASE("conversations that evict each other stay exact, and the budget holds") {
  const Fixture fixture;
  const std::size_t one = fixture.device->state_bytes(0);
  const std::size_t block = fixture.device->state_bytes(64) - one;
  EngineOptions options = caching();
  options.cache_bytes = 4 * one + 14 * block;
  Engine engine = fixture.engine(options);
  test::Random random(7);
  std::vector<Ids> conversations;
  for (std::uint32_t i = 0; i < 5; ++i) conversations.push_back(random_ids(120 + 60 * i, 20 + i));
  for (int step = 0; step < 30; ++step) {
    Ids& ids = conversations[static_cast<std::size_t>(random.below(5))];
    if (random.below(3) == 0 && ids.size() < 900)
      ids = ids + random_ids(random.below(90), 50 + static_cast<std::uint32_t>(step));
    const Answer answer = run(engine, request_of(ids, 2));
    CHECK(same_bits(answer, cold(fixture, request_of(ids, 2))));
    CHECK(engine.cache_facts().bytes <= options.cache_bytes);
  }
  const engine::CacheFacts facts = engine.cache_facts();
  CHECK(facts.evictions > 0);
  CHECK(facts.hits > 0);
}

TEST_CASE("cancelled in decode or before anything: the tokens so far, and nothing left behind") {
  const Fixture fixture;
  Engine engine = fixture.engine(caching());
  const Ids a = random_ids(700, 1);
  const Answer whole = cold(fixture, request_of(a, 20));
  for (const std::size_t after : {std::size_t{0}, std::size_t{1}, std::size_t{5}}) {
    std::atomic<bool> stop = after == 0;
    Request request = request_of(a, 20);
    request.cancel = &stop;
    std::size_t seen = 0;
    request.on_token = [&](const engine::Choice&) { stop = ++seen == after || stop; };
    const Result result = engine.run(request);
    CHECK(result.finish == Finish::cancel);
    CHECK(result.tokens ==
          Ids(whole.result.tokens.begin(), whole.result.tokens.begin() + static_cast<std::ptrdiff_t>(after)));
    CHECK(same_bits(run(engine, request_of(a, 20)), whole));
    CHECK(same_bits(run(engine, request_of(a + a, 3)), cold(fixture, request_of(a + a, 3))));
  }
}

TEST_CASE("cancelled at any time in prefill: what is stored is right") {
  const Fixture fixture;
  const Ids a = random_ids(2500, 1);
  const Answer whole = cold(fixture, request_of(a, 3));
  int cancelled = 0;
  for (int delay = 0; delay < 12; ++delay) {
    Engine engine = fixture.engine(caching());
    std::atomic<bool> stop = false;
    Request request = request_of(a, 3);
    request.cancel = &stop;
    std::thread timer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(3 * delay));
      stop = true;
    });
    const Result result = engine.run(request);
    timer.join();
    cancelled += result.finish == Finish::cancel ? 1 : 0;
    for (const std::int64_t position : result.snapshots) CHECK(position % 64 == 0);
    const Answer again = run(engine, request_of(a, 3));
    CHECK(again.result.cached_tokens == (result.snapshots.empty() ? 0 : result.snapshots.back()));
    CHECK(same_bits(again, whole));
  }
  CHECK(cancelled > 0);
}

TEST_CASE("an exception out of a callback leaves the engine usable") {
  const Fixture fixture;
  Engine engine = fixture.engine(caching());
  const Ids a = random_ids(300, 1);
  Request request = request_of(a, 9);
  std::atomic<bool> stop = false;
  request.cancel = &stop;
  request.on_token = [](const engine::Choice&) { throw base::Error({.what = "nobody reads"}); };
  CHECK_THROWS_WITH_AS(engine.run(request), "nobody reads", base::Error);
  stop = true;  // the flag of a request that is over means nothing to the next
  CHECK(same_bits(run(engine, request_of(a, 9)), cold(fixture, request_of(a, 9))));
}

TEST_CASE("states of decode steps enter the cache only where that is asked for") {
  const Fixture fixture(Math::f32);
  const Ids a = random_ids(100, 1);
  for (const bool reuse : {false, true}) {
    EngineOptions options = caching();
    options.reuse_decode_state = reuse;
    Engine engine = fixture.engine(options);
    const Answer first = run(engine, request_of(a, 120));
    const Ids longer = a + first.result.tokens + random_ids(20, 2);
    const Answer second = run(engine, request_of(longer, 2));
    CHECK(second.result.cached_tokens ==
          (reuse ? 192 : 64));  // 219 tokens were taken in: 192 is the last mark
    const Answer exact = cold(fixture, request_of(longer, 2));
    if (!reuse) CHECK(same_bits(second, exact));
    for (std::size_t i = 0; i < exact.logits.size(); ++i)
      CHECK(std::abs(second.logits[i] - exact.logits[i]) < 1e-3);
  }
}

TEST_CASE("a seed gives the same tokens cold, after a hit, and in any passes") {
  const Fixture fixture;
  Request request = request_of(random_ids(400, 1), 30);
  request.sampling.temperature = 1;
  request.sampling.top_p = 0.9;
  request.sampling.frequency_penalty = 0.5;
  request.sampling.seed = 42;
  const Answer first = cold(fixture, request);
  Engine engine = fixture.engine(caching());
  CHECK(same_bits(run(engine, request), first));
  const Answer hit = run(engine, request);
  CHECK(hit.result.cached_tokens == 384);
  CHECK(same_bits(hit, first));
  request.sampling.seed = 43;
  CHECK(run(engine, request).result.tokens != first.result.tokens);
}

TEST_CASE("a reply ends at a stop id, at its length, and callbacks see each token") {
  const Fixture fixture;
  Engine engine = fixture.engine(caching());
  Request request = request_of(random_ids(50, 3), 12);
  request.sampling.logprobs = 3;
  Ids seen;
  request.on_token = [&](const engine::Choice& choice) {
    seen.push_back(choice.id);
    REQUIRE(choice.top.size() == 3);
    CHECK(choice.top[0].id == choice.id);
    CHECK(choice.logprob == choice.top[0].value);
    CHECK(choice.logprob < 0);
  };
  const Result free = engine.run(request);
  CHECK(free.finish == Finish::length);
  CHECK(free.tokens.size() == 12);
  CHECK(seen == free.tokens);
  CHECK(name_of(free.finish) == "length");
  request.stop_ids = {999, free.tokens[4]};
  const Result stopped = engine.run(request);
  CHECK(stopped.finish == Finish::stop);
  CHECK(stopped.tokens.size() <= 5);
  CHECK(stopped.tokens.back() == free.tokens[4]);
  CHECK(engine.run(request_of({1, 2}, 1)).decode_steps == 0);
}

TEST_CASE("all rows of the prompt are shown where that is asked for, and the same tokens come out") {
  const Fixture fixture;
  for (const double temperature : {0.0, 1.0}) {
    Request request = request_of(random_ids(200, 3), 5);
    request.sampling.temperature = temperature;
    const Answer few = cold(fixture, request);
    CHECK(few.logits.size() == 5 * 101);
    request.all_logits = true;
    const Answer all = cold(fixture, request);
    CHECK(all.result.tokens == few.result.tokens);
    REQUIRE(all.logits.size() == 204 * 101);
    CHECK(std::equal(few.logits.begin(), few.logits.end(), all.logits.end() - 5 * 101));
  }
}

TEST_CASE("requests without the cache neither read nor fill it") {
  const Fixture fixture;
  Engine engine = fixture.engine(caching());
  Request request = request_of(random_ids(300, 3));
  request.use_cache = false;
  CHECK(engine.run(request).snapshots.empty());
  CHECK(engine.cache_facts().misses == 0);
  request.use_cache = true;
  CHECK(engine.run(request).cached_tokens == 0);
  request.use_cache = false;
  CHECK(engine.run(request).cached_tokens == 0);
}

TEST_CASE("callers on several threads take turns") {
  const Fixture fixture;
  Engine engine = fixture.engine(caching());
  std::array<Answer, 4> answers;
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] { answers[i] = run(engine, request_of(random_ids(200 + 50 * i, i))); });
  for (int look = 0; look < 50; ++look) CHECK(engine.cache_facts().bytes <= plenty);
  for (std::thread& thread : threads) thread.join();
  for (std::uint32_t i = 0; i < 4; ++i)
    CHECK(same_bits(answers[i], cold(fixture, request_of(random_ids(200 + 50 * i, i)))));
}

TEST_CASE("requests that cannot run are refused with the figures") {
  const Fixture fixture;
  EngineOptions options = caching();
  options.capacity = 50;
  const Engine engine = fixture.engine(options);
  const auto error = [&](Ids ids, std::int64_t max_tokens) {
    return test::error_of([&] { engine.check(request_of(std::move(ids), max_tokens)); });
  };
  CHECK(error({1, 2}, 48).text().what.empty());
  CHECK(error({}, 1).text().what == "the prompt is empty");
  CHECK(error({1, 101}, 1).text().what == "the token id 101 is not in the vocabulary");
  CHECK(error({-1}, 1).text().why == "ids go from 0 to 100");
  CHECK(error({1, 2}, 0).text().where == "max_tokens");
  CHECK(error({1, 2}, 49).text().why ==
        "2 prompt tokens and up to 49 new ones, the maximum context length is 50 tokens");
  CHECK(error({1, 2}, 49).text().hint.find("--cache-capacity") != std::string::npos);
  CHECK(error({1, 2}, 49).exit() == base::Exit::usage);
  CHECK(error(Ids(60, 1), std::numeric_limits<std::int64_t>::max()).exit() == base::Exit::usage);
  Request request = request_of({1});
  request.sampling.top_p = 2;
  CHECK(test::error_of([&] { engine.check(request); }).text().where == "top_p");
  options.capacity = 1 << 20;
  const Engine wide = fixture.engine(options);
  const base::Error beyond = test::error_of([&] { wide.check(request_of({1, 2}, 4095)); });
  CHECK(beyond.text().why.ends_with("the maximum context length is 4096 tokens"));
  CHECK(beyond.text().hint.find("--cache-capacity") == std::string::npos);
}
