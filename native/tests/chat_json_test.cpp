#include <doctest/doctest.h>

#include <random>
#include <string>

#include "base/error.h"
#include "text/chat_json.h"

using aima::base::Error;
using aima::text::dump_json;
using aima::text::JsonLimits;
using aima::text::parse_json;

namespace {

std::string round_trip(std::string_view text) { return dump_json(parse_json(text, "in")); }

/// The error of reading `text`, as where and why.
std::string problem(std::string_view text, const JsonLimits& limits = {}) {
  try {
    parse_json(text, "in", limits);
  } catch (const Error& error) {
    CHECK(error.exit() == aima::base::Exit::usage);
    return error.text().where + " " + error.text().why;
  }
  return "";
}

}  // namespace

TEST_CASE("numbers print as Python prints them") {
  const std::pair<const char*, const char*> cases[] = {
      {"0", "0"},
      {"-0", "0"},
      {"-0.0", "-0.0"},
      {"0e9", "0.0"},
      {"1.50", "1.5"},
      {"1E5", "100000.0"},
      {"0.0001", "0.0001"},
      {"0.00001", "1e-05"},
      {"-1.5e-7", "-1.5e-07"},
      {"1e15", "1000000000000000.0"},
      {"1e16", "1e+16"},
      {"123456789012345678.0", "1.2345678901234568e+17"},
      {"9999999999999998.0", "9999999999999998.0"},
      {"0.1000000000000000055511151231257827", "0.1"},
      {"5e-324", "5e-324"},
      {"1e-400", "0.0"},
      {"1e-99999999999", "0.0"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"9223372036854775808", "9223372036854775808"},
      {"-123456789012345678901234567890", "-123456789012345678901234567890"},
  };
  for (const auto& [given, printed] : cases) CHECK(round_trip(given) == printed);
  const std::string digits(4300, '7');
  CHECK(round_trip("-" + digits) == "-" + digits);
}

TEST_CASE("values print as json.dumps without ASCII escapes does") {
  CHECK(round_trip(R"( {"b":[1,true,null,{}],"a":[ ]} )") == R"({"b": [1, true, null, {}], "a": []})");
  CHECK(round_trip(R"("\u00e9\ud83d\ude00\/")") == "\"é😀/\"");
  CHECK(round_trip(R"("\"\\\b\f\n\r\t\u0000\u001f\u007f\u2028")") ==
        "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\u2028\"");
}

TEST_CASE("a repeated key keeps its first place and its last value") {
  CHECK(round_trip(R"({"a":1,"b":2,"a":3,"c":4,"b":5,"a":6})") == R"({"a": 6, "b": 5, "c": 4})");
  CHECK(problem(R"({"x":{"a":1,"b":2,"a":3}})", {.unique_keys = true}) == "in:1:24 key `a` is there twice");
  CHECK(problem(R"({"x":{"a":1},"a":2})", {.unique_keys = true}).empty());
}

TEST_CASE("errors say where and why") {
  CHECK(problem("") == "in:1:1 incomplete JSON");
  CHECK(problem("{\"a\":\n [1,,2]}") == "in:2:5 syntax error");
  CHECK(problem("[1] x") == "in:1:5 extra data");
  CHECK(problem("[1e999]") == "in:1:7 number beyond the range of a double");
  CHECK(problem("[NaN]") == "in:1:2 syntax error");
  CHECK(problem(R"(["\ud800"])") != "");
  CHECK(problem("[\"\xe9\"]") != "");
  CHECK(problem(std::string(4301, '1')) == "in:1:4302 integer of more than 4300 digits");
}

TEST_CASE("limits hold") {
  CHECK(problem("[[[1]]]", {.depth = 3}).empty());
  CHECK(problem("[[[[1]]]]", {.depth = 3}) == "in:1:4 nested deeper than 3");
  CHECK(problem(std::string(100'000, '[')) == "in:1:257 nested deeper than 256");
  CHECK(problem("[1,2,3]", {.values = 4}).empty());
  CHECK(problem("[1,2,3]", {.values = 3}) == "in:1:7 more than 3 values");
  CHECK(problem("[[],[],[]]", {.values = 4}).empty());
  CHECK(problem("[[],[],[]]", {.values = 3}) == "in:1:8 more than 3 values");
  CHECK(problem("[1234]", {.bytes = 5}) == "in at most 5 bytes are read");
}

TEST_CASE("truth is Python's") {
  for (const char* text : {"null", "false", "0", "-0", "0.0", "-0.0", "0e5", "1e-999", "\"\"", "[]", "{}"})
    CHECK_FALSE(parse_json(text, "in").truthy());
  for (const char* text : {"true", "1", "-1", "1e-300", "\"0\"", "[0]", "{\"a\":0}"})
    CHECK(parse_json(text, "in").truthy());
}

TEST_CASE("damaged text is refused or read the same twice") {
  const std::string seed =
      R"({"messages":[{"role":"user","content":[{"text":"é\n\u0041"}]}],"n":[-1.5e3,20,null,true]})";
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = seed;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      const char byte = random() % 2 == 0 ? "\"\\[]{},:0e.-tnu"[random() % 15] : static_cast<char>(random());
      switch (random() % 3) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        default:
          text.erase(at, 1);
      }
    }
    if (!problem(text).empty()) continue;
    ++accepted;
    const std::string once = round_trip(text);
    CHECK(round_trip(once) == once);
  }
  CHECK(accepted > 1000);
}
