#include "base/memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string_view>

namespace aima::base {
namespace {

namespace fs = std::filesystem;

/// Proc and sys files have no size: read until they end. Empty when there is none.
std::string read_pseudo_file(const fs::path& path) {
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  std::array<char, 4096> part;
  for (ssize_t got = 0; (got = ::read(fd, part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(got));
  ::close(fd);
  return text;
}

std::optional<std::uint64_t> number_at(std::string_view text) {
  const std::size_t digit = text.find_first_of("0123456789");
  if (digit == std::string_view::npos) return std::nullopt;
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data() + digit, end, value).ec != std::errc()) return std::nullopt;
  return value;
}

/// Calls `use` with each line.
template <typename Use>
void for_lines(std::string_view text, Use use) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    use(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// The number behind `name` at the start of a line, 0 where there is none.
std::uint64_t field(std::string_view text, std::string_view name) {
  std::uint64_t value = 0;
  for_lines(text, [&](std::string_view line) {
    if (line.starts_with(name)) value = number_at(line.substr(name.size())).value_or(0);
  });
  return value;
}

std::uint64_t kilobytes(std::string_view text, std::string_view name) { return field(text, name) * 1024; }

std::uint64_t less(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

/// Names of one version's files.
struct GroupFiles {
  const char* limit;
  const char* usage;
  std::string_view inactive;
  std::string_view active;
};

constexpr GroupFiles version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ",
                                  "total_active_file "};
constexpr GroupFiles version_2 = {"memory.max", "memory.current", "inactive_file ", "active_file "};

/// Above this, a limit of version 1 means that there is none.
constexpr std::uint64_t no_limit = std::uint64_t{1} << 60;

/// The group `path` below `mount` and every one around it. Inside a container the path may be one of the
/// host's: what is not there is left out, the mount itself comes last.
void add_groups(std::vector<MemoryLimit>& limits, const fs::path& mount, fs::path path,
                const GroupFiles& files) {
  for (;; path = path.parent_path()) {
    const fs::path folder = path.empty() ? mount : mount / path;
    const std::optional<std::uint64_t> limit = number_at(read_pseudo_file(folder / files.limit));
    if (limit && *limit < no_limit) {
      const std::string statistics = read_pseudo_file(folder / "memory.stat");
      const std::uint64_t used = number_at(read_pseudo_file(folder / files.usage)).value_or(0);
      const std::uint64_t cache = field(statistics, files.inactive) + field(statistics, files.active);
      limits.push_back({.source = std::string("cgroup ") + files.limit,
                        .available = less(*limit, less(used, cache)),
                        .counts_mapped = false});
    }
    if (path.empty()) return;
  }
}

void add_control_groups(std::vector<MemoryLimit>& limits, const fs::path& root) {
  const std::string groups = read_pseudo_file(root / "proc/self/cgroup");
  for_lines(groups, [&](std::string_view line) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) return;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const fs::path path = fs::path(line.substr(second + 1)).relative_path();
    if (controllers.empty()) add_groups(limits, root / "sys/fs/cgroup", path, version_2);
    if (controllers == "memory") add_groups(limits, root / "sys/fs/cgroup/memory", path, version_1);
  });
}

}  // namespace

ProcessMemory process_memory(const fs::path& root) {
  const std::string status = read_pseudo_file(root / "proc/self/status");
  return {.resident_peak = kilobytes(status, "VmHWM:"),
          .anonymous = kilobytes(status, "RssAnon:"),
          .code = kilobytes(status, "VmExe:") + kilobytes(status, "VmLib:"),
          .address_space = kilobytes(status, "VmSize:")};
}

std::vector<MemoryLimit> memory_limits(const fs::path& root) {
  std::vector<MemoryLimit> limits;
  const std::string meminfo = read_pseudo_file(root / "proc/meminfo");
  if (meminfo.find("MemAvailable:") != std::string::npos) {
    limits.push_back(
        {.source = "MemAvailable", .available = kilobytes(meminfo, "MemAvailable:"), .counts_mapped = false});
  }
  add_control_groups(limits, root);
  rlimit space = {};
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    limits.push_back({.source = "RLIMIT_AS",
                      .available = less(space.rlim_cur, process_memory(root).address_space),
                      .counts_mapped = true});
  }
  return limits;
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> units = {"bytes", "KB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text.data();
}

}  // namespace aima::base
