#include "text/utf8.h"

namespace aima::text {
namespace {

/// Well-formed values of the second byte after `lead` (table 3-7), and the length of the sequence.
struct Lead {
  unsigned length;
  unsigned char low, high;
};

Lead lead_of(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead < 0xF0) {
    return {3, static_cast<unsigned char>(lead == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(lead == 0xED ? 0x9F : 0xBF)};
  }
  if (lead < 0xF5) {
    return {4, static_cast<unsigned char>(lead == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(lead == 0xF4 ? 0x8F : 0xBF)};
  }
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const std::size_t left = text.size() - position;
  const Lead lead = lead_of(byte(0));
  if (lead.length == 1) return {byte(0), 1, true, false};
  if (lead.length == 0) return {0xFFFD, 1, false, false};
  unsigned have = 1;
  while (have < lead.length && have < left) {
    const unsigned char low = have == 1 ? lead.low : 0x80, high = have == 1 ? lead.high : 0xBF;
    if (byte(have) < low || byte(have) > high) return {0xFFFD, have, false, false};
    ++have;
  }
  if (have < lead.length) return {0xFFFD, have, false, true};
  unsigned length = 0;
  const char32_t code_point = utf8_at(text, position, length);
  return {code_point, length, true, false};
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

void append_replacing(std::string& out, std::string_view bytes) {
  std::size_t good = 0, position = 0;
  while (position < bytes.size()) {
    const Utf8Step step = utf8_step(bytes, position);
    if (!step.valid) {
      out.append(bytes, good, position - good).append(kReplacement);
      good = position + step.length;
    }
    position += step.length;
  }
  out.append(bytes, good);
}

std::size_t open_tail(std::string_view bytes) {
  for (std::size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const Utf8Step step = utf8_step(bytes, bytes.size() - back);
    return step.cut && step.length == back ? back : 0;
  }
  return 0;
}

}  // namespace aima::text
