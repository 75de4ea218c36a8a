/// The host's files as doctor reads them, under a root that tests replace; and work that may kill its
/// process.
#pragma once

#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aima::doctor {

class System {
 public:
  explicit System(std::filesystem::path root) : root_(std::move(root)) {}

  std::filesystem::path at(std::string_view absolute) const { return root_ / absolute.substr(1); }

  /// A small file's text without trailing white space; nothing when it cannot be read.
  std::optional<std::string> text(const std::filesystem::path& path) const;

  /// A file that holds one number, in decimal or 0x hexadecimal.
  std::optional<std::uint64_t> number(const std::filesystem::path& path) const;

  /// Entries of a folder whose names begin with `prefix`, sorted (numbers by value); none when it is missing.
  std::vector<std::filesystem::path> entries(const std::filesystem::path& folder,
                                             std::string_view prefix) const;

  /// Name of a group in /etc/group, or its number as text.
  std::string group_name(std::uint32_t gid) const;

 private:
  std::filesystem::path root_;
};

/// 0 when `path` opens for reading and writing, else errno.
int open_error(const std::filesystem::path& path);

/// How a piece of work in a process of its own ended.
struct Outcome {
  std::optional<std::string> answer{};  ///< what it returned
  std::string trouble{};                ///< why there is no answer
};

/// Runs `work` in a child process, so that a crash or a hang of what it loads is an answer too. Call it while
/// this process has one thread.
Outcome run_apart(const std::function<std::string()>& work, std::chrono::milliseconds limit);

/// An environment variable's value; nothing when it is not set.
std::optional<std::string> variable(const char* name);

/// Why the last dlopen or dlsym of this thread failed.
std::string load_error();

/// dlopen for now, of that very file: a name without a slash is not searched for, and `$` in the path means
/// nothing (the dynamic loader would expand $ORIGIN and $LIB). Null, then load_error says why.
void* open_library(const std::filesystem::path& library);

/// What a child answered, as JSON; what is not UTF-8 in it (names of files) is replaced.
boost::json::object parse_answer(std::string_view answer);

/// The text of an errno value.
std::string error_text(int error);

/// "12.3 GiB", or "8.0 MiB" below one.
std::string size_text(std::uint64_t bytes);

}  // namespace aima::doctor
