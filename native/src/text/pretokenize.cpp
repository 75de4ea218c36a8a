#include "text/pretokenize.h"

#include "text/unicode.h"
#include "text/utf8.h"

namespace aima::text {
namespace {

/// A place in the text and the character there.
struct Cursor {
  std::string_view text;
  const ClassTable& classes;
  std::size_t at;
  unsigned length = 0;    // of the character, 0 at the end
  std::uint8_t kind = 0;  // its class bits
  char32_t code_point = 0;

  Cursor(std::string_view whole, const ClassTable& table, std::size_t begin)
      : text(whole), classes(table), at(begin) {
    read();
  }
  void read() {
    length = 0;
    if (at == text.size()) return;
    code_point = utf8_at(text, at, length);
    kind = classes[code_point];
  }
  void next() {
    at += length;
    read();
  }
  bool end() const { return length == 0; }
  bool is(std::uint8_t bits) const { return length != 0 && (kind & bits) != 0; }
  bool is_line_end() const { return length != 0 && (code_point == '\r' || code_point == '\n'); }
  bool is_other() const { return length != 0 && (kind & kNamed) == 0; }
};

/// Length of a contraction at `at`, where an apostrophe stands; 0 when there is none. U+017F folds to "s".
std::size_t contraction(std::string_view text, std::size_t at) {
  const auto letter = [&](std::size_t i) {
    const char c = at + i < text.size() ? text[at + i] : '\0';
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  const char a = letter(1), b = letter(2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  if (text.substr(at + 1, 2) == "\xC5\xBF") return 3;
  return 0;
}

std::size_t word_end(Cursor c) {
  while (c.is(kWord)) c.next();
  return c.at;
}

/// A run of "other" characters and the line ends after it.
std::size_t symbols_end(Cursor c) {
  while (c.is_other()) c.next();
  while (c.is_line_end()) c.next();
  return c.at;
}

/// The three alternatives for white space: up to the last line end of the run; else all but the last
/// character where something follows; else all.
std::size_t space_end(Cursor c) {
  const std::size_t begin = c.at;
  std::size_t last_start = begin, after_line_end = begin;
  while (c.is(kSpace)) {
    last_start = c.at;
    const bool line_end = c.is_line_end();
    c.next();
    if (line_end) after_line_end = c.at;
  }
  if (after_line_end != begin) return after_line_end;
  return c.end() || last_start == begin ? c.at : last_start;
}

}  // namespace

std::size_t pretoken_end(std::string_view text, std::size_t begin) {
  const Cursor first(text, ClassTable::get(), begin);
  if (first.code_point == '\'') {
    if (const std::size_t length = contraction(text, begin)) return begin + length;
  }
  if (first.is(kWord)) return word_end(first);
  if (first.is(kNumber)) return begin + first.length;
  Cursor second = first;
  second.next();
  if (!first.is_line_end() && second.is(kWord)) return word_end(second);
  if (first.is_other()) return symbols_end(first);
  if (first.code_point == ' ' && second.is_other()) return symbols_end(second);
  return space_end(first);
}

}  // namespace aima::text
