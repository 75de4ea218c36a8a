#include "text/chat_content.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace aima::text {
namespace {

constexpr std::string_view kImage = "<|vision_start|><|image_pad|><|vision_end|>";
constexpr std::string_view kVideo = "<|vision_start|><|video_pad|><|vision_end|>";

/// Jinja's `key in part`: a key of an object, an item of a list, a part of a string.
bool holds(const Json& part, std::string_view key) {
  if (part.object() != nullptr) return part.find(key) != nullptr;
  if (const auto* text = part.string()) return text->find(key) != std::string::npos;
  const auto* items = part.array();
  return items != nullptr && std::ranges::any_of(*items, [&](const Json& item) { return item.is(key); });
}

/// Python's str() of a part's text.
void append_text(ChatText& out, const Json& text, const std::string& where) {
  if (const auto* string = text.string()) return out.given(*string);
  if (const auto* number = text.number()) return out.given(number->text);
  if (const auto* flag = text.boolean()) return out.given(*flag ? "True" : "False");
  if (text.is_null()) return out.given("None");
  refuse_request("text of a content part is not a string", where);
}

class Parts {
 public:
  Parts(ChatText& out, VisionRules rules, VisionCounts& counts) : out_(out), rules_(rules), counts_(counts) {}

  void append(const Json& part, const std::string& where) {
    if (part.object() == nullptr && part.array() == nullptr && part.string() == nullptr)
      refuse_request("content part is not an object", where);
    const Json* type = part.find("type");
    const auto is_type = [&](std::string_view name) { return type != nullptr && type->is(name); };
    if (holds(part, "image") || holds(part, "image_url") || is_type("image")) {
      vision("Picture ", counts_.images, kImage, where);
    } else if (holds(part, "video") || is_type("video")) {
      vision("Video ", counts_.videos, kVideo, where);
    } else if (holds(part, "text")) {
      if (const Json* text = part.find("text")) append_text(out_, *text, where + ".text");
    } else {
      refuse_request("content part is neither text nor image nor video", where);
    }
  }

 private:
  void vision(std::string_view name, std::size_t& count, std::string_view tokens, const std::string& where) {
    if (rules_.refused) refuse_request("a system message cannot contain images or videos", where);
    ++count;
    if (rules_.numbered) {
      out_.fixed(name);
      out_.fixed(std::to_string(count) + ": ");
    }
    out_.fixed(tokens);
  }

  ChatText& out_;
  VisionRules rules_;
  VisionCounts& counts_;
};

}  // namespace

std::string item_of(std::string_view list, std::size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

void refuse_request(std::string what, std::string where) {
  base::throw_usage({.what = std::move(what), .where = std::move(where)});
}

ChatContent read_content(const Json& message, const std::string& where, VisionRules rules,
                         VisionCounts& counts) {
  ChatContent content;
  const Json* given = message.find("content");
  if (given == nullptr || given->is_null()) return content;
  const std::string here = where + ".content";
  if (const auto* text = given->string()) {
    content.text.given(*text);
  } else if (const auto* parts = given->array()) {
    Parts reader(content.text, rules, counts);
    for (std::size_t i = 0; i < parts->size(); ++i) reader.append((*parts)[i], item_of(here, i));
  } else {
    refuse_request("content is neither a string nor a list of parts", here);
  }
  content.range = python_strip(content.text.bytes(), {0, content.text.size()});
  return content;
}

}  // namespace aima::text
