#include <doctest/doctest.h>

#include "cli/sampling_options.h"
#include "engine/passes.h"
#include "support.h"

using namespace aima;
using engine::PassPlan;

TEST_CASE("passes take the largest bucket, the last the smallest that holds it; counts are exact") {
  using Plans = std::vector<PassPlan>;
  CHECK(engine::plan_passes(0, 1, 8192) == Plans{{0, 1, 1024}});
  CHECK(engine::plan_passes(0, 1025, 8192) == Plans{{0, 1025, 2048}});
  CHECK(engine::plan_passes(0, 8192, 8192) == Plans{{0, 8192, 8192}});
  CHECK(engine::plan_passes(0, 17000, 8192) ==
        Plans{{0, 8192, 8192}, {8192, 8192, 8192}, {16384, 616, 1024}});
  CHECK(engine::plan_passes(128, 3000, 2048) == Plans{{128, 2048, 2048}, {2176, 952, 1024}});
  CHECK(engine::plan_passes(64, 100, 64) == Plans{{64, 64, 64}, {128, 36, 64}});
  CHECK(engine::plan_passes(0, 0, 8192).empty());
  CHECK_THROWS_AS(engine::plan_passes(1, 5, 8192), base::Error);
  CHECK_THROWS_AS(engine::plan_passes(0, 5, 100), base::Error);
  CHECK_THROWS_AS(engine::plan_passes(0, 5, 16384), base::Error);
  CHECK(engine::buckets(8192) == std::vector<std::int64_t>{1024, 2048, 4096, 8192});
  CHECK(engine::buckets(1536) == std::vector<std::int64_t>{1024, 1536});
}

namespace {

constexpr std::array<cli::Option, 3> options = {
    {{"size", "N", "a size"}, {"name", "TEXT", "a name"}, {"fast", "", "fast"}}};
const cli::Command command = {
    .name = "do", .summary = "Do it", .usage = "[OPTIONS]", .options = options, .notes = {}, .run = nullptr};

cli::Arguments parse(const std::vector<std::string_view>& words) {
  return cli::Arguments::parse(command, words);
}

std::string problem(const std::vector<std::string_view>& words) {
  const base::Error error = test::error_of([&] { parse(words).integer("size", 1, 0, 10); });
  if (!error.text().what.empty()) CHECK(error.exit() == base::Exit::usage);
  return error.text().what + (error.text().hint.empty() ? "" : "; " + error.text().hint);
}

}  // namespace

TEST_CASE("options are parsed strictly") {
  const cli::Arguments a = parse({"--size", "3", "--name=a=b", "--fast"});
  CHECK(a.integer("size", 1, 0, 10) == 3);
  CHECK(a.value("name") == "a=b");
  CHECK(a.has("fast"));
  CHECK(parse({}).integer("size", 7, 0, 10) == 7);
  CHECK(parse({"--name", "--fast"}).value("name") == "--fast");
  CHECK(problem({"--size", "3"}).empty());
  CHECK(problem({"--sizee", "3"}) == "there is no option --sizee; did you mean --size?");
  CHECK(problem({"--quantum", "3"}) ==
        "there is no option --quantum; `aima-engine do --help` lists the options");
  CHECK(problem({"stray"}) == "unexpected argument `stray`; `aima-engine do --help` lists the options");
  CHECK(problem({"--size"}) == "--size needs a value: N");
  CHECK(problem({"--fast=1"}) == "--fast takes no value");
  CHECK(problem({"--size", "3", "--size", "4"}) == "--size is given twice");
  CHECK(problem({"--size", "11"}) == "--size cannot be `11`");
  CHECK(problem({"--size", "3x"}) == "--size cannot be `3x`");
  CHECK(problem({"--size", ""}) == "--size cannot be ``");
  CHECK(test::error_of([] { parse({}).required("name"); }).text().what == "--name is required");
  const std::array<std::string_view, 2> choices = {"bf16", "f32"};
  CHECK(parse({}).choice("name", choices) == "bf16");
  CHECK(parse({"--name", "f32"}).choice("name", choices) == "f32");
  CHECK(test::error_of([&] { parse({"--name", "f64"}).choice("name", choices); }).text().why ==
        "it is one of: bf16, f32");
  CHECK(cli::help_of(command).find("  --size N     a size\n") != std::string::npos);
}

TEST_CASE("lists of ids") {
  CHECK(cli::parse_ids("1, 2,3", "--ids") == std::vector<std::int32_t>{1, 2, 3});
  CHECK(cli::parse_ids(" ", "--ids").empty());
  for (const std::string_view bad : {"1,,2", "1,2,", "a", "1.5", "99999999999", "1 2"}) {
    CAPTURE(bad);
    CHECK(test::error_of([&] { cli::parse_ids(bad, "--ids"); }).exit() == base::Exit::usage);
  }
}

namespace {

const cli::Command sampling_command = {.name = "draw",
                                       .summary = "Draw",
                                       .usage = "[OPTIONS]",
                                       .options = cli::sampling_options,
                                       .notes = {},
                                       .run = nullptr};

engine::Sampling sampling(const std::vector<std::string_view>& words) {
  return cli::read_sampling(cli::Arguments::parse(sampling_command, words), 1000);
}

std::string sampling_problem(const std::vector<std::string_view>& words) {
  const base::Error error = test::error_of([&] { sampling(words); });
  CHECK(error.exit() == base::Exit::usage);
  return error.what();
}

}  // namespace

TEST_CASE("options of sampling") {
  CHECK(sampling({}).temperature == 0);
  const engine::Sampling all =
      sampling({"--temperature=0.7", "--top-k", "40", "--top-p", "0.9", "--min-p", "5e-2", "--seed", "123",
                "--repetition-penalty", "1.1", "--presence-penalty", "-1", "--frequency-penalty", "0.5",
                "--logit-bias", "7=-100,999=2.5"});
  CHECK(all.temperature == 0.7);
  CHECK(all.top_k == 40);
  CHECK(all.top_p == 0.9);
  CHECK(all.min_p == 0.05);
  CHECK(all.seed == 123);
  CHECK(all.repetition_penalty == 1.1);
  CHECK(all.presence_penalty == -1);
  CHECK(all.frequency_penalty == 0.5);
  REQUIRE(all.bias.size() == 2);
  CHECK(all.bias[1].id == 999);
  CHECK(all.bias[1].bias == 2.5);
  for (const std::string_view bad : {"x", "", "1x", "nan", "inf", "1e999", "0x1"}) {
    CAPTURE(bad);
    CHECK(sampling_problem({"--temperature", bad}).starts_with("--temperature cannot be `"));
  }
  CHECK(sampling_problem({"--temperature", "-1"}).starts_with("--temperature: the value -1 is out of range"));
  CHECK(sampling_problem({"--temperature", "1", "--top-p", "1.5"})
            .starts_with("--top-p: the value 1.5 is out"));
  CHECK(sampling_problem({"--repetition-penalty", "0"})
            .starts_with("--repetition-penalty: the value 0 is out"));
  for (const std::string_view name : {"--top-k", "--top-p", "--min-p", "--seed"}) {
    CAPTURE(name);
    CHECK(sampling_problem({name, "1"}).find("give a --temperature above 0") != std::string::npos);
  }
  for (const std::string_view bad : {"", "7", "7=", "=1", "7=1,", "7:1", "a=1", "7=1x", "7=1 ,8=2"}) {
    CAPTURE(bad);
    CHECK(sampling_problem({"--logit-bias", bad}).starts_with("--logit-bias: `"));
  }
  CHECK(
      sampling_problem({"--logit-bias", "1000=1"}).starts_with("--logit-bias: the token id 1000 is not in"));
}
