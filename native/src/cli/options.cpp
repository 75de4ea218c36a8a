#include "cli/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace aima::cli {
namespace {

std::string hint_of(const Command& command) {
  return "`aima-engine " + std::string(command.name) + " --help` lists the options";
}

const Option& find_option(const Command& command, std::string_view name) {
  const auto found = std::ranges::find(command.options, name, &Option::name);
  if (found != command.options.end()) return *found;
  std::vector<std::string_view> names;
  for (const Option& option : command.options) names.push_back(option.name);
  const std::string_view near = base::nearest(name, names);
  base::throw_usage({.what = "there is no option --" + std::string(name),
                     .hint = near.empty() ? hint_of(command) : "did you mean --" + std::string(near) + "?"});
}

}  // namespace

Arguments Arguments::parse(const Command& command, std::span<const std::string_view> words) {
  Arguments arguments;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string_view word = words[i];
    if (!word.starts_with("--") || word.size() == 2) {
      base::throw_usage(
          {.what = "unexpected argument `" + std::string(word) + "`", .hint = hint_of(command)});
    }
    word.remove_prefix(2);
    const std::size_t equals = word.find('=');
    const Option& option = find_option(command, word.substr(0, equals));
    const std::string shown = "--" + std::string(option.name);
    std::string value;
    if (option.value.empty()) {
      if (equals != std::string_view::npos) base::throw_usage({.what = shown + " takes no value"});
    } else if (equals != std::string_view::npos) {
      value = word.substr(equals + 1);
    } else {
      if (i + 1 == words.size())
        base::throw_usage({.what = shown + " needs a value: " + std::string(option.value)});
      value = words[++i];
    }
    if (!arguments.values_.emplace(option.name, std::move(value)).second) {
      base::throw_usage({.what = shown + " is given twice"});
    }
  }
  return arguments;
}

std::optional<std::string> Arguments::value(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

std::string Arguments::required(std::string_view name) const {
  const std::optional<std::string> given = value(name);
  if (!given) base::throw_usage({.what = "--" + std::string(name) + " is required"});
  return *given;
}

std::int64_t Arguments::integer(std::string_view name, std::int64_t otherwise, std::int64_t least,
                                std::int64_t most) const {
  const std::optional<std::string> given = value(name);
  if (!given) return otherwise;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(given->data(), given->data() + given->size(), number);
  if (error == std::errc() && end == given->data() + given->size() && number >= least && number <= most) {
    return number;
  }
  base::throw_usage({.what = "--" + std::string(name) + " cannot be `" + *given + "`",
                     .why = "a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
                            " is expected"});
}

double Arguments::number(std::string_view name, double otherwise) const {
  const std::optional<std::string> given = value(name);
  if (!given) return otherwise;
  double number = 0;
  const auto [end, error] = std::from_chars(given->data(), given->data() + given->size(), number);
  if (error == std::errc() && end == given->data() + given->size() && std::isfinite(number)) return number;
  base::throw_usage({.what = "--" + std::string(name) + " cannot be `" + *given + "`",
                     .why = "a number is expected, for example 0.7"});
}

std::string_view Arguments::choice(std::string_view name, std::span<const std::string_view> choices) const {
  const std::optional<std::string> given = value(name);
  if (!given) return choices.front();
  const auto found = std::ranges::find(choices, *given);
  if (found != choices.end()) return *found;
  std::string list;
  for (const std::string_view each : choices) list += (list.empty() ? "" : ", ") + std::string(each);
  base::throw_usage(
      {.what = "--" + std::string(name) + " cannot be `" + *given + "`", .why = "it is one of: " + list});
}

std::vector<std::int32_t> parse_ids(std::string_view text, std::string_view where) {
  std::vector<std::int32_t> ids;
  if (text.find_first_not_of(" ") == std::string_view::npos) return ids;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    std::string_view part = text.substr(start, comma - start);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    std::int32_t id = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), id);
    if (error != std::errc() || end != part.data() + part.size() || part.empty()) {
      base::throw_usage({.what = "`" + std::string(part) + "` is not a token id",
                         .where = std::string(where),
                         .why = "ids are whole numbers with commas between them, for example 9707,11,1879"});
    }
    ids.push_back(id);
    start = comma + 1;
  }
  return ids;
}

std::string help_of(const Command& command) {
  std::string text = "Usage: aima-engine " + std::string(command.name) + " " + std::string(command.usage) +
                     "\n\n" + std::string(command.summary) + "\n\nOptions:\n";
  std::vector<std::pair<std::string, std::string_view>> lines;
  for (const Option& o : command.options) {
    const std::string value = o.value.empty() ? "" : " " + std::string(o.value);
    lines.emplace_back("--" + std::string(o.name) + value, o.help);
  }
  lines.emplace_back("--help", "show this text");
  std::size_t width = 0;
  for (const auto& [name, help] : lines) width = std::max(width, name.size());
  for (const auto& [name, help] : lines) {
    text += "  " + name + std::string(width - name.size() + 2, ' ') + std::string(help) + "\n";
  }
  if (!command.notes.empty()) text += "\n" + std::string(command.notes) + "\n";
  return text;
}

}  // namespace aima::cli
