/// Command-line options: described once, parsed strictly, printed by `--help`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aima::cli {

struct Option {
  std::string_view name;   ///< without the dashes
  std::string_view value;  ///< placeholder of its value, for example "FILE"; empty: a switch
  std::string_view help;   ///< one line
};

/// Lists of options in a row: of a command and of what it shares with others.
template <std::size_t A, std::size_t B>
constexpr std::array<Option, A + B> joined(const std::array<Option, A>& a, const std::array<Option, B>& b) {
  std::array<Option, A + B> all;
  for (std::size_t i = 0; i < A; ++i) all[i] = a[i];
  for (std::size_t i = 0; i < B; ++i) all[A + i] = b[i];
  return all;
}

class Arguments;

struct Command {
  std::string_view name;
  std::string_view summary;  ///< one line
  std::string_view usage;    ///< what follows the name
  std::span<const Option> options;
  std::string_view notes;  ///< printed below the options; may be empty
  int (*run)(const Arguments&);
};

/// The options given, checked against a command. `--name value` and `--name=value` mean the same.
class Arguments {
 public:
  /// Throws a usage error for an unknown option (with the nearest known one), a missing or superfluous value,
  /// an option given twice, or a stray word.
  static Arguments parse(const Command& command, std::span<const std::string_view> words);

  bool has(std::string_view name) const { return values_.contains(name); }
  std::optional<std::string> value(std::string_view name) const;
  std::string required(std::string_view name) const;
  std::int64_t integer(std::string_view name, std::int64_t otherwise, std::int64_t least,
                       std::int64_t most) const;
  /// A finite number; its range is for the caller to check.
  double number(std::string_view name, double otherwise) const;
  /// One of `choices`; the first is the default.
  std::string_view choice(std::string_view name, std::span<const std::string_view> choices) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

/// "1,2,3" as integers. `where` names the option in errors.
std::vector<std::int32_t> parse_ids(std::string_view text, std::string_view where);

std::string help_of(const Command& command);

}  // namespace aima::cli
