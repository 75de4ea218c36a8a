#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <boost/json/array.hpp>
#include <cerrno>
#include <cstdlib>
#include <sstream>

#include "base/cpu.h"
#include "device/cpu/tables.h"
#include "doctor/checks.h"

namespace aima::doctor {
namespace {

/// A "Name:  123 kB" line of /proc/meminfo, in bytes.
std::uint64_t meminfo(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + ":"))
      return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10) * 1024;
  }
  return 0;
}

std::string limit_text(rlim_t value, bool bytes) {
  if (value == RLIM_INFINITY) return "unlimited";
  return bytes ? size_text(value) : std::to_string(value);
}

}  // namespace

Check check_bundle(const Context& context) {
  Check check{.name = "bundle", .expected = "started through bin/aima-engine of an extracted bundle"};
  check.details["image"] = context.bundle.image.string();
  check.details["root"] = nullptr;
  if (!context.bundle.root) {
    check.status = Status::skip;
    check.actual = context.bundle.note;
    return check;
  }
  check.details["root"] = context.bundle.root->string();
  check.actual = context.bundle.root->string();
  if (!context.bundle.note.empty()) {
    check.status = Status::warn;
    check.actual += ", " + context.bundle.note;
    check.remedy = "run " + (*context.bundle.root / "bin/aima-engine").string();
  }
  return check;
}

Check check_cpu() {
  boost::json::array isa;
  std::string names;
  for (const device::cpu::Isa* table : device::cpu::usable_isas()) {
    isa.push_back(table->name);
    names += (names.empty() ? "" : " ") + std::string(table->name);
  }
  const int cores = base::usable_cores();
  Check check{.name = "cpu", .expected = "x86-64; AVX2 or better for speed"};
  check.actual =
      base::cpu_name() + ", " + std::to_string(cores) + (cores == 1 ? " core, " : " cores, ") + names;
  check.details = {{"model", base::cpu_name()},
                   {"cores", cores},
                   {"processors", base::usable_processors().size()},
                   {"isa", std::move(isa)}};
  return check;
}

Check check_memory(const Context& context) {
  Check check{.name = "memory"};
  check.expected = size_text(kModelBytes) + " for Qwen3.6-35B-A3B in bf16; small models need less";
  const std::string text = context.system.text(context.system.at("/proc/meminfo")).value_or("");
  const std::uint64_t total = meminfo(text, "MemTotal"), available = meminfo(text, "MemAvailable");
  if (total == 0) {
    check.status = Status::skip;
    check.actual = "/proc/meminfo does not say";
    return check;
  }
  check.actual = size_text(total) + ", " + size_text(available) + " available";
  check.details = {{"total_bytes", total}, {"available_bytes", available}};
  if (total < kModelBytes) {
    check.status = Status::warn;
    check.remedy = "use a machine with more memory for the full model";
  }
  return check;
}

Check check_limits() {
  rlimit files{}, locked{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  Check check{.name = "limits", .expected = "4096 open files"};
  check.actual = limit_text(files.rlim_cur, false) + " open files, " + limit_text(locked.rlim_cur, true) +
                 " locked memory";
  const auto number = [](rlim_t value) -> boost::json::value {
    if (value == RLIM_INFINITY) return nullptr;
    return value;
  };
  check.details = {{"open_files", number(files.rlim_cur)},
                   {"open_files_hard", number(files.rlim_max)},
                   {"locked_bytes", number(locked.rlim_cur)}};
  // The GPU runtime may keep one file open for each allocation.
  if (files.rlim_cur < 4096) {
    check.status = Status::warn;
    check.remedy = "raise it: `ulimit -n 65536`, or LimitNOFILE=65536 in a systemd unit";
  }
  return check;
}

Check check_temporary_folder() {
  const std::optional<std::string> set = variable("TMPDIR");
  const std::string folder = set && !set->empty() ? *set : "/tmp";
  Check check{.name = "tmpdir",
              .actual = folder,
              .expected = "a folder to write in: the GPU runtime puts files there"};
  check.details["path"] = folder;
  std::string name = folder + "/.aima-doctor-XXXXXX";
  const int fd = ::mkstemp(name.data());
  if (fd >= 0) {
    ::close(fd);
    ::unlink(name.c_str());
    return check;
  }
  check.status = Status::warn;
  check.actual += ": " + error_text(errno);
  check.remedy = "set TMPDIR to a folder that exists and that you may write in";
  return check;
}

Check check_environment() {
  Check check{.name = "environment", .expected = "nothing that hides or replaces a GPU or a library"};
  boost::json::object hiding;
  std::string text;
  for (const char* name :
       {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"}) {
    const std::optional<std::string> value = variable(name);
    if (!value) continue;
    hiding[name] = *value;
    text += std::string(text.empty() ? "" : ", ") + name + "=" + *value;
  }
  if (!hiding.empty()) {
    check.status = Status::warn;
    check.remedy = "a GPU that these hide looks like no GPU at all: unset them if one is missing";
  }
  boost::json::array dropped;
  std::istringstream list(variable("AIMA_DROPPED_ENV").value_or(""));
  std::string dropped_text;
  for (std::string name; std::getline(list, name, ',');) {
    dropped.push_back(boost::json::string(name));
    dropped_text += (dropped_text.empty() ? "" : " ") + name;
  }
  if (!dropped.empty()) text += (text.empty() ? "" : "; ") + ("taken out by the launcher: " + dropped_text);
  check.actual = text.empty() ? "nothing set that matters" : text;
  check.details = {{"visible_devices", std::move(hiding)}, {"dropped", std::move(dropped)}};
  return check;
}

}  // namespace aima::doctor
