// JSON as Python's json module reads and prints it, which is what the model's chat template was trained on:
// key order, integers of any size, the shortest float that reads back, ", " and ": " between items, non-ASCII
// text as it is.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace aima::text {

/// A JSON number, kept as the text that Python prints for it ("10", "0.1", "1e-05", "1e+16", "-0.0").
struct JsonNumber {
  std::string text;
};

/// One JSON value. A repeated key keeps its first place and its last value, as a Python dict does.
struct Json {
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  std::variant<std::nullptr_t, bool, JsonNumber, std::string, Array, Object> value = nullptr;

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value); }
  template <std::same_as<bool> Bool>  // otherwise is("text") would mean is(true)
  bool is(Bool expected) const {
    return boolean() != nullptr && *boolean() == expected;
  }
  bool is(std::string_view expected) const { return string() != nullptr && *string() == expected; }
  const bool* boolean() const { return std::get_if<bool>(&value); }
  const JsonNumber* number() const { return std::get_if<JsonNumber>(&value); }
  const std::string* string() const { return std::get_if<std::string>(&value); }
  const Array* array() const { return std::get_if<Array>(&value); }
  const Object* object() const { return std::get_if<Object>(&value); }

  /// The value of `key`; nullptr when it is missing or this is no object.
  const Json* find(std::string_view key) const;

  /// Python's bool(): false for null, false, zero and everything empty.
  bool truthy() const;
};

/// What a text from outside may ask of us. A value costs at most about 60 bytes beside its text.
struct JsonLimits {
  std::size_t bytes = std::size_t{64} << 20;
  std::size_t depth = 256;  ///< nested arrays and objects
  std::size_t values = std::size_t{1} << 20;
  bool unique_keys = false;  ///< refuse an object that has a key twice
};

/// Reads one JSON text (RFC 8259, UTF-8). Stricter than Python's json.loads: no NaN or Infinity, no number
/// beyond a double's range, no lone surrogate; integers of more than 4300 digits are refused by both. Throws
/// base::Error (exit code 2) at `where:line:column`, columns counted in bytes.
Json parse_json(std::string_view text, std::string_view where, const JsonLimits& limits = {});

/// Appends json.dumps(value, ensure_ascii=False).
void append_json(std::string& out, const Json& value);

/// The same as a new string.
std::string dump_json(const Json& value);

/// Python's repr of the double that a JSON number with fraction or exponent stands for; empty beyond its
/// range.
std::optional<std::string> python_float(const std::string& literal);

}  // namespace aima::text
