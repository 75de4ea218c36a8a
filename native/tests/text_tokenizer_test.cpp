#include <doctest/doctest.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text_fixture.h"

using namespace aima::text;
using aima::text::testing::Fixture;
using Ids = std::vector<std::int32_t>;

namespace {

std::unique_ptr<Tokenizer> make(const Fixture& fixture = {}, std::string_view config = {}) {
  return Tokenizer::parse(fixture.text(), "dir/tokenizer.json", config);
}

/// The message of the refusal, or "" when the tokenizer is taken.
std::string refusal(std::string_view json, std::string_view config = {}) {
  try {
    Tokenizer::parse(json, "dir/tokenizer.json", config);
  } catch (const aima::base::Error& error) {
    CHECK(error.exit() == aima::base::Exit::usage);
    CHECK(error.text().where.starts_with("dir/tokenizer"));
    return error.what();
  }
  return "";
}

/// The refusal after `path` (keys and list places with dots) was set to `value`.
std::string refusal_with(std::string_view path, const boost::json::value& value) {
  boost::json::value json = Fixture().json();
  std::string pointer;
  for (const char c : path) pointer += c == '.' ? '/' : c;
  json.set_at_pointer("/" + pointer, value);
  return refusal(boost::json::serialize(json));
}

}  // namespace

TEST_CASE("merges apply within pre-tokens") {
  const auto tokenizer = make();
  CHECK(tokenizer->encode("hello", false) == Ids{259});
  CHECK(tokenizer->encode("hell hello", false) == Ids{258, ' ', 259});
  CHECK(tokenizer->encode("hel1lo", false) == Ids{256, 'l', '1', 'l', 'o'});
  CHECK(tokenizer->encode("", true).empty());
  CHECK(tokenizer->vocab_size() == 1003);
}

TEST_CASE("both published forms of merges mean the same") {
  Fixture strings;
  strings.merges_as_pairs = false;
  CHECK(make(strings)->encode("hello hell he", false) == make()->encode("hello hell he", false));
}

TEST_CASE("added tokens: leftmost first, longest there, and only when asked") {
  const auto tokenizer = make();
  CHECK(tokenizer->encode("x<|a|>y", true) == Ids{'x', 1000, 'y'});
  CHECK(tokenizer->encode("<|ab|><|a|>", true) == Ids{1001, 1000});
  CHECK(tokenizer->encode("<<|a|><t>", true) == Ids{'<', 1000, 1002});
  CHECK(tokenizer->encode("<|a", true) == Ids{'<', '|', 'a'});
  CHECK(tokenizer->encode("<|a|>", false) == Ids{'<', '|', 'a', '|', '>'});
  Fixture overlapping;
  overlapping.added = {"ab", "abcd", "bc", "c"};
  CHECK(make(overlapping)->encode("abcabcd-bc-c", true) == Ids{1000, 1003, 1001, '-', 1002, '-', 1003});
  // Text on both sides is normalised and split for itself.
  CHECK(tokenizer->encode("e<|a|>\xCC\x81", true) == Ids{'e', 1000, 0xCC, 0x81});
  CHECK(tokenizer->encode("he<t>llo", true) == Ids{256, 1002, 257, 'o'});
}

TEST_CASE("added tokens are recognised in trusted places alone") {
  const auto tokenizer = make();
  const std::string text = "<|a|>he<|a|>llo<t>";
  const std::vector<ByteRange> ranges = {{0, 5}, {15, 18}};
  CHECK(tokenizer->encode(text, ranges) == Ids{1000, 256, '<', '|', 'a', '|', '>', 257, 'o', 1002});
  const std::vector<ByteRange> cut = {{0, 4}, {15, 17}};
  CHECK(tokenizer->encode(text, cut) == tokenizer->encode(text, false));
  const std::vector<ByteRange> beyond = {{15, 99}};
  CHECK(tokenizer->encode(text, beyond).back() == 1002);
}

TEST_CASE("invalid UTF-8 is read as U+FFFD") {
  const auto tokenizer = make();
  CHECK(tokenizer->encode("a\xFF\xE2\x82<|a|>\x80", true) ==
        tokenizer->encode("a\uFFFD\uFFFD<|a|>\uFFFD", true));
}

TEST_CASE("decoding") {
  const auto tokenizer = make();
  const Ids ids = {259, 1000, 1002, 0xE2, 0x82, 0xAC, 500, -1, 1 << 30, 0xE2, 'x'};
  CHECK(tokenizer->decode(ids, false) == "hello<|a|><t>\u20AC\uFFFDx");
  CHECK(tokenizer->decode(ids, true) == "hello<t>\u20AC\uFFFDx");
  CHECK(tokenizer->bytes_of(258) == "hell");
  CHECK(tokenizer->bytes_of(500).empty());
  CHECK(tokenizer->is_special(1000));
  CHECK_FALSE(tokenizer->is_special(1002));
  CHECK_FALSE(tokenizer->is_special(-1));
  CHECK(tokenizer->added_token("<t>") == 1002);
  CHECK_FALSE(tokenizer->added_token("<u>").has_value());
}

TEST_CASE("a stream never shows half a character, and its parts make the whole") {
  const auto tokenizer = make();
  std::mt19937 random(1);
  const Ids pool = {'a',  0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x98,
                    0x80, 0xED, 0xA0, 0xFF, 259,  1000, 1002, 700};
  for (int round = 0; round < 5000; ++round) {
    Ids ids;
    for (std::size_t n = random() % 12; n > 0; --n) ids.push_back(pool[random() % pool.size()]);
    for (const bool skip : {false, true}) {
      StreamDecoder stream(*tokenizer, skip);
      std::string text;
      for (const std::int32_t id : ids) {
        const std::string part = stream.push(id);
        std::string scratch;
        append_replacing(scratch, part);
        REQUIRE(scratch == part);
        text += part;
      }
      text += stream.finish();
      REQUIRE(text == tokenizer->decode(ids, skip));
      REQUIRE(stream.finish().empty());
    }
  }
  StreamDecoder stream(*tokenizer);
  CHECK(stream.push(0xE2).empty());
  CHECK(stream.push(0x82).empty());
  CHECK(stream.push(0xAC) == "\u20AC");
  CHECK(stream.push(0xE2).empty());
  CHECK(stream.push('x') == "\uFFFDx");
}

TEST_CASE("several threads may encode at once") {
  const auto tokenizer = make();
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "hello hell <t> h" + std::to_string(i) + " ";
  const Ids wanted = tokenizer->encode(text, true);
  std::vector<Ids> got(6);
  std::vector<std::thread> threads;
  for (Ids& ids : got) threads.emplace_back([&] { ids = tokenizer->encode(text, true); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : got) CHECK(ids == wanted);
}

TEST_CASE("added tokens that only the configuration names") {
  const std::string config = R"({"added_tokens_decoder": {
    "1000": {"content": "<|a|>", "special": true, "normalized": false},
    "2000": {"content": "<|late|>", "special": true, "normalized": false}}})";
  const auto tokenizer = make({}, config);
  CHECK(tokenizer->encode("<|late|><|a|>", true) == Ids{2000, 1000});
  CHECK(tokenizer->vocab_size() == 2001);
  CHECK(make({}, "{}")->vocab_size() == 1003);
  const std::string text = Fixture().text();
  CHECK(refusal(text, R"({"added_tokens_decoder": {"1000": {"content": "other"}}})").find("taken") !=
        std::string::npos);
  CHECK(refusal(text, R"({"added_tokens_decoder": {"7": {"content": "<|a|>"}}})").find("another id") !=
        std::string::npos);
  CHECK(refusal(text, R"({"added_tokens_decoder": {"x": {"content": "y"}}})").find("not an id") !=
        std::string::npos);
  CHECK(refusal(text, R"({"added_tokens_decoder": {"2000": {"content": "y", "lstrip": true}}})")
            .find("lstrip") != std::string::npos);
  CHECK(refusal(text, R"({"added)").find("tokenizer_config.json") != std::string::npos);
}

TEST_CASE("settings that would give other tokens are refused by name") {
  const std::vector<std::pair<std::string_view, boost::json::value>> changes = {
      {"normalizer", nullptr},
      {"normalizer.type", "NFKC"},
      {"normalizer.strip", true},
      {"pre_tokenizer.type", "ByteLevel"},
      {"pre_tokenizer.pretokenizers.0.pattern.Regex", "\\p{L}+"},
      {"pre_tokenizer.pretokenizers.0.behavior", "Removed"},
      {"pre_tokenizer.pretokenizers.0.invert", true},
      {"pre_tokenizer.pretokenizers.1.add_prefix_space", true},
      {"pre_tokenizer.pretokenizers.1.use_regex", true},
      {"pre_tokenizer.pretokenizers.2", boost::json::object{{"type", "Digits"}}},
      {"post_processor", boost::json::object{{"type", "TemplateProcessing"}}},
      {"decoder.type", "Metaspace"},
      {"truncation", boost::json::object{{"max_length", 5}}},
      {"padding", boost::json::object{{"strategy", "x"}}},
      {"version", "2.0"},
      {"model.type", "Unigram"},
      {"model.dropout", 0.1},
      {"model.unk_token", "?"},
      {"model.continuing_subword_prefix", "##"},
      {"model.end_of_word_suffix", "</w>"},
      {"model.fuse_unk", true},
      {"model.byte_fallback", true},
      {"model.ignore_merges", true},
      {"model.other", 1},
      {"added_tokens.0.single_word", true},
      {"added_tokens.0.lstrip", true},
      {"added_tokens.0.rstrip", true},
      {"added_tokens.0.normalized", true},
  };
  for (const auto& [path, value] : changes) {
    CAPTURE(path);
    const std::string message = refusal_with(path, value);
    const std::size_t dot = path.rfind('.');
    const std::string_view last = path.substr(dot == path.npos ? 0 : dot + 1);
    CHECK((message.find(last) != message.npos || message.find("pre_tokenizer") != message.npos));
  }
  CHECK(refusal_with("model.dropout", nullptr) == "");  // the unchanged value passes
  CHECK(refusal_with("decoder.trim_offsets", true) == "");
  CHECK(refusal_with("post_processor", nullptr) == "");
}

TEST_CASE("damaged content is refused by name") {
  const std::vector<std::pair<std::string_view, boost::json::value>> changes = {
      {"model.vocab", nullptr},
      {"model.vocab.h", -1},
      {"model.vocab.h", 1.5},
      {"model.vocab.h", std::int64_t{1} << 40},
      {"model.vocab.h", "x"},
      {"model.vocab.h", 'e'},       // an id that is taken
      {"model.vocab.\u4F60", 900},  // not in the byte-level alphabet
      {"model.vocab.", 900},
      {"model.merges", "x"},
      {"model.merges.0", boost::json::array{"h"}},
      {"model.merges.0", boost::json::array{"h", 1}},
      {"model.merges.0", boost::json::array{"h", "h"}},  // "hh" is no token
      {"model.merges.0", "he"},
      {"model.merges.0", 7},
      {"added_tokens", 5},
      {"added_tokens.0", 5},
      {"added_tokens.0.id", nullptr},
      {"added_tokens.0.id", 104},
      {"added_tokens.0.content", ""},
      {"added_tokens.0.content", 5},
      {"added_tokens.0.content", "<t>"},
      {"model", 5},
  };
  for (const auto& [path, value] : changes) {
    CAPTURE(path);
    CHECK(refusal_with(path, value) != "");
  }
  boost::json::object json = Fixture().json();
  json["model"].as_object()["vocab"].as_object().erase("h");
  CHECK(refusal(boost::json::serialize(json)).find("byte 104") != std::string::npos);
  CHECK(refusal("[]") != "");
  CHECK(refusal("") != "");
  CHECK(refusal(std::string(100'000, '[')) != "");
}

TEST_CASE("a file cut anywhere is one clear error") {
  const std::string text = Fixture().text();
  for (std::size_t size = 0; size < text.size(); size += size < 200 ? 1 : 37) {
    CAPTURE(size);
    REQUIRE(refusal(std::string_view(text).substr(0, size)).find("not valid JSON") != std::string::npos);
  }
  CHECK(refusal(text + "x").find("not valid JSON") != std::string::npos);
}

TEST_CASE("a missing file is a usage error that names it") {
  try {
    Tokenizer::load("/nonexistent/tokenizer.json");
    FAIL("no error");
  } catch (const aima::base::Error& error) {
    CHECK(error.exit() == aima::base::Exit::usage);
    CHECK(std::string(error.what()).find("/nonexistent/tokenizer.json") != std::string::npos);
  }
}
