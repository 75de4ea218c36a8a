#include "text/chat_json.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <clocale>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <system_error>

#include "base/error.h"

namespace aima::text {
namespace {

namespace bj = boost::json;
using ErrorCode = boost::system::error_code;

constexpr std::size_t kMaxIntegerDigits = 4300;  // CPython's sys.int_info.default_max_str_digits

/// Collapses repeated keys the way dict(pairs) does. Returns a repeated key, or nullptr when there was none;
/// sorting keeps an object of a million keys cheap.
const std::string* collapse_repeated_keys(Json::Object& members) {
  if (members.size() < 2) return nullptr;
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) -> const std::string& { return members[i].first; });
  std::vector<bool> dropped(members.size());
  std::optional<std::size_t> repeated;
  for (std::size_t first = 0, i = 1; i < order.size(); ++i) {
    if (members[order[i]].first != members[order[first]].first) {
      first = i;
      continue;
    }
    members[order[first]].second = std::move(members[order[i]].second);
    dropped[order[i]] = true;
    repeated = order[first];
  }
  if (!repeated) return nullptr;
  std::size_t kept = 0;
  std::size_t repeated_at = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (dropped[i]) continue;
    if (i == *repeated) repeated_at = kept;
    if (kept != i) members[kept] = std::move(members[i]);
    ++kept;
  }
  members.erase(members.begin() + static_cast<std::ptrdiff_t>(kept), members.end());
  return &members[repeated_at].first;
}

/// Boost.JSON's event handler: builds the tree on a stack of open values, so that text of numbers is not
/// lost.
class Builder {
 public:
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  Json take() { return std::move(root_); }
  const std::string& problem() const { return problem_; }

  bool on_document_begin(ErrorCode&) { return true; }
  bool on_document_end(ErrorCode&) { return true; }
  bool on_object_begin(ErrorCode& ec) { return open(Json{Json::Object{}}, ec); }
  bool on_array_begin(ErrorCode& ec) { return open(Json{Json::Array{}}, ec); }
  bool on_array_end(std::size_t, ErrorCode& ec) { return close(ec); }
  bool on_object_end(std::size_t, ErrorCode& ec) {
    const std::string* repeated = collapse_repeated_keys(std::get<Json::Object>(open_.back().value.value));
    if (repeated != nullptr && limits_.unique_keys) return fail("key `" + *repeated + "` is there twice", ec);
    return close(ec);
  }

  bool on_key_part(bj::string_view part, std::size_t, ErrorCode&) { return collect(part); }
  bool on_key(bj::string_view part, std::size_t, ErrorCode&) {
    collect(part);
    open_.back().key = std::exchange(text_, {});
    return true;
  }
  bool on_string_part(bj::string_view part, std::size_t, ErrorCode&) { return collect(part); }
  bool on_string(bj::string_view part, std::size_t, ErrorCode& ec) {
    collect(part);
    return add(Json{std::exchange(text_, {})}, ec);
  }

  bool on_number_part(bj::string_view part, ErrorCode&) { return collect(part); }
  bool on_int64(std::int64_t, bj::string_view part, ErrorCode& ec) { return number(part, ec); }
  bool on_uint64(std::uint64_t, bj::string_view part, ErrorCode& ec) { return number(part, ec); }
  bool on_double(double, bj::string_view part, ErrorCode& ec) { return number(part, ec); }
  bool on_bool(bool value, ErrorCode& ec) { return add(Json{value}, ec); }
  bool on_null(ErrorCode& ec) { return add(Json{}, ec); }
  bool on_comment_part(bj::string_view, ErrorCode&) { return true; }
  bool on_comment(bj::string_view, ErrorCode&) { return true; }

 private:
  struct Open {
    Json value;
    std::string key;  // of the member that is being read
  };

  bool collect(bj::string_view part) {
    text_.append(part.data(), part.size());
    return true;
  }

  bool fail(std::string problem, ErrorCode& ec) {
    problem_ = std::move(problem);
    ec = bj::error::exception;
    return false;
  }

  bool open(Json value, ErrorCode& ec) {
    if (++values_ > limits_.values)
      return fail("more than " + std::to_string(limits_.values) + " values", ec);
    open_.push_back({std::move(value), {}});
    return true;
  }

  bool close(ErrorCode& ec) {
    --values_;  // `add` counts it once more
    Json done = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(done), ec);
  }

  bool add(Json value, ErrorCode& ec) {
    if (++values_ > limits_.values)
      return fail("more than " + std::to_string(limits_.values) + " values", ec);
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (auto* array = std::get_if<Json::Array>(&open_.back().value.value)) {
      array->push_back(std::move(value));
    } else {
      std::get<Json::Object>(open_.back().value.value)
          .emplace_back(std::move(open_.back().key), std::move(value));
    }
    return true;
  }

  bool number(bj::string_view part, ErrorCode& ec) {
    collect(part);
    std::string literal = std::exchange(text_, {});
    if (literal.find_first_of(".eE") != std::string::npos) {
      std::optional<std::string> printed = python_float(literal);
      if (!printed) return fail("number beyond the range of a double", ec);
      return add(Json{JsonNumber{std::move(*printed)}}, ec);
    }
    if (literal.size() - (literal.front() == '-' ? 1 : 0) > kMaxIntegerDigits)
      return fail("integer of more than " + std::to_string(kMaxIntegerDigits) + " digits", ec);
    if (literal == "-0") literal = "0";
    return add(Json{JsonNumber{std::move(literal)}}, ec);
  }

  const JsonLimits& limits_;
  std::vector<Open> open_;
  std::string text_;
  std::string problem_;
  std::size_t values_ = 0;
  Json root_;
};

std::string place(std::string_view where, std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  const auto line = std::ranges::count(before, '\n') + 1;
  const std::size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return std::string(where) + ":" + std::to_string(line) + ":" + std::to_string(at - start + 1);
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  std::size_t copied = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out.append(text, copied, i - copied);
    copied = i + 1;
    static constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
    static constexpr std::string_view kLetter = "\"\\bfnrt";
    if (const std::size_t at = kShort.find(text[i]); at != std::string_view::npos) {
      out += '\\';
      out += kLetter[at];
    } else {
      static constexpr std::string_view kHex = "0123456789abcdef";
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  out.append(text, copied);
  out += '"';
}

}  // namespace

const Json* Json::find(std::string_view key) const {
  const Object* members = object();
  if (members == nullptr) return nullptr;
  const auto at = std::ranges::find(*members, key, &Member::first);
  return at == members->end() ? nullptr : &at->second;
}

bool Json::truthy() const {
  if (const auto* flag = boolean()) return *flag;
  if (const auto* figure = number())
    return figure->text != "0" && figure->text != "0.0" && figure->text != "-0.0";
  if (const auto* text = string()) return !text->empty();
  if (const auto* items = array()) return !items->empty();
  if (const auto* members = object()) return !members->empty();
  return false;
}

std::optional<std::string> python_float(const std::string& literal) {
  static const locale_t c_locale =
      newlocale(LC_ALL_MASK, "C", nullptr);  // a host program may have set another
  const double value = strtod_l(literal.c_str(), nullptr, c_locale);
  if (!std::isfinite(value)) return std::nullopt;
  char buffer[32];
  const auto end =
      std::to_chars(buffer, std::end(buffer), std::fabs(value), std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, static_cast<std::size_t>(end - buffer));  // d[.ddd]e(+|-)xx
  const std::size_t e = shortest.find('e');
  std::string digits(shortest.substr(0, 1));
  if (e > 1) digits += shortest.substr(2, e - 2);
  int exponent = 0;
  std::from_chars(shortest.data() + e + (shortest[e + 1] == '+' ? 2 : 1), end, exponent);
  std::string out = std::signbit(value) ? "-" : "";
  const auto size = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {  // CPython float_repr: exponents as "1e-05", "1.5e+16"
    out += digits.substr(0, 1);
    if (size > 1) out += "." + digits.substr(1);
    return out.append(shortest.substr(e));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (size <= exponent + 1)
    return out + digits + std::string(static_cast<std::size_t>(exponent + 1 - size), '0') + ".0";
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

Json parse_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    base::throw_usage({.what = "JSON text of " + std::to_string(text.size()) + " bytes is too long",
                       .where = std::string(where),
                       .why = "at most " + std::to_string(limits.bytes) + " bytes are read"});
  }
  bj::parse_options options;
  options.max_depth = limits.depth;
  options.numbers = bj::number_precision::none;
  bj::basic_parser<Builder> parser(options, limits);
  ErrorCode ec;
  const std::size_t read = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && text.find_first_not_of(" \t\r\n", read) != std::string_view::npos) ec = bj::error::extra_data;
  if (!ec) return parser.handler().take();
  std::string why = parser.handler().problem();
  if (why.empty() && ec == bj::error::too_deep) why = "nested deeper than " + std::to_string(limits.depth);
  if (why.empty()) why = ec.message();
  base::throw_usage(
      {.what = "not acceptable as JSON", .where = place(where, text, read), .why = std::move(why)});
}

void append_json(std::string& out, const Json& value) {
  if (const auto* flag = value.boolean()) {
    out += *flag ? "true" : "false";
  } else if (const auto* figure = value.number()) {
    out += figure->text;
  } else if (const auto* text = value.string()) {
    append_json_string(out, *text);
  } else if (const auto* items = value.array()) {
    out += '[';
    for (std::string_view gap; const Json& item : *items) {
      out += std::exchange(gap, ", ");
      append_json(out, item);
    }
    out += ']';
  } else if (const auto* members = value.object()) {
    out += '{';
    for (std::string_view gap; const auto& [key, item] : *members) {
      out += std::exchange(gap, ", ");
      append_json_string(out, key);
      out += ": ";
      append_json(out, item);
    }
    out += '}';
  } else {
    out += "null";
  }
}

std::string dump_json(const Json& value) {
  std::string out;
  append_json(out, value);
  return out;
}

}  // namespace aima::text
