/// The one error family of the native code, printed the same way as aimabuild's.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace aima::base {

/// Exit codes of every command.
enum class Exit : int {
  done = 0,
  failed = 1,        ///< the work failed
  usage = 2,         ///< wrong usage, or an input file that cannot be accepted as it is
  check_failed = 3,  ///< it ran, and a check did not hold
};

/// What went wrong, where (a file, `file:line:column`, an option), why, and what to do about it. Only `what`
/// is always there. Thrown inside the engine, never across a C edge; the command line prints it and exits
/// with `exit`.
struct ErrorText {
  std::string what;  ///< one sentence without a final period
  std::string where = {};
  std::string why = {};
  std::string hint = {};
};

class Error : public std::runtime_error {
 public:
  explicit Error(ErrorText text, Exit exit = Exit::failed);

  const ErrorText& text() const noexcept { return text_; }
  Exit exit() const noexcept { return exit_; }

 private:
  ErrorText text_;
  Exit exit_;
};

/// Wrong usage or an unacceptable input file: exit code 2.
[[noreturn]] void throw_usage(ErrorText text);

/// A failed system call: `what`, on `where`, because of `errno_value`'s text. Exit code 1.
[[noreturn]] void throw_system(std::string what, std::string where, int errno_value);

/// The nearest of `known` to `word` when it is close enough to be a misspelling, otherwise empty.
template <typename Range>
std::string_view nearest(std::string_view word, const Range& known);

/// Edit distance (insert, delete, replace, swap of neighbours), for `nearest`.
std::size_t edit_distance(std::string_view a, std::string_view b);

template <typename Range>
std::string_view nearest(std::string_view word, const Range& known) {
  std::string_view best;
  std::size_t best_distance = word.size() / 3 + 2;
  for (const auto& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace aima::base
