#include "doctor/report.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <ostream>
#include <string_view>

#include "base/printable.h"
#include "text/utf8.h"

namespace aima::doctor {
namespace {

std::string_view name_of(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::warn:
      return "warn";
    case Status::fail:
      return "fail";
    case Status::skip:
      return "skip";
  }
  return "?";
}

std::string padded(std::string_view text, std::size_t width) {
  std::string out(text);
  out.resize(std::max(width, out.size()), ' ');
  return out;
}

}  // namespace

bool Report::ok() const {
  return std::ranges::none_of(checks, [](const Check& check) { return check.status == Status::fail; });
}

void Report::print(std::ostream& out) const {
  std::size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.name.size());
  const std::string indent(width + 8, ' ');
  for (const Check& check : checks) {
    out << padded(name_of(check.status), 6) << padded(check.name, width + 2) << base::printable(check.actual)
        << '\n';
    if (check.status == Status::ok || check.status == Status::skip) continue;
    if (!check.expected.empty()) out << indent << "expected: " << base::printable(check.expected) << '\n';
    if (!check.remedy.empty()) out << indent << "remedy: " << base::printable(check.remedy) << '\n';
  }
  out << "\nThe CPU can be used; the GPU "
      << (gpu_usable ? "is ready, but this version computes on the CPU only" : "cannot") << ".\n";
}

void Report::print_json(std::ostream& out) const {
  boost::json::array list;
  for (const Check& check : checks) {
    boost::json::object entry{{"name", check.name},     {"status", name_of(check.status)},
                              {"actual", check.actual}, {"expected", check.expected},
                              {"remedy", check.remedy}, {"details", check.details}};
    list.push_back(std::move(entry));
  }
  const boost::json::object report{{"schema", "aima/doctor/v1"},
                                   {"ok", ok()},
                                   {"devices", {{"cpu", true}, {"gpu", gpu_usable}}},
                                   {"checks", std::move(list)}};
  // Paths and names need not be UTF-8, JSON must be; outside of strings it is ASCII.
  std::string text;
  text::append_replacing(text, boost::json::serialize(report));
  out << text << '\n';
}

}  // namespace aima::doctor
