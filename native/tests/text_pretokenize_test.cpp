#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "text/pretokenize.h"
#include "text/unicode.h"
#include "text/utf8.h"

using namespace aima::text;

namespace {

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = pretoken_end(text, begin);
    REQUIRE(end > begin);
    out.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return out;
}

/// The regular expression taken literally, alternative by alternative, over code points.
class Literal {
 public:
  explicit Literal(std::u32string text) : text_(std::move(text)) {}

  std::size_t end(std::size_t i) const {
    for (const auto alternative : {&Literal::contraction, &Literal::word, &Literal::number, &Literal::symbols,
                                   &Literal::lines, &Literal::inner_space, &Literal::space}) {
      const std::size_t found = (this->*alternative)(i);
      if (found > i) return found;
    }
    return i;
  }

 private:
  unsigned kind(std::size_t i) const { return i < text_.size() ? ClassTable::get()[text_[i]] : 0; }
  bool letter(std::size_t i) const { return (kind(i) & (kLetter | kMark)) != 0; }
  bool space_at(std::size_t i) const { return (kind(i) & kSpace) != 0; }
  bool line(std::size_t i) const { return i < text_.size() && (text_[i] == U'\r' || text_[i] == U'\n'); }
  bool other(std::size_t i) const { return i < text_.size() && (kind(i) & kNamed) == 0; }

  std::size_t contraction(std::size_t i) const {
    for (const std::u32string_view suffix : {U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"}) {
      std::size_t n = 0;
      while (n < suffix.size() && i + n < text_.size() && folded(text_[i + n]) == suffix[n]) ++n;
      if (n == suffix.size()) return i + n;
    }
    return i;
  }
  static char32_t folded(char32_t c) { return c == U'\u017F' ? U's' : c >= U'A' && c <= U'Z' ? c + 32 : c; }

  std::size_t word(std::size_t i) const {
    const bool prefix = i < text_.size() && !line(i) && (kind(i) & (kLetter | kNumber)) == 0;
    if (prefix && letter(i + 1)) return letters(i + 1);
    return letter(i) ? letters(i) : i;
  }
  std::size_t letters(std::size_t i) const {
    while (letter(i)) ++i;
    return i;
  }
  std::size_t number(std::size_t i) const { return (kind(i) & kNumber) != 0 ? i + 1 : i; }
  std::size_t symbols(std::size_t i) const {
    std::size_t j = i < text_.size() && text_[i] == U' ' && other(i + 1) ? i + 1 : i;
    if (!other(j)) return i;
    while (other(j)) ++j;
    while (line(j)) ++j;
    return j;
  }
  std::size_t lines(std::size_t i) const {
    std::size_t j = i;
    while (space_at(j)) ++j;
    for (;; --j) {  // \s* gives back one by one
      std::size_t k = j;
      while (line(k)) ++k;
      if (k > j) return k;
      if (j == i) return i;
    }
  }
  std::size_t inner_space(std::size_t i) const {
    std::size_t j = i;
    while (space_at(j)) ++j;
    for (; j > i; --j) {
      if (j == text_.size() || space_at(j)) return j;
    }
    return i;
  }
  std::size_t space(std::size_t i) const {
    while (space_at(i)) ++i;
    return i;
  }

  std::u32string text_;
};

}  // namespace

TEST_CASE("pre-tokens by hand") {
  using List = std::vector<std::string>;
  CHECK(split("Hello, world!") == List{"Hello", ",", " world", "!"});
  CHECK(split("I'm WE'LL x'\xC5\xBF they've 'tis") ==
        List{"I", "'m", " WE", "'LL", " x", "'\xC5\xBF", " they", "'ve", " '", "tis"});
  CHECK(split("a1234b") == List{"a", "1", "2", "3", "4", "b"});
  CHECK(split("  two  spaces   ") == List{" ", " two", " ", " spaces", "   "});
  CHECK(split(" \n \n  x") == List{" \n \n", " ", " x"});
  CHECK(split("f(x) {\n\n  y\r\n}") == List{"f", "(x", ")", " {\n\n", " ", " y", "\r\n", "}"});
  CHECK(split("\tx\xC2\xA0y") == List{"\tx", "\xC2\xA0y"});
  CHECK(split("e\xCC\x81!\xCC\x81") == List{"e\xCC\x81", "!\xCC\x81"});
  CHECK(split(" \t") == List{" \t"});
  CHECK(split("''s") == List{"''", "s"});
  CHECK(split("\r") == List{"\r"});
}

TEST_CASE("pre-tokens equal the expression taken literally") {
  const std::u32string pool =
      U"asSrRevVlLmMdDtT\u017F\u0301\u0903\u4F6012\u2167'''   \t\n\r\u00A0\u3000\u2028!?-_\u200B";
  std::mt19937 random(3);
  for (int round = 0; round < 30'000; ++round) {
    std::u32string text;
    std::string bytes;
    for (std::size_t n = 1 + random() % 14; n > 0; --n) text.push_back(pool[random() % pool.size()]);
    for (const char32_t c : text) append_utf8(bytes, c);
    const Literal literal(text);
    std::size_t byte = 0;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t end = literal.end(i);
      REQUIRE(end > i);
      std::size_t wanted = byte;
      for (; i < end; ++i) wanted += text[i] < 0x80 ? 1 : text[i] < 0x800 ? 2 : 3;
      CAPTURE(bytes);
      REQUIRE(pretoken_end(bytes, byte) == wanted);
      byte = wanted;
    }
  }
}
