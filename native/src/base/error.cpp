#include "base/error.h"

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

namespace aima::base {
namespace {

std::string render(const ErrorText& text) {
  std::string out = text.where.empty() ? text.what : text.where + ": " + text.what;
  if (!text.why.empty()) out += "\n  why: " + text.why;
  if (!text.hint.empty()) out += "\n  hint: " + text.hint;
  return out;
}

}  // namespace

Error::Error(ErrorText text, Exit exit)
    : std::runtime_error(render(text)), text_(std::move(text)), exit_(exit) {}

void throw_usage(ErrorText text) { throw Error(std::move(text), Exit::usage); }

void throw_system(std::string what, std::string where, int errno_value) {
  throw Error({.what = std::move(what),
               .where = std::move(where),
               .why = std::generic_category().message(errno_value)});
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace aima::base
