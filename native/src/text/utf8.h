// UTF-8 as the rest of the text code wants it: well-formed, or made so by one rule.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace aima::text {

/// What stands for an ill-formed part: U+FFFD.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// One code point, or one ill-formed part.
struct Utf8Step {
  char32_t code_point;  ///< U+FFFD when ill-formed
  unsigned length;      ///< bytes it takes, at least 1
  bool valid;  ///< false: a maximal ill-formed part (Unicode 16.0, table 3-7 and "U+FFFD Substitution")
  bool cut;    ///< ill-formed only because the text ends here
};

/// Reads one step at `position` < text.size(), checking everything.
Utf8Step utf8_step(std::string_view text, std::size_t position);

/// Reads the code point at `position` of text that is known to be well-formed; `length` gets its bytes.
inline char32_t utf8_at(std::string_view text, std::size_t position, unsigned& length) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[position + i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return length = 1, lead;
  if (lead < 0xE0) return length = 2, (lead & 0x1F) << 6 | (byte(1) & 0x3F);
  if (lead < 0xF0) return length = 3, (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  return length = 4, (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
}

/// Appends a code point (not a surrogate, below 0x110000).
void append_utf8(std::string& out, char32_t code_point);

/// Appends `bytes` with every maximal ill-formed part replaced by U+FFFD.
void append_replacing(std::string& out, std::string_view bytes);

/// Bytes at the end of `bytes` (0 to 3) that begin a character and lack its rest.
std::size_t open_tail(std::string_view bytes);

}  // namespace aima::text
