#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/npy.h"
#include "base/numbers.h"
#include "base/threads.h"
#include "support.h"

using namespace aima;

TEST_CASE("an error prints what, where, why and hint as aimabuild does") {
  const base::Error error(
      {.what = "it broke", .where = "a.txt:3:4", .why = "too old", .hint = "buy a new one"});
  CHECK(std::string(error.what()) == "a.txt:3:4: it broke\n  why: too old\n  hint: buy a new one");
  CHECK(error.exit() == base::Exit::failed);
  CHECK(std::string(base::Error({.what = "it broke"}).what()) == "it broke");
  CHECK(test::error_of([] { base::throw_usage({.what = "no"}); }).exit() == base::Exit::usage);
}

TEST_CASE("a printed error is one line a part, without controls and of bounded length") {
  const base::Error hostile({.what = "the tensor `a\n\x1b[2J\x7f` \xC2\x9B"
                                     "31m \xC2\xA9 \xC3\xA9",
                             .where = "a\tb"});
  CHECK(std::string(hostile.what()) ==
        "a\\x09b: the tensor `a\\x0a\\x1b[2J\\x7f` \\x9b31m \xC2\xA9 \xC3\xA9");
  CHECK(hostile.text().where == "a\tb");
  std::string characters;
  for (int i = 0; i < 1000; ++i) characters += "\xE5\xA4\xA9";
  const std::string printed = base::Error({.what = "x" + characters}).what();
  CHECK(printed == "x" + characters.substr(0, 999) + "...");
}

TEST_CASE("nearest finds misspellings and nothing else") {
  const std::vector<std::string_view> words = {"model-dir", "prompt", "prompt-ids", "max-tokens"};
  CHECK(base::nearest("modle-dir", words) == "model-dir");
  CHECK(base::nearest("promt", words) == "prompt");
  CHECK(base::nearest("max_tokens", words) == "max-tokens");
  CHECK(base::nearest("frequency", words).empty());
  CHECK(base::edit_distance("", "abc") == 3);
  CHECK(base::edit_distance("ab", "ba") == 1);
  CHECK(base::edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("bf16 rounds to nearest even") {
  CHECK(base::bf16_from_float(1.0F) == 0x3f80);
  CHECK(base::bf16_from_float(1.0F + 0x1p-8F) == 0x3f80);            // half way, down to even
  CHECK(base::bf16_from_float(1.0F + 0x1p-7F + 0x1p-8F) == 0x3f82);  // half way, up to even
  CHECK(base::bf16_from_float(1.0F + 0x1.01p-8F) == 0x3f81);         // just above half way
  CHECK(base::bf16_from_float(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(std::isnan(base::round_to_bf16(std::bit_cast<float>(0x7f800001U))));
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = base::float_from_bf16(static_cast<std::uint16_t>(bits));
    if (!std::isnan(value)) REQUIRE(base::bf16_from_float(value) == bits);
  }
}

TEST_CASE("f16 widens exactly") {
  for (std::uint32_t bits = 0; bits < 0x8000; ++bits) {
    const std::uint32_t exponent = bits >> 10;
    const double fraction = (bits & 0x3ffU) / 1024.0;
    const float value = base::float_from_f16(static_cast<std::uint16_t>(bits));
    if (exponent == 31) {
      REQUIRE((fraction == 0 ? std::isinf(value) : std::isnan(value)));
      continue;
    }
    const double expected =
        exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, static_cast<int>(exponent) - 15);
    REQUIRE(value == expected);
    REQUIRE(base::float_from_f16(static_cast<std::uint16_t>(bits | 0x8000U)) == -expected);
  }
}

TEST_CASE("a loop runs each task once, on any number of threads") {
  for (const int threads : {1, 2, 5}) {
    base::ThreadPool pool(threads);
    CHECK(pool.size() == threads);
    for (const std::int64_t count : {0, 1, 2, 3, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      pool.run(count, [&](std::int64_t task, int worker) {
        REQUIRE(worker >= 0);
        REQUIRE(worker < threads);
        ++seen[static_cast<std::size_t>(task)];
      });
      for (const auto& times : seen) REQUIRE(times == 1);
    }
  }
}

TEST_CASE("a task's exception comes out of the loop, and the pool goes on") {
  base::ThreadPool pool(3);
  const auto failing = [](std::int64_t task, int) {
    if (task == 7) throw base::Error({.what = "seven"});
  };
  CHECK_THROWS_WITH_AS(pool.run(100, failing), "seven", base::Error);
  std::atomic<int> done = 0;
  pool.run(100, [&](std::int64_t, int) { ++done; });
  CHECK(done == 100);
}

TEST_CASE("a raised stop flag ends the loop early") {
  base::ThreadPool pool(2);
  std::atomic<bool> stop = false;
  pool.set_stop(&stop);
  std::atomic<int> done = 0;
  CHECK_THROWS_AS(pool.run(1000,
                           [&](std::int64_t task, int) {
                             ++done;
                             if (task == 3) stop = true;
                           }),
                  base::Cancelled);
  CHECK(done < 1000);
  stop = false;
  pool.run(10, [&](std::int64_t, int) {});
}

TEST_CASE("JSON errors say where") {
  const auto where = [](std::string_view text) {
    return test::error_of([&] { base::json::parse(text, "f.json"); }).text().where;
  };
  CHECK(where("{\"a\": 1}").empty());
  CHECK(where("{\n  \"a\": }") == "f.json:2:8");
  CHECK(where("{\"a\": 1} x") == "f.json:1:10");
  CHECK(where("{\"a\": 1, \"b\": {\"c\": 1, \"c\": 2}}").starts_with("f.json:1:"));
  CHECK(where("{\"a\": {\"x\": 1}, \"b\": {\"x\": 1}, \"x\": 1}").empty());
  CHECK(where("").starts_with("f.json:1:1"));
  CHECK(where("{\"a\": 1").starts_with("f.json:1:"));
  CHECK(where(std::string(100000, '[')).starts_with("f.json:1:"));
}

TEST_CASE("a duplicate key is named") {
  const base::Error error = test::error_of([] { base::json::parse(R"({"ab": 1, "ab": 2})", "f"); });
  CHECK(error.text().what == "the key `ab` appears twice in one object");
  CHECK(error.exit() == base::Exit::usage);
}

TEST_CASE("a wrong field is named with its path") {
  const boost::json::value value = base::json::parse(R"({"a": {"b": [1], "n": null, "f": 1.5}})", "f");
  const base::json::Object top(value, "f");
  const base::json::Object a = top.object("a");
  CHECK(a.array("b").size() == 1);
  CHECK(a.number("f") == 1.5);
  CHECK(a.integer_or("n", 4) == 4);
  CHECK(test::error_of([&] { a.integer("b"); }).text().where == "f: a.b");
  CHECK(test::error_of([&] { a.integer("f"); }).text().what == "an integer is expected here");
  CHECK(test::error_of([&] { a.string("n"); }).text().what == "this field is required");
  CHECK(test::error_of([&] { top.object("zz"); }).text().where == "f: zz");
}

TEST_CASE("files appear whole or not at all") {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "out.bin";
  {
    base::AtomicFile file(path);
    file.append(std::as_bytes(std::span("half", 4)));
    CHECK_FALSE(std::filesystem::exists(path));
  }
  CHECK(std::filesystem::is_empty(folder.path()));
  base::AtomicFile file(path);
  file.append(std::as_bytes(std::span("hello", 5)));
  file.rewrite(1, std::as_bytes(std::span("EL", 2)));
  file.commit();
  CHECK(base::read_text(path) == "hELlo");
  CHECK(test::error_of([&] { base::read_text(path, 3); }).text().what == "the file is too long");
  CHECK(test::error_of([&] { base::read_text(folder.path()); }).exit() == base::Exit::usage);
  CHECK(test::error_of([&] { base::MappedFile(folder.path() / "nothing"); }).exit() == base::Exit::usage);
}

TEST_CASE("a mapped file is the file") {
  const test::TemporaryFolder folder;
  test::write_file(folder.path() / "a", "abc");
  test::write_file(folder.path() / "empty", "");
  base::MappedFile a(folder.path() / "a");
  CHECK(a.bytes().size() == 3);
  CHECK(static_cast<char>(a.bytes()[2]) == 'c');
  base::MappedFile b = std::move(a);
  CHECK(static_cast<char>(b.bytes()[0]) == 'a');
  CHECK(base::MappedFile(folder.path() / "empty").bytes().empty());
}

TEST_CASE("the .npy writer states its final shape") {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "l.npy";
  base::NpyMatrixWriter writer(path, 3);
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6};
  writer.append(rows);
  writer.append(std::span(rows).first(3));
  CHECK_THROWS_AS(writer.append(std::span(rows).first(2)), base::Error);
  writer.commit();
  const std::string file = base::read_text(path);
  CHECK(file.size() == 128 + 9 * 4);
  CHECK(file.substr(0, 8) == std::string("\x93NUMPY\x01\x00", 8));
  CHECK(file.find("'shape': (3, 3)") != std::string::npos);
  CHECK(file[127] == '\n');
  CHECK(base::load_unaligned<float>(file.data() + 128 + 8 * 4) == 3.0F);
}
