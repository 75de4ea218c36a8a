#include "text/chat_template.h"

#include <algorithm>
#include <span>
#include <utility>

#include "text/chat_content.h"
#include "text/chat_text.h"

namespace aima::text {
namespace {

// Fixed text: part of the model's interface (Qwen3.6's chat_template.jinja, Apache-2.0; see NOTICE).
constexpr std::string_view kToolsHead = "# Tools\n\nYou have access to the following functions:\n\n<tools>";
constexpr std::string_view kToolsTail =
    "\n</tools>"
    "\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple "
    "lines\n"
    "</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block must be "
    "nested "
    "within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the function "
    "call, but "
    "NOT after\n"
    "- If there is no function call available, answer the question like normal with your current knowledge "
    "and do "
    "not tell the user about function calls\n"
    "</IMPORTANT>";
constexpr std::string_view kTurnOpen = "<|im_start|>";
constexpr std::string_view kTurnClose = "<|im_end|>\n";
constexpr std::string_view kThinkOpen = "<think>";
constexpr std::string_view kThinkClose = "</think>";
constexpr std::string_view kResponseOpen = "<tool_response>";
constexpr std::string_view kResponseClose = "</tool_response>";

bool has_role(const Json& message, std::string_view role) {
  const Json* found = message.find("role");
  return found != nullptr && found->is(role);
}

/// A non-empty list, which is all that the template loops over; nullptr for anything else.
const Json::Array* list_of(const Json& object, std::string_view key) {
  const Json* found = object.find(key);
  return found != nullptr && found->truthy() ? found->array() : nullptr;
}

/// Reasoning and answer of an assistant message, both as parts of the text they come from.
struct Reply {
  ChatContent reasoning;
  ChatContent answer;
};

/// `reasoning_content` when it is a string. Otherwise what stands before the first </think> (after the last
/// <think> there) is the reasoning, and what stands after the last </think> the answer.
Reply split_reply(const Json& message, ChatContent content) {
  Reply reply{.reasoning = {}, .answer = std::move(content)};
  const Json* given = message.find("reasoning_content");
  if (given != nullptr && given->string() != nullptr) {
    reply.reasoning.text.given(*given->string());
    reply.reasoning.range = {0, reply.reasoning.text.size()};
  } else {
    const std::string_view text = reply.answer.view();
    const std::size_t close = text.find(kThinkClose);
    if (close == std::string_view::npos) return reply;
    const ByteRange whole = reply.answer.range;
    ByteRange thought{whole.begin, whole.begin + close};
    const std::size_t open = reply.answer.text.view(thought).rfind(kThinkOpen);
    if (open != std::string_view::npos) thought.begin += open + kThinkOpen.size();
    const std::size_t after = whole.begin + text.rfind(kThinkClose) + kThinkClose.size();
    reply.reasoning.text.part(reply.answer.text, thought);
    reply.reasoning.range = {0, reply.reasoning.text.size()};
    reply.answer.range = strip_newlines_left(reply.answer.text.bytes(), {after, whole.end});
  }
  reply.reasoning.range = python_strip(reply.reasoning.text.bytes(), reply.reasoning.range);
  return reply;
}

class Renderer {
 public:
  explicit Renderer(const Json& request) : request_(request) {
    const Json* messages = request.find("messages");
    if (messages == nullptr || !messages->truthy()) refuse_request("no messages", "messages");
    if (messages->array() == nullptr) refuse_request("messages are not a list", "messages");
    messages_ = *messages->array();
    rules_.numbered = flag("add_vision_id", false);
  }

  ChatPrompt render() {
    system_turn();
    last_query_ = find_last_query();
    for (std::size_t i = 0; i < messages_.size(); ++i) message(i);
    prompt_.generation = out_.size();
    if (flag("add_generation_prompt", true)) generation_prompt();
    prompt_.text = out_.bytes();
    prompt_.trusted = out_.trusted();
    return std::move(prompt_);
  }

 private:
  bool flag(std::string_view key, bool missing) const {
    const Json* found = request_.find(key);
    return found == nullptr ? missing : found->truthy();
  }

  bool exactly(std::string_view key, bool expected) const {
    const Json* found = request_.find(key);
    return found != nullptr && found->is(expected);
  }

  bool is_tool(std::size_t index) const { return has_role(messages_[index], "tool"); }

  void open_turn(std::string_view role) {
    prompt_.boundaries.push_back(out_.size());
    out_.fixed(kTurnOpen);
    out_.fixed(role);
  }

  void content(const ChatContent& from) { out_.part(from.text, from.range); }

  /// Tools and the system message, which share a turn. The system message of a request without tools has its
  /// turn even when it is empty.
  void system_turn() {
    const Json* given = request_.find("tools");
    if (given != nullptr && given->string() != nullptr && given->truthy())
      refuse_request("tools are not a list", "tools");
    const Json::Array* tools = list_of(request_, "tools");
    const bool has_system = has_role(messages_[0], "system");
    if (tools == nullptr && !has_system) return;
    open_turn("system\n");
    if (tools != nullptr) {
      out_.fixed(kToolsHead);
      for (const Json& tool : *tools) {
        out_.fixed("\n");
        out_.given(dump_json(tool));
      }
      out_.fixed(kToolsTail);
    }
    if (has_system) {
      VisionCounts none;
      const ChatContent text =
          read_content(messages_[0], item_of("messages", 0), {.numbered = false, .refused = true}, none);
      if (tools != nullptr && !text.empty()) out_.fixed("\n\n");
      content(text);
    }
    out_.fixed(kTurnClose);
  }

  /// Index of the last user message that is not wholly a tool response.
  std::size_t find_last_query() const {
    for (std::size_t i = messages_.size(); i-- > 0;) {
      if (!has_role(messages_[i], "user")) continue;
      VisionCounts none;
      const ChatContent text = read_content(messages_[i], item_of("messages", i), rules_, none);
      if (!text.view().starts_with(kResponseOpen) || !text.view().ends_with(kResponseClose)) return i;
    }
    refuse_request("no user message", "messages");
  }

  void message(std::size_t index) {
    const Json& message = messages_[index];
    const std::string where = item_of("messages", index);
    ChatContent text = read_content(message, where, rules_, counts_);
    if (has_role(message, "system")) {
      if (index != 0) refuse_request("a system message must be the first message", where + ".role");
    } else if (has_role(message, "user")) {
      open_turn("user\n");
      content(text);
      out_.fixed(kTurnClose);
    } else if (has_role(message, "assistant")) {
      assistant(index, where, split_reply(message, std::move(text)));
    } else if (is_tool(index)) {
      tool_result(index, text);
    } else {
      refuse_request("role is none of system, user, assistant and tool", where + ".role");
    }
  }

  void assistant(std::size_t index, const std::string& where, const Reply& reply) {
    open_turn("assistant\n");
    if (exactly("preserve_thinking", true) || index > last_query_) {
      out_.fixed("<think>\n");
      content(reply.reasoning);
      out_.fixed("\n</think>\n\n");
    }
    content(reply.answer);
    if (const Json::Array* calls = list_of(messages_[index], "tool_calls")) {
      std::string_view gap = reply.answer.empty() ? "" : "\n\n";
      for (std::size_t i = 0; i < calls->size(); ++i) {
        out_.fixed(std::exchange(gap, "\n"));
        tool_call((*calls)[i], item_of(where + ".tool_calls", i));
      }
    } else if (const Json* odd = messages_[index].find("tool_calls"); odd && odd->string() && odd->truthy()) {
      refuse_request("tool calls are not a list", where + ".tool_calls");
    }
    out_.fixed(kTurnClose);
  }

  void tool_call(const Json& given, std::string where) {
    const Json* call = &given;
    if (const Json* function = given.find("function")) {
      call = function;
      where += ".function";
    }
    const Json* name = call->find("name");
    if (name == nullptr || name->string() == nullptr)
      refuse_request("name of a tool call is not a string", where + ".name");
    out_.fixed("<tool_call>\n<function=");
    out_.given(*name->string());
    out_.fixed(">\n");
    if (const Json* arguments = call->find("arguments")) {
      if (arguments->object() == nullptr)
        refuse_request("arguments of a tool call are not an object", where + ".arguments");
      for (const auto& [key, value] : *arguments->object()) {
        out_.fixed("<parameter=");
        out_.given(key);
        out_.fixed(">\n");
        out_.given(value.string() != nullptr ? *value.string() : dump_json(value));
        out_.fixed("\n</parameter>\n");
      }
    }
    out_.fixed("</function>\n</tool_call>");
  }

  /// Results that follow each other share a user turn. (One that is the first message of all gets no turn
  /// opened.)
  void tool_result(std::size_t index, const ChatContent& text) {
    if (index > 0 && !is_tool(index - 1)) {
      open_turn("user");
    } else if (index > 0) {
      prompt_.boundaries.push_back(out_.size());
    }
    out_.fixed("\n<tool_response>\n");
    content(text);
    out_.fixed("\n</tool_response>");
    if (index + 1 == messages_.size() || !is_tool(index + 1)) out_.fixed(kTurnClose);
  }

  void generation_prompt() {
    open_turn("assistant\n");
    out_.fixed(exactly("enable_thinking", false) ? "<think>\n\n</think>\n\n" : "<think>\n");
  }

  const Json& request_;
  std::span<const Json> messages_;
  VisionRules rules_;
  VisionCounts counts_;
  std::size_t last_query_ = 0;
  ChatText out_;
  ChatPrompt prompt_;
};

}  // namespace

ChatPrompt render_chat(const Json& request) {
  if (request.object() == nullptr) refuse_request("not an object", "request");
  return Renderer(request).render();
}

ChatTokens encode_chat(const Tokenizer& tokenizer, const ChatPrompt& prompt, bool typed_tokens) {
  ChatTokens out;
  const std::string_view text = prompt.text;
  std::vector<std::size_t> cuts = prompt.boundaries;
  cuts.push_back(text.size());
  auto own = prompt.trusted.begin();
  std::size_t begin = 0;
  for (const std::size_t end : cuts) {
    std::vector<ByteRange> trusted;
    while (own != prompt.trusted.end() && own->begin < end) {
      trusted.push_back({std::max(own->begin, begin) - begin, std::min(own->end, end) - begin});
      if (own->end > end) break;
      ++own;
    }
    const std::string_view piece = text.substr(begin, end - begin);
    const std::vector<std::int32_t> ids =
        typed_tokens ? tokenizer.encode(piece, true) : tokenizer.encode(piece, trusted);
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    if (end == prompt.generation) out.generation = out.ids.size();
    if (out.boundaries.size() < prompt.boundaries.size()) out.boundaries.push_back(out.ids.size());
    begin = end;
  }
  return out;
}

}  // namespace aima::text
