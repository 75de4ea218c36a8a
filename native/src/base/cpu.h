/// What this processor and its operating system allow.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace aima::base {

struct CpuFeatures {
  bool avx2 = false;    ///< with FMA and F16C, and the system saves the registers
  bool avx512 = false;  ///< F, BW, DQ and VL
  bool avx512_bf16 = false;
  bool slow_bf16_dot = false;  ///< vdpbf16ps does less per cycle than two fused multiply-adds (Intel)
  bool amx_bf16 = false;       ///< tiles and BF16; permission must still be asked of the kernel
};

/// Asked once, then remembered.
const CpuFeatures& cpu_features();

/// Asks the kernel, once, to let this process use AMX's tiles; false where it does not know them or refuses.
/// The answer holds for all threads.
bool permit_amx();

/// The processor's own name, for reports.
std::string cpu_name();

/// Processors, by the kernel's numbers, that this process may run on: one of each core first, then their
/// siblings. Empty where the kernel does not say.
std::vector<int> usable_processors();

/// Threads worth computing with: cores that this process may run on (the hardware threads of a core share its
/// arithmetic and its memory port), but not more than its control group's share of processor time. At
/// least 1.
int usable_cores();

/// The processor time that the control group of `cgroup_file` (/proc/self/cgroup) and the groups above it
/// allow below `root` (/sys/fs/cgroup), in whole processors rounded up; 0: no limit.
int cpu_quota(const std::filesystem::path& cgroup_file, const std::filesystem::path& root);

}  // namespace aima::base
