#include "base/error.h"

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "base/printable.h"

namespace aima::base {
namespace {

constexpr std::size_t longest_part = 1000;

}  // namespace

std::string printable(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool starts_character = (byte & 0xC0U) != 0x80U;
    if (out.size() >= longest_part && starts_character) return out + "...";
    // U+0080 to U+009F are controls too; in UTF-8 they are C2 and the code point itself.
    const bool control =
        byte < 0x20 || byte == 0x7F || (byte == 0xC2 && i + 1 < text.size() && (text[i + 1] & 0xE0) == 0x80);
    if (!control) {
      out += text[i];
      continue;
    }
    const unsigned code_point = byte == 0xC2 ? static_cast<unsigned char>(text[++i]) : byte;
    out += "\\x";
    out += digits[code_point >> 4U];
    out += digits[code_point & 15U];
  }
  return out;
}

namespace {

std::string render(const ErrorText& text) {
  std::string out = printable(text.where) + (text.where.empty() ? "" : ": ") + printable(text.what);
  if (!text.why.empty()) out += "\n  why: " + printable(text.why);
  if (!text.hint.empty()) out += "\n  hint: " + printable(text.hint);
  return out;
}

}  // namespace

Error::Error(ErrorText text, Exit exit)
    : std::runtime_error(render(text)), text_(std::move(text)), exit_(exit) {}

void throw_usage(ErrorText text) { throw Error(std::move(text), Exit::usage); }

void throw_system(std::string what, std::string where, int errno_value) {
  throw Error({.what = std::move(what),
               .where = std::move(where),
               .why = std::generic_category().message(errno_value)});
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace aima::base
