#include "text/chat_text.h"

#include <algorithm>

namespace aima::text {
namespace {

bool is_space(char32_t point) {
  return (point >= 0x09 && point <= 0x0d) || (point >= 0x1c && point <= 0x20) || point == 0x85 ||
         point == 0xa0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200a) || point == 0x2028 ||
         point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

/// Bytes of the space that starts `text` (all of them lie below U+10000), or 0.
std::size_t space_at(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return !text.empty() && is_space(lead) ? 1 : 0;
  if (lead >> 5 == 6) return is_space((lead & 0x1f) << 6 | (byte(1) & 0x3f)) ? 2 : 0;
  if (lead >> 4 == 14)
    return is_space((lead & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f)) ? 3 : 0;
  return 0;
}

}  // namespace

void ChatText::fixed(std::string_view text) {
  if (text.empty()) return;
  const std::size_t begin = bytes_.size();
  bytes_ += text;
  if (!trusted_.empty() && trusted_.back().end == begin) {
    trusted_.back().end = bytes_.size();
  } else {
    trusted_.push_back({begin, bytes_.size()});
  }
}

void ChatText::part(const ChatText& other, ByteRange range) {
  std::size_t at = range.begin;
  const auto first = std::ranges::upper_bound(other.trusted_, range.begin, {}, &ByteRange::end);
  for (auto own = first; own != other.trusted_.end() && own->begin < range.end; ++own) {
    const ByteRange inside{std::max(own->begin, at), std::min(own->end, range.end)};
    given(other.view({at, inside.begin}));
    fixed(other.view(inside));
    at = inside.end;
  }
  given(other.view({at, range.end}));
}

ByteRange python_strip(std::string_view text, ByteRange range) {
  while (range.begin < range.end) {
    const std::size_t width = space_at(text.substr(range.begin, range.end - range.begin));
    if (width == 0) break;
    range.begin += width;
  }
  while (range.begin < range.end) {
    std::size_t last = range.end - 1;
    while (last > range.begin && (static_cast<unsigned char>(text[last]) & 0xc0) == 0x80) --last;
    if (space_at(text.substr(last, range.end - last)) != range.end - last) break;
    range.end = last;
  }
  return range;
}

ByteRange strip_newlines_left(std::string_view text, ByteRange range) {
  while (range.begin < range.end && text[range.begin] == '\n') ++range.begin;
  return range;
}

}  // namespace aima::text
