/// Which processors, and how much of them, this process may use.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <string>

#include "base/cpu.h"

namespace aima::base {
namespace {

namespace fs = std::filesystem;

/// The hardware threads of processor `number`'s core, as the kernel writes them; its own number when it says
/// nothing.
std::string core_of(int number) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(number) +
                     "/topology/thread_siblings_list");
  std::string siblings;
  return std::getline(file, siblings) ? siblings : std::to_string(number);
}

/// `cpu.max` of one group: "QUOTA PERIOD" or "max PERIOD".
double processors_of(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  double quota = 0;
  double period = 0;
  if (!(file >> quota >> period) || period <= 0) return INFINITY;
  return quota / period;
}

/// The process's group in the unified hierarchy: the line "0::/PATH".
fs::path group_path(const fs::path& cgroup_file) {
  std::ifstream file(cgroup_file);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::/")) return line.substr(4);
  }
  return {};
}

}  // namespace

std::vector<int> usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {};
  std::vector<int> firsts;
  std::vector<int> siblings;
  std::set<std::string> cores;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (!CPU_ISSET(number, &set)) continue;
    (cores.insert(core_of(number)).second ? firsts : siblings).push_back(number);
  }
  firsts.insert(firsts.end(), siblings.begin(), siblings.end());
  return firsts;
}

int cpu_quota(const fs::path& cgroup_file, const fs::path& root) {
  double least = INFINITY;
  fs::path group = group_path(cgroup_file);
  for (;; group = group.parent_path()) {
    least = std::min(least, processors_of(root / group));
    if (group.empty()) break;
  }
  return std::isfinite(least) ? std::max(1, static_cast<int>(std::ceil(least))) : 0;
}

int usable_cores() {
  std::set<std::string> cores;
  for (const int number : usable_processors()) cores.insert(core_of(number));
  const int count = std::max(1, static_cast<int>(cores.size()));
  const int quota = cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup");
  return quota > 0 ? std::min(count, quota) : count;
}

}  // namespace aima::base
