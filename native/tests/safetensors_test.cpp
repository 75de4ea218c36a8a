#include <doctest/doctest.h>

#include "model/checkpoint.h"
#include "model/safetensors.h"
#include "support.h"

using namespace aima;
using test::safetensors;

namespace {

std::span<const std::byte> bytes(const std::string& file) { return std::as_bytes(std::span(file)); }

/// The error's `what` and `why` in one string; empty when the file is accepted.
std::string problem(const std::string& file) {
  const base::Error error = test::error_of([&] { model::parse_safetensors(bytes(file), file.size(), "f"); });
  if (error.text().what.empty()) return "";
  CHECK(error.exit() == base::Exit::usage);
  CHECK(error.text().where.starts_with("f"));
  return error.text().what + "; " + error.text().why;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}";
}

std::string with_length(std::uint64_t length, const std::string& rest) {
  return std::string(reinterpret_cast<const char*>(&length), 8) + rest;
}

}  // namespace

TEST_CASE("a good file is read") {
  const std::string file =
      safetensors("{" + entry("b", "F32", "[2,1]", "[0,8]") + "," + entry("a", "BF16", "[]", "[8,10]") + "," +
                      entry("none", "F32", "[0,5]", "[10,10]") + ",\"__metadata__\":{\"x\":\"y\"}} ",
                  std::string(10, 'x'));
  const auto tensors = model::parse_safetensors(bytes(file), file.size(), "f");
  CHECK(tensors.size() == 3);
  CHECK(tensors.at("b").dtype == model::DType::f32);
  CHECK(tensors.at("b").shape == std::vector<std::int64_t>{2, 1});
  CHECK(tensors.at("b").begin == file.size() - 10);
  CHECK(tensors.at("b").bytes == 8);
  CHECK(tensors.at("a").begin == tensors.at("b").begin + 8);
  CHECK(tensors.at("none").bytes == 0);
  const std::string header = file.substr(0, file.size() - 10);
  CHECK(model::parse_safetensors(bytes(header), file.size(), "f").size() == 3);
}

TEST_CASE("hostile files are refused") {
  struct Case {
    std::string file, problem;
  };
  const std::string data(8, 'x');
  const auto one = [&](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return safetensors("{" + entry("t", dtype, shape, offsets) + "}", data);
  };
  const auto two = [&](const std::string& first, const std::string& second) {
    return safetensors("{" + entry("a", "F32", "[1]", first) + "," + entry("b", "F32", "[1]", second) + "}",
                       data);
  };
  const std::vector<Case> cases = {
      {"", "the safetensors file is truncated"},
      {"1234567", "the safetensors file is truncated"},
      {with_length(100, "{}"),
       "the safetensors file is truncated; its header has 100 bytes, the file 10 bytes"},
      {with_length(~0ULL, "{}"), "not a safetensors file"},
      {with_length(~0ULL - 7, "{}"), "not a safetensors file"},
      {with_length(0, ""), "not a safetensors file"},
      {safetensors("[]", ""), "not a safetensors file"},
      {safetensors("{", ""), "not valid JSON"},
      {safetensors("{\"t\":1}", ""), "a JSON object is expected here"},
      {safetensors("{} x", ""), "text after the end"},
      {safetensors("{\"a\":" + std::string(5000, '['), ""), "not valid JSON"},
      {one("F32", "[2]", "[0,8]"), ""},
      {one("F32", "[3]", "[0,8]"), "the offsets span 8 bytes; shape and dtype give 12"},
      {one("F33", "[2]", "[0,8]"), "unknown dtype `F33`"},
      {one("F32", "[-2]", "[0,8]"), "sizes from 0 to 2^48"},
      {one("F32", "[2.0]", "[0,8]"), "sizes from 0 to 2^48"},
      {one("F32", "[\"2\"]", "[0,8]"), "sizes from 0 to 2^48"},
      {one("F32", "2", "[0,8]"), "a list is expected here"},
      {one("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), "more than 8 dimensions"},
      {one("F32", "[4294967296,4294967296]", "[0,8]"), "shape and dtype give more than 2^64"},
      {one("F32", "[18446744073709551615]", "[0,8]"), "sizes from 0 to 2^48"},
      {one("F32", "[2]", "[8,0]"), "two ascending offsets"},
      {one("F32", "[2]", "[0]"), "two ascending offsets"},
      {one("F32", "[2]", "[0,8,8]"), "two ascending offsets"},
      {one("F32", "[2]", "[-8,0]"), "two ascending offsets"},
      {one("F32", "[2]", "[8,16]"), "the data lies outside the file"},
      {one("F32", "[2]", "[18446744073709551608,18446744073709551615]"), "the offsets span 7 bytes"},
      {one("F32", "[1]", "[0,4]"), "4 bytes follow the last tensor"},
      {one("F32", "[1]", "[4,8]"), "there is a gap before the tensor `t`"},
      {two("[0,4]", "[4,8]"), ""},
      {two("[4,8]", "[0,4]"), ""},
      {two("[0,4]", "[0,4]"), "the tensor `b` overlaps another"},
      {two("[0,4]", "[2,6]"), "the tensor `b` overlaps another"},
      {safetensors("{" + entry("t", "F32", "[2]", "[0,8]") + "," + entry("t", "F32", "[2]", "[0,8]") + "}",
                   data),
       "the key `t` appears twice"},
      {safetensors(R"({"t":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", data),
       "the key `dtype` appears twice"},
      {safetensors(R"({"t":{"dtype":"F32","shape":[2]}})", data), "this field is required"},
      {safetensors(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", data),
       "unknown field"},
      {safetensors("{}", data), "8 bytes follow the last tensor"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.file.substr(0, 200));
    const std::string found = problem(c.file);
    if (c.problem.empty()) {
      CHECK(found.empty());
    } else {
      CHECK_MESSAGE(found.find(c.problem) != std::string::npos, found);
    }
  }
}

TEST_CASE("every truncation of a good file is refused") {
  const std::string file = safetensors("{" + entry("t", "F32", "[2]", "[0,8]") + "}", std::string(8, 'x'));
  for (std::size_t size = 0; size < file.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(problem(file.substr(0, size)).empty());
  }
}

TEST_CASE("random damage of the header never crashes") {
  const std::string good =
      safetensors("{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[1]", "[4,8]") + "}",
                  std::string(8, 'x'));
  test::Random random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string file = good;
    for (std::int64_t n = random.below(3); n >= 0; --n) {
      file[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(file.size())))] =
          static_cast<char>(random.below(256));
    }
    const base::Error error =
        test::error_of([&] { model::parse_safetensors(bytes(file), file.size(), "f"); });
    if (!error.text().what.empty()) REQUIRE(error.exit() == base::Exit::usage);
  }
}

TEST_CASE("a checkpoint of shards") {
  const test::TemporaryFolder folder;
  const auto shard = [&](const char* file, const char* tensor) {
    test::write_file(folder.path() / file,
                     safetensors("{" + entry(tensor, "F32", "[1]", "[0,4]") + "}", "abcd"));
  };
  const auto index = [&](const std::string& map) {
    test::write_file(folder.path() / "model.safetensors.index.json", "{\"weight_map\": {" + map + "}}");
  };
  const auto what = [&] {
    return test::error_of([&] { model::Checkpoint::open(folder.path()); }).text().what;
  };
  CHECK(what() == "the folder has neither model.safetensors nor model.safetensors.index.json");
  shard("1.safetensors", "a");
  index(R"("a": "1.safetensors", "b": "2.safetensors")");
  CHECK(what() == "the shard 2.safetensors is missing");
  shard("2.safetensors", "c");
  CHECK(what() == "the shard does not hold this tensor");
  shard("2.safetensors", "a");
  CHECK(what().starts_with("the tensor `a` is also in "));
  shard("2.safetensors", "b");
  CHECK(what().empty());
  const model::Checkpoint checkpoint = model::Checkpoint::open(folder.path());
  CHECK(checkpoint.file_count() == 2);
  CHECK(checkpoint.bytes() == 8);
  CHECK(checkpoint.find("b") != nullptr);
  CHECK(checkpoint.find("c") == nullptr);
  index(R"("a": "../1.safetensors")");
  CHECK(what() == "the name of a file in the same folder is expected here");
  index(R"("a": "1.safetensors", "b": "1.safetensors")");
  CHECK(what() == "the shard does not hold this tensor");
}
