/// What memory this process holds, and what it may still take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace aima::base {

/// Bytes; of /proc/self/status.
struct ProcessMemory {
  std::uint64_t resident_peak = 0;  ///< VmHWM
  std::uint64_t anonymous = 0;      ///< RssAnon: heap and stacks
  std::uint64_t code = 0;           ///< VmExe + VmLib
  std::uint64_t address_space = 0;  ///< VmSize
};

/// Zeros where `root`/proc/self/status cannot be read.
ProcessMemory process_memory(const std::filesystem::path& root = "/");

/// One thing that bounds what this process may still take.
struct MemoryLimit {
  std::string source;           ///< "MemAvailable", "cgroup memory.max", "RLIMIT_AS"
  std::uint64_t available = 0;  ///< bytes
  /// Mapped files count as soon as they are mapped (an address space), not when their pages come in.
  bool counts_mapped = false;
};

/// MemAvailable of /proc/meminfo; the memory limit of every control group around this process, version 1 or
/// 2, less what is used and cannot be dropped; RLIMIT_AS less the address space in use. Only those that
/// exist. `root` stands before /proc and /sys.
std::vector<MemoryLimit> memory_limits(const std::filesystem::path& root = "/");

/// "69.32 GB": powers of 1000, three digits or more.
std::string format_bytes(std::uint64_t bytes);

}  // namespace aima::base
