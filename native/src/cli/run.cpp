#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "base/build_info.h"
#include "base/error.h"
#include "cli/commands.h"

namespace aima::cli {
namespace {

using base::Exit;

constexpr std::array all_commands = {&generate_command,
                                     &weights_probe_command,
                                     &tokenizer_probe_command,
                                     &chat_template_probe_command,
                                     &resident_session_probe_command,
                                     &doctor_command};

std::string overview() {
  std::string text =
      "Usage: aima-engine COMMAND [OPTIONS]\n\nInference of Qwen3.6-35B-A3B from a Hugging Face model "
      "folder.\n\n"
      "Commands:\n";
  for (const Command* command : all_commands) {
    text += "  " + std::string(command->name) + std::string(24 - command->name.size(), ' ') +
            std::string(command->summary) + "\n";
  }
  text +=
      "\nOptions:\n"
      "  --version        show the version\n"
      "  --build-info     show what this binary was built from, as JSON\n"
      "  --verify-bundle  compare every file of the bundle with its list (bin/aima-engine alone)\n"
      "  --help, -h       show this text, or a command's options\n\n"
      "Exit codes: 0 done, 1 the work failed, 2 wrong usage or input file, 3 a check did not hold\n";
  return text;
}

const Command& find_command(std::string_view name) {
  std::array<std::string_view, all_commands.size() + 4> names{"--version", "--build-info", "--verify-bundle",
                                                              "--help"};
  for (std::size_t i = 0; i < all_commands.size(); ++i) {
    names[i + 4] = all_commands[i]->name;
    if (name == all_commands[i]->name) return *all_commands[i];
  }
  const std::string_view near = base::nearest(name, names);
  base::throw_usage({.what = "there is no command `" + std::string(name) + "`",
                     .hint = near.empty() ? "`aima-engine --help` lists the commands"
                                          : "did you mean `aima-engine " + std::string(near) + "`?"});
}

bool is_help(std::string_view word) { return word == "--help" || word == "-h"; }

int dispatch(std::span<const std::string_view> words) {
  if (words.empty())
    base::throw_usage({.what = "no command is given", .hint = "`aima-engine --help` lists them"});
  const std::string_view first = words.front();
  const std::span<const std::string_view> rest = words.subspan(1);
  if (is_help(first)) {
    write_out(overview());
  } else if (first == "--version") {
    write_out("aima-engine " + std::string(base::build_info().version) + "\n");
  } else if (first == "--verify-bundle") {
    base::throw_usage({.what = "--verify-bundle is not the engine's own, and must stand alone",
                       .hint = "run bin/aima-engine --verify-bundle in the bundle"});
  } else if (first == "--build-info") {
    print_build_info();
  } else {
    const Command& command = find_command(first);
    for (const std::string_view word : rest) {
      if (!is_help(word)) continue;
      write_out(help_of(command));
      return 0;
    }
    return command.run(Arguments::parse(command, rest));
  }
  return 0;
}

int report(const char* text, Exit exit) {
  std::fprintf(stderr, "error: %s\n", text);
  return static_cast<int>(exit);
}

}  // namespace

void write_out(std::string_view text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) base::throw_system("the output cannot be written", "stdout", errno);
}

int run(std::span<const std::string_view> words) {
  try {
    return dispatch(words);
  } catch (const base::Error& error) {
    return report(error.what(), error.exit());
  } catch (const std::bad_alloc&) {
    return report("out of memory", Exit::failed);
  } catch (const std::exception& error) {
    return report(error.what(), Exit::failed);
  }
}

}  // namespace aima::cli
