#include "text/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace aima::text {
namespace {

int combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

/// Appends the full canonical decomposition.
void decompose(std::vector<utf8proc_int32_t>& out, utf8proc_int32_t code_point) {
  utf8proc_int32_t parts[8];  // the longest canonical decomposition has 4 code points
  int boundary = 0;
  const auto count = utf8proc_decompose_char(code_point, parts, 8, UTF8PROC_DECOMPOSE, &boundary);
  if (count < 1 || count > 8) throw base::Error({.what = "utf8proc cannot decompose a code point"});
  out.insert(out.end(), parts, parts + count);
}

/// Puts each run of combining marks from `run` on in canonical order. utf8proc would do so by insertion,
/// which takes hours on a megabyte of marks.
void order_marks(std::vector<utf8proc_int32_t>& code_points, std::vector<utf8proc_int32_t>::iterator run) {
  while (run != code_points.end()) {
    if (combining_class(*run) == 0) {
      ++run;
      continue;
    }
    const auto end = std::find_if(run, code_points.end(), [](auto c) { return combining_class(c) == 0; });
    std::stable_sort(run, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    run = end;
  }
}

/// Normalises one segment: a character that NFC leaves alone, or none, and active ones after it.
void append_segment(std::string& out, std::string_view segment, std::vector<utf8proc_int32_t>& buffer) {
  buffer.clear();
  unsigned length = 0;
  const bool active_first = (ClassTable::get()[utf8_at(segment, 0, length)] & kNfcActive) != 0;
  for (std::size_t i = 0; i < segment.size(); i += length) {
    decompose(buffer, static_cast<utf8proc_int32_t>(utf8_at(segment, i, length)));
  }
  // An inactive character may be a mark that the reference does not know: it stays in front all the same.
  order_marks(buffer, buffer.begin() + (active_first ? 0 : 1));
  const auto count =
      utf8proc_normalize_utf32(buffer.data(), static_cast<utf8proc_ssize_t>(buffer.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (count < 0) throw base::Error({.what = utf8proc_errmsg(count)});
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(out, static_cast<char32_t>(buffer[static_cast<std::size_t>(i)]));
  }
}

/// Where the first ill-formed part or active character is, or text.size(); `before` gets the start of the
/// character in front of it, to which it may be joined.
std::size_t first_to_change(std::string_view text, std::size_t& before) {
  const ClassTable& classes = ClassTable::get();
  std::size_t i = before = 0;
  while (i < text.size()) {
    std::uint64_t eight = 0;
    if (i + 8 <= text.size() &&
        (std::memcpy(&eight, text.data() + i, 8), (eight & 0x8080808080808080u) == 0)) {
      before = i + 7;
      i += 8;
      continue;
    }
    const Utf8Step step = utf8_step(text, i);
    if (!step.valid || (classes[step.code_point] & kNfcActive) != 0) return i;
    before = i;
    i += step.length;
  }
  return i;
}

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& scratch) {
  std::size_t done = 0;
  if (first_to_change(text, done) == text.size()) return text;
  scratch.assign(text, 0, done);
  const ClassTable& classes = ClassTable::get();
  std::string segment;
  std::vector<utf8proc_int32_t> buffer;
  bool active = false;  // the segment holds something that NFC may change
  const auto flush = [&] {
    if (active)
      append_segment(scratch, segment, buffer);
    else
      scratch += segment;
    segment.clear();
    active = false;
  };
  for (std::size_t i = done; i < text.size();) {
    const Utf8Step step = utf8_step(text, i);
    const bool joins = step.valid && (classes[step.code_point] & kNfcActive) != 0;
    if (joins)
      active = true;
    else
      flush();
    segment += step.valid ? text.substr(i, step.length) : kReplacement;
    i += step.length;
  }
  flush();
  return scratch;
}

}  // namespace aima::text
