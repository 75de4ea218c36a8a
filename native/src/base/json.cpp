#include "base/json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <set>
#include <vector>

#include "base/error.h"

namespace aima::base::json {
namespace {

namespace bj = boost::json;
using ErrorCode = boost::system::error_code;

constexpr std::size_t max_depth = 64;

/// Builds the value, and remembers the keys of every object that is still open.
class Handler {
 public:
  static constexpr std::size_t max_object_size = 1U << 24;
  static constexpr std::size_t max_array_size = 1U << 28;
  static constexpr std::size_t max_key_size = 1U << 16;
  static constexpr std::size_t max_string_size = 1U << 26;

  Handler() { stack_.reset({}); }

  bj::value release() { return stack_.release(); }
  const std::string& duplicate() const { return duplicate_; }

  bool on_document_begin(ErrorCode&) { return true; }
  bool on_document_end(ErrorCode&) { return true; }
  bool on_object_begin(ErrorCode&) {
    keys_.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t count, ErrorCode&) {
    keys_.pop_back();
    stack_.push_object(count);
    return true;
  }
  bool on_array_begin(ErrorCode&) { return true; }
  bool on_array_end(std::size_t count, ErrorCode&) {
    stack_.push_array(count);
    return true;
  }
  bool on_key_part(bj::string_view part, std::size_t, ErrorCode&) {
    key_.append(part);
    stack_.push_chars(part);
    return true;
  }
  bool on_key(bj::string_view part, std::size_t, ErrorCode& error) {
    key_.append(part);
    stack_.push_key(part);
    if (!keys_.back().insert(key_).second) {
      duplicate_ = key_;
      error = bj::make_error_code(bj::error::syntax);
      return false;
    }
    key_.clear();
    return true;
  }
  bool on_string_part(bj::string_view part, std::size_t, ErrorCode&) {
    stack_.push_chars(part);
    return true;
  }
  bool on_string(bj::string_view part, std::size_t, ErrorCode&) {
    stack_.push_string(part);
    return true;
  }
  bool on_number_part(bj::string_view, ErrorCode&) { return true; }
  bool on_int64(std::int64_t value, bj::string_view, ErrorCode&) {
    stack_.push_int64(value);
    return true;
  }
  bool on_uint64(std::uint64_t value, bj::string_view, ErrorCode&) {
    stack_.push_uint64(value);
    return true;
  }
  bool on_double(double value, bj::string_view, ErrorCode&) {
    stack_.push_double(value);
    return true;
  }
  bool on_bool(bool value, ErrorCode&) {
    stack_.push_bool(value);
    return true;
  }
  bool on_null(ErrorCode&) {
    stack_.push_null();
    return true;
  }
  bool on_comment_part(bj::string_view, ErrorCode&) { return true; }
  bool on_comment(bj::string_view, ErrorCode&) { return true; }

 private:
  bj::value_stack stack_;
  std::vector<std::set<std::string, std::less<>>> keys_;
  std::string key_;
  std::string duplicate_;
};

/// "file:line:column" of a byte offset; columns count bytes from 1.
std::string place(std::string_view text, std::size_t offset, std::string_view where) {
  const std::string_view before = text.substr(0, offset);
  std::size_t line = 1;
  for (const char c : before) line += c == '\n' ? 1 : 0;
  const std::size_t start = before.rfind('\n');
  const std::size_t column = start == std::string_view::npos ? before.size() + 1 : before.size() - start;
  return std::string(where) + ":" + std::to_string(line) + ":" + std::to_string(column);
}

}  // namespace

bj::value parse(std::string_view text, std::string_view where) {
  bj::parse_options options;
  options.max_depth = max_depth;
  bj::basic_parser<Handler> parser(options);
  ErrorCode error;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), error);
  if (!parser.handler().duplicate().empty()) {
    throw_usage({.what = "the key `" + parser.handler().duplicate() + "` appears twice in one object",
                 .where = place(text, used, where)});
  }
  if (error)
    throw_usage({.what = "not valid JSON", .where = place(text, used, where), .why = error.message()});
  const std::size_t rest = text.find_first_not_of(" \t\r\n", used);
  if (rest != std::string_view::npos) {
    throw_usage({.what = "text after the end of the JSON value", .where = place(text, rest, where)});
  }
  return parser.handler().release();
}

Object::Object(const bj::value& value, std::string where)
    : object_(value.if_object()), where_(std::move(where)) {
  if (object_ == nullptr) throw_usage({.what = "a JSON object is expected here", .where = where_});
}

std::string Object::path_to(std::string_view key) const {
  const bool nested = where_.find(": ") != std::string::npos;
  return where_ + (nested ? "." : ": ") + std::string(key);
}

void Object::refuse(std::string_view key, std::string what, std::string why) const {
  throw_usage({.what = std::move(what), .where = path_to(key), .why = std::move(why)});
}

bool Object::has(std::string_view key) const {
  const bj::value* value = object_->if_contains(key);
  return value != nullptr && !value->is_null();
}

const bj::value& Object::at(std::string_view key) const {
  if (!has(key)) refuse(key, "this field is required");
  return object_->at(key);
}

Object Object::object(std::string_view key) const { return {at(key), path_to(key)}; }

const bj::array& Object::array(std::string_view key) const {
  const bj::array* array = at(key).if_array();
  if (array == nullptr) refuse(key, "a list is expected here");
  return *array;
}

std::string_view Object::string(std::string_view key) const {
  const bj::string* text = at(key).if_string();
  if (text == nullptr) refuse(key, "a string is expected here");
  return *text;
}

std::int64_t Object::integer(std::string_view key) const {
  const bj::value& value = at(key);
  if (value.is_int64()) return value.get_int64();
  refuse(key, "an integer is expected here");
}

double Object::number(std::string_view key) const {
  const bj::value& value = at(key);
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  if (value.is_double()) return value.get_double();
  refuse(key, "a number is expected here");
}

bool Object::boolean(std::string_view key) const {
  const bj::value& value = at(key);
  if (!value.is_bool()) refuse(key, "true or false is expected here");
  return value.get_bool();
}

std::string_view Object::string_or(std::string_view key, std::string_view otherwise) const {
  return has(key) ? string(key) : otherwise;
}

std::int64_t Object::integer_or(std::string_view key, std::int64_t otherwise) const {
  return has(key) ? integer(key) : otherwise;
}

double Object::number_or(std::string_view key, double otherwise) const {
  return has(key) ? number(key) : otherwise;
}

bool Object::boolean_or(std::string_view key, bool otherwise) const {
  return has(key) ? boolean(key) : otherwise;
}

}  // namespace aima::base::json
