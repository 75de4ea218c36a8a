// The content of one message: a string, null or a list of parts, as the model's chat template reads it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "text/chat_json.h"
#include "text/chat_text.h"

namespace aima::text {

/// A rendered content and the range of it that counts (at first: all but the white space at both ends).
struct ChatContent {
  ChatText text;
  ByteRange range;

  std::string_view view() const { return text.view(range); }
  bool empty() const { return range.begin == range.end; }
};

/// How the parts that are no text are printed: numbered ("Picture 2: ") or not, or refused as in a system
/// message.
struct VisionRules {
  bool numbered = false;
  bool refused = false;
};

/// Pictures and videos seen so far.
struct VisionCounts {
  std::size_t images = 0;
  std::size_t videos = 0;
};

/// Renders message.content; a missing one is empty. `where` names the message in errors.
ChatContent read_content(const Json& message, const std::string& where, VisionRules rules,
                         VisionCounts& counts);

/// "list[index]", for the place in an error.
std::string item_of(std::string_view list, std::size_t index);

/// Throws base::Error with exit code 2.
[[noreturn]] void refuse_request(std::string what, std::string where);

}  // namespace aima::text
