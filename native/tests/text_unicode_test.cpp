#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "text/normalize.h"
#include "text/unicode.h"
#include "text/utf8.h"

using namespace aima::text;

namespace {

std::string replaced(std::string_view bytes) {
  std::string out;
  append_replacing(out, bytes);
  return out;
}

std::string nfc(std::string_view text) {
  std::string scratch;
  return std::string(to_nfc(text, scratch));
}

std::string utf8(std::initializer_list<char32_t> code_points) {
  std::string out;
  for (const char32_t c : code_points) append_utf8(out, c);
  return out;
}

}  // namespace

TEST_CASE("code points survive a trip through UTF-8") {
  for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string text = utf8({c});
    const Utf8Step step = utf8_step(text, 0);
    REQUIRE(step.valid);
    REQUIRE(step.code_point == c);
    REQUIRE(step.length == text.size());
    REQUIRE(open_tail(text) == 0);
    for (std::size_t cut = 1; cut < text.size(); ++cut) REQUIRE(open_tail(text.substr(0, cut)) == cut);
  }
}

TEST_CASE("each maximal ill-formed part becomes one replacement character") {
  const std::string r(kReplacement);
  // The example of the Unicode standard, table 3-8, and the corners of table 3-7.
  CHECK(replaced("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64") ==
        "a" + r + r + r + "b" + r + "c" + r + r + "d");
  CHECK(replaced("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41") == r + r + r + r + r + r + r + r + "A");
  CHECK(replaced("\xED\xA0\x80") == r + r + r);          // a surrogate
  CHECK(replaced("\xF4\x90\x80\x80") == r + r + r + r);  // above U+10FFFF
  CHECK(replaced("\xF4\x8F\xBF\xBF") == "\xF4\x8F\xBF\xBF");
  CHECK(replaced("x\xE2\x82") == "x" + r);  // cut at the end
  CHECK(replaced("\xE2\x82\x41") == r + "A");
  CHECK(replaced("") == "");
}

TEST_CASE("the classes have the sizes of Unicode 16.0") {
  const ClassTable& classes = ClassTable::get();
  std::size_t letters = 0, marks = 0, numbers = 0, spaces = 0, active = 0, overlaps = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    const unsigned bits = classes[c];
    letters += (bits & kLetter) != 0;
    marks += (bits & kMark) != 0;
    numbers += (bits & kNumber) != 0;
    spaces += (bits & kSpace) != 0;
    active += (bits & kNfcActive) != 0;
    const unsigned named = bits & kNamed;
    overlaps += (named & (named - 1)) != 0;
  }
  CHECK(letters == 141028);
  CHECK(marks == 2501);
  CHECK(numbers == 1911);
  CHECK(spaces == 25);
  CHECK(active == 2003);
  CHECK(overlaps == 0);
  CHECK(classes[U'\u01C5'] == kLetter);
  CHECK(classes[U'\u4E00'] == kLetter);
  CHECK(classes[U'\u0903'] == kMark);
  CHECK(classes[U'\u2167'] == kNumber);
  CHECK(classes[U'\u00B2'] == kNumber);
  CHECK(classes[U'\u0085'] == kSpace);
  CHECK(classes[U'\u3000'] == kSpace);
  CHECK(classes[U'\u200B'] == 0);
  CHECK(classes[U'_'] == 0);
  CHECK(classes[0x10FFFF] == 0);
}

TEST_CASE("NFC composes, decomposes and orders") {
  CHECK(nfc(utf8({'e', 0x301})) == utf8({0xE9}));
  CHECK(nfc(utf8({0x212B})) == utf8({0xC5}));
  CHECK(nfc(utf8({0x958})) == utf8({0x915, 0x93C}));  // a composition exclusion
  CHECK(nfc(utf8({0x344})) == utf8({0x308, 0x301}));
  CHECK(nfc(utf8({'a', 0x301, 0x327})) == utf8({0xE1, 0x327}));
  CHECK(nfc(utf8({'a', 0x327, 0x301})) == utf8({0xE1, 0x327}));
  CHECK(nfc(utf8({0x1100, 0x1161, 0x11A8})) == utf8({0xAC01}));  // Hangul
  CHECK(nfc(utf8({0xAC00, 0x11A8, 0x11A8})) == utf8({0xAC01, 0x11A8}));
  CHECK(nfc(utf8({0x301, 'x', 0x323, 0x302})) == utf8({0x301, 'x', 0x323, 0x302}));
  CHECK(nfc(utf8({0xF900, 0x2F801})) == utf8({0x8C48, 0x4E38}));
  CHECK(nfc("a\x80"
            "e\xCC\x81") == "a" + std::string(kReplacement) + utf8({0xE9}));
  CHECK(nfc("") == "");
}

TEST_CASE("marks that the reference's NFC does not know keep their place") {
  // U+1AC0 (class 220, Unicode 13) would move before U+0301 (class 230) under a newer NFC.
  CHECK(nfc(utf8({'x', 0x301, 0x1AC0})) == utf8({'x', 0x301, 0x1AC0}));
  CHECK(nfc(utf8({0x1E2ED, 0x5B9})) == utf8({0x1E2ED, 0x5B9}));
}

TEST_CASE("normal text is returned as it is, without a copy") {
  const std::string text = "plain, " + utf8({0xE9, 0x4F60, 0x1F600, 0xAC01}) + " and so on";
  std::string scratch;
  CHECK(to_nfc(text, scratch).data() == text.data());
}

TEST_CASE("NFC is idempotent, and concatenation at spaces does not change it") {
  std::mt19937 random(7);
  const std::vector<char32_t> pool = {'a',    'e',   ' ',   0x300,  0x301,  0x323,  0x327,
                                      0x345,  0x334, 0xE9,  0x1EA5, 0x1100, 0x1161, 0x11A8,
                                      0xAC00, 0x958, 0x93C, 0x9BE,  0x9C7,  0xF43,  0x1D15E};
  for (int round = 0; round < 2000; ++round) {
    std::string a, b;
    for (int i = 0; i < 12; ++i) append_utf8(i < 6 ? a : b, pool[random() % pool.size()]);
    const std::string once = nfc(a + " " + b);
    REQUIRE(nfc(once) == once);
    REQUIRE(once.substr(0, nfc(a).size()) == nfc(a));
  }
}

TEST_CASE("a long run of marks in the worst order takes no quadratic time") {
  std::string text = "a", wanted = "a";
  const std::size_t count = 300'000;  // by insertion 9e10 steps: the test would not end
  for (std::size_t i = 0; i < count; ++i) text += "\xCC\x80";  // U+0300, class 230
  for (std::size_t i = 0; i < count; ++i) text += "\xCC\xA3";  // U+0323, class 220
  const std::string out = nfc(text);
  CHECK(out.substr(0, 3) == utf8({0x1EA1}));  // a with dot below
  CHECK(out.size() == 3 + 2 * (2 * count - 1));
  CHECK(out.substr(out.size() - 2) == "\xCC\x80");
}
