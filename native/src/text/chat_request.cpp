#include "text/chat_request.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "text/chat_content.h"

namespace aima::text {
namespace {

constexpr std::array<std::string_view, 3> kSwitches = {"enable_thinking", "preserve_thinking",
                                                       "add_vision_id"};

Json* find(Json& object, std::string_view key) { return const_cast<Json*>(std::as_const(object).find(key)); }

void erase(Json& object, std::string_view key) {
  std::erase_if(std::get<Json::Object>(object.value),
                [&](const Json::Member& member) { return member.first == key; });
}

/// The member as it will be read: nullptr for null too, which is taken out.
Json* find_given(Json& object, std::string_view key) {
  Json* found = find(object, key);
  if (found == nullptr || !found->is_null()) return found;
  erase(object, key);
  return nullptr;
}

void set(Json& object, std::string_view key, Json value) {
  if (Json* found = find(object, key)) {
    *found = std::move(value);
  } else {
    std::get<Json::Object>(object.value).emplace_back(std::string(key), std::move(value));
  }
}

Json::Array& list(Json& given, const std::string& where) {
  auto* items = std::get_if<Json::Array>(&given.value);
  if (items == nullptr) refuse_request("a list is expected here", where);
  return *items;
}

void require_object(const Json& given, const std::string& where) {
  if (given.object() == nullptr) refuse_request("an object is expected here", where);
}

const std::string& require_string(const Json* given, const std::string& where) {
  if (given == nullptr || given->string() == nullptr) refuse_request("a string is expected here", where);
  return *given->string();
}

/// The text of one part of a content.
const std::string& text_of_part(const Json& part, const std::string& where) {
  require_object(part, where);
  const std::string& type = require_string(part.find("type"), where + ".type");
  if (type == "refusal") return require_string(part.find("refusal"), where + ".refusal");
  if (type != "text" && type != "input_text" && type != "output_text") {
    base::throw_usage({.what = "content parts of type `" + type + "` are not supported",
                       .where = where,
                       .hint = "send text parts only"});
  }
  return require_string(part.find("text"), where + ".text");
}

/// Makes message.content one string: its own, its text parts in a row, or "" for null and a missing one.
void flatten_content(Json& message, const std::string& where) {
  Json* content = find_given(message, "content");
  if (content == nullptr) return set(message, "content", Json{std::string()});
  if (content->string() != nullptr) return;
  const std::string here = where + ".content";
  if (content->array() == nullptr) refuse_request("content is neither a string nor a list of parts", here);
  std::string text;
  const Json::Array& parts = *content->array();
  for (std::size_t i = 0; i < parts.size(); ++i) text += text_of_part(parts[i], item_of(here, i));
  content->value = std::move(text);
}

/// Arguments as an object, whatever the client sent.
Json read_arguments(const Json* given, const std::string& where) {
  if (given == nullptr || given->is_null()) return Json{Json::Object{}};
  if (given->object() != nullptr) return *given;
  const std::string& text = require_string(given, where);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json{Json::Object{}};
  Json parsed = parse_json(text, where);
  if (parsed.object() == nullptr) refuse_request("arguments of a tool call are not an object", where);
  return parsed;
}

void normalise_calls(Json& message, const std::string& where) {
  if (find_given(message, "function_call") != nullptr)
    refuse_request("`function_call` is not supported: send `tool_calls`", where + ".function_call");
  Json* calls = find_given(message, "tool_calls");
  if (calls == nullptr) return;
  const std::string here = where + ".tool_calls";
  Json::Array& items = list(*calls, here);
  for (std::size_t i = 0; i < items.size(); ++i) {
    std::string place = item_of(here, i);
    require_object(items[i], place);
    Json* call = find_given(items[i], "function");
    if (call == nullptr) {
      call = &items[i];
    } else {
      place += ".function";
      require_object(*call, place);
    }
    require_string(call->find("name"), place + ".name");
    set(*call, "arguments", read_arguments(call->find("arguments"), place + ".arguments"));
  }
}

void normalise_reasoning(Json& message, const std::string& where) {
  const Json* short_name = find_given(message, "reasoning");
  const Json* long_name = find_given(message, "reasoning_content");
  if (long_name != nullptr) {
    require_string(long_name, where + ".reasoning_content");
  } else if (short_name != nullptr) {
    set(message, "reasoning_content", Json{require_string(short_name, where + ".reasoning")});
  }
}

void normalise_messages(Json& request) {
  Json* given = find_given(request, "messages");
  if (given == nullptr) refuse_request("no messages", "messages");
  Json::Array messages;
  bool has_system = false;
  std::string system;
  Json::Array& items = list(*given, "messages");
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string where = item_of("messages", i);
    require_object(items[i], where);
    const std::string role = require_string(items[i].find("role"), where + ".role");
    flatten_content(items[i], where);
    if (role == "system" || role == "developer") {
      const std::string& text = *items[i].find("content")->string();
      if (!system.empty() && !text.empty()) system += "\n\n";
      system += text;
      has_system = true;
      continue;
    }
    if (role == "assistant") {
      normalise_calls(items[i], where);
      normalise_reasoning(items[i], where);
    } else if (role != "user" && role != "tool") {
      refuse_request("role is none of system, developer, user, assistant and tool", where + ".role");
    }
    messages.push_back(std::move(items[i]));
  }
  if (has_system) {
    Json first{Json::Object{{"role", Json{std::string("system")}}, {"content", Json{std::move(system)}}}};
    messages.insert(messages.begin(), std::move(first));
  }
  given->value = std::move(messages);
}

void normalise_switches(Json& request) {
  if (Json* kwargs = find_given(request, "chat_template_kwargs")) {
    require_object(*kwargs, "chat_template_kwargs");
    Json moved = std::move(*kwargs);
    erase(request, "chat_template_kwargs");
    for (const std::string_view key : kSwitches) {
      if (const Json* value = find_given(moved, key)) set(request, key, *value);
    }
  }
  for (const std::string_view key : kSwitches) {
    const Json* value = find_given(request, key);
    if (value != nullptr && value->boolean() == nullptr)
      refuse_request("true or false is expected here", std::string(key));
  }
  const Json* effort = request.find("reasoning_effort");
  if (effort != nullptr && effort->is("none") && request.find("enable_thinking") == nullptr)
    set(request, "enable_thinking", Json{false});
}

void normalise_tools(Json& request) {
  Json* tools = find_given(request, "tools");
  if (tools == nullptr) return;
  Json::Array& items = list(*tools, "tools");
  for (std::size_t i = 0; i < items.size(); ++i) require_object(items[i], item_of("tools", i));
  const Json* choice = request.find("tool_choice");
  if (choice != nullptr && choice->is("none")) erase(request, "tools");
}

}  // namespace

Json normalise_chat(Json request) {
  require_object(request, "request");
  normalise_switches(request);
  normalise_tools(request);
  normalise_messages(request);
  return request;
}

}  // namespace aima::text
