/// JSON as input files need it: strict, bounded in depth, no duplicate keys, and errors that say where.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aima::base::json {

/// Parses `text`; `where` names its source in errors (usage, `where:line:column`). A key that appears twice
/// in one object is an error: readers disagree on which one counts. At most 64 levels deep.
boost::json::value parse(std::string_view text, std::string_view where);

/// One object of a document together with its place, so that every wrong field is reported as `file: a.b.c`.
class Object {
 public:
  /// Throws when `value` is not an object. `value` must outlive this.
  Object(const boost::json::value& value, std::string where);

  bool has(std::string_view key) const;                      ///< present and not null
  const boost::json::value& at(std::string_view key) const;  ///< throws when absent or null
  Object object(std::string_view key) const;
  const boost::json::array& array(std::string_view key) const;
  std::string_view string(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  bool boolean(std::string_view key) const;

  std::string_view string_or(std::string_view key, std::string_view otherwise) const;
  std::int64_t integer_or(std::string_view key, std::int64_t otherwise) const;
  double number_or(std::string_view key, double otherwise) const;
  bool boolean_or(std::string_view key, bool otherwise) const;

  /// Throws a usage error about the field `key`.
  [[noreturn]] void refuse(std::string_view key, std::string what, std::string why = {}) const;

  const boost::json::object& raw() const { return *object_; }
  const std::string& where() const { return where_; }

 private:
  std::string path_to(std::string_view key) const;

  const boost::json::object* object_;
  std::string where_;
};

}  // namespace aima::base::json
