// Text that remembers which of its bytes a template wrote, and the string operations of Python that templates
// use.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace aima::text {

/// Bytes with the ranges among them (sorted, apart from each other) that come from a template and not from a
/// request.
class ChatText {
 public:
  const std::string& bytes() const { return bytes_; }
  const std::vector<ByteRange>& trusted() const { return trusted_; }
  std::size_t size() const { return bytes_.size(); }
  std::string_view view(ByteRange range) const {
    return std::string_view(bytes_).substr(range.begin, range.end - range.begin);
  }

  /// Appends the template's own text.
  void fixed(std::string_view text);

  /// Appends text of the request.
  void given(std::string_view text) { bytes_ += text; }

  /// Appends a part of another text, with its ranges.
  void part(const ChatText& other, ByteRange range);

 private:
  std::string bytes_;
  std::vector<ByteRange> trusted_;
};

/// The part of text[range] that Python's str.strip() leaves: without the 29 code points that str.isspace()
/// knows at either end (Unicode's 25 White_Space and the separators U+001C..U+001F).
ByteRange python_strip(std::string_view text, ByteRange range);

/// The part of text[range] that Python's lstrip("\n") leaves.
ByteRange strip_newlines_left(std::string_view text, ByteRange range);

}  // namespace aima::text
