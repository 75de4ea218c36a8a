#include "doctor/system.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>
#include <tuple>

#include "text/utf8.h"

namespace aima::doctor {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kTextLimit = 64 << 10;

/// "renderD128" -> ("renderD", 128): the order in which people count.
std::tuple<std::string, std::uint64_t> by_number(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  std::uint64_t number = 0;
  std::from_chars(name.data() + digits, name.data() + name.size(), number);
  return {name.substr(0, digits), number};
}

std::string signal_text(int signal) {
  const char* const text = ::strsignal(signal);  // NOLINT(concurrency-mt-unsafe): doctor has one thread
  return text == nullptr ? std::to_string(signal) : text;
}

[[noreturn]] void child_main(const std::function<std::string()>& work, int pipe) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A crash shall end this process and nothing else: no handler of ours, no core file.
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTERM, SIGINT})
    ::signal(signal, SIG_DFL);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  int code = 0;
  try {
    const std::string answer = work();
    for (std::size_t done = 0; done < answer.size();) {
      const ssize_t wrote = ::write(pipe, answer.data() + done, answer.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) ::_exit(1);
      done += static_cast<std::size_t>(wrote);
    }
  } catch (...) {
    code = 1;
  }
  ::_exit(code);
}

/// Reads until the other side closes; false when `deadline` came first.
bool read_all(int pipe, std::string& out, Clock::time_point deadline) {
  std::array<char, 4096> buffer;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{pipe, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::max<long long>(left, 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return false;
    const ssize_t got = ::read(pipe, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    out.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

std::optional<std::string> System::text(const fs::path& path) const {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(kTextLimit, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return std::nullopt;
  text.resize(static_cast<std::size_t>(file.gcount()));
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

std::optional<std::uint64_t> System::number(const fs::path& path) const {
  const std::optional<std::string> text = this->text(path);
  if (!text) return std::nullopt;
  const bool hex = text->starts_with("0x");
  std::uint64_t value = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data() + (hex ? 2 : 0), end, value, hex ? 16 : 10);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::vector<fs::path> System::entries(const fs::path& folder, std::string_view prefix) const {
  std::vector<fs::path> found;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->path().filename().string().starts_with(prefix)) found.push_back(entry->path());
  }
  std::ranges::sort(found, {}, by_number);
  return found;
}

std::string System::group_name(std::uint32_t gid) const {
  std::ifstream file(at("/etc/group"));
  const std::string field = ":" + std::to_string(gid) + ":";
  for (std::string line; std::getline(file, line);) {
    const std::size_t name = line.find(':');
    const std::size_t second = name == std::string::npos ? name : line.find(':', name + 1);
    if (second != std::string::npos && line.compare(second, field.size(), field) == 0)
      return line.substr(0, name);
  }
  return std::to_string(gid);
}

int open_error(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return errno;
  ::close(fd);
  return 0;
}

Outcome run_apart(const std::function<std::string()>& work, std::chrono::milliseconds limit) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {.trouble = "no pipe: " + error_text(errno)};
  const pid_t child = ::fork();
  if (child == 0) child_main(work, ends[1]);
  ::close(ends[1]);
  Outcome outcome;
  std::string answer;
  if (child < 0) {
    outcome.trouble = "no process: " + error_text(errno);
  } else {
    const bool finished = read_all(ends[0], answer, Clock::now() + limit);
    if (!finished) ::kill(child, SIGKILL);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!finished) {
      outcome.trouble = "no answer within " + std::to_string(limit.count() / 1000) + " s";
    } else if (WIFSIGNALED(status)) {
      outcome.trouble = "the process died: " + signal_text(WTERMSIG(status));
    } else if (WEXITSTATUS(status) != 0) {
      outcome.trouble = "the process stopped with code " + std::to_string(WEXITSTATUS(status));
    } else {
      outcome.answer = std::move(answer);
    }
  }
  ::close(ends[0]);
  return outcome;
}

std::optional<std::string> variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::string load_error() {
  const char* const text = ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps it for each thread
  return text == nullptr ? "unknown" : text;
}

void* open_library(const fs::path& library) {
  std::error_code ignored;
  fs::path name = fs::absolute(library, ignored);
  if (name.native().find('$') != std::string::npos) {
    // An open descriptor stands for the folder, or for the file where its own name has a `$`.
    const bool whole = name.filename().native().find('$') != std::string::npos;
    const fs::path opened = whole ? name : name.parent_path();
    const int fd = ::open(opened.c_str(), O_PATH | O_CLOEXEC);
    if (fd >= 0) {
      const fs::path link = "/proc/self/fd/" + std::to_string(fd);
      name = whole ? link : link / name.filename();
    }
  }
  return ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
}

boost::json::object parse_answer(std::string_view answer) {
  std::string text;
  text::append_replacing(text, answer);
  return boost::json::parse(text).as_object();
}

std::string error_text(int error) { return std::generic_category().message(error); }

std::string size_text(std::uint64_t bytes) {
  std::array<char, 32> text;
  const bool small = bytes < 1 << 30;
  std::snprintf(text.data(), text.size(), small ? "%.1f MiB" : "%.1f GiB",
                static_cast<double>(bytes) / (small ? 1 << 20 : 1 << 30));
  return text.data();
}

}  // namespace aima::doctor
