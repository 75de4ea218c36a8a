/// What doctor found, and how it is printed.
#pragma once

#include <boost/json/object.hpp>
#include <iosfwd>
#include <string>
#include <vector>

namespace aima::doctor {

enum class Status {
  ok,
  warn,  ///< the engine runs, but not with everything
  fail,  ///< what was asked for cannot work
  skip,  ///< could not be looked at, for the reason in `actual`
};

struct Check {
  std::string name;
  Status status = Status::ok;
  std::string actual{};
  std::string expected{};
  std::string remedy{};           ///< what to do; empty when nothing needs doing
  boost::json::object details{};  ///< facts for programs
};

struct Report {
  std::vector<Check> checks;
  bool gpu_usable = false;

  /// True when no check failed.
  bool ok() const;
  /// Lines for people: status, name, what is; where it is not ok also what should be and the remedy.
  void print(std::ostream& out) const;
  /// aima/doctor/v1.
  void print_json(std::ostream& out) const;
};

}  // namespace aima::doctor
