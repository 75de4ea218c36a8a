/// What this processor and its operating system allow.
#pragma once

#include <string>

namespace aima::base {

struct CpuFeatures {
  bool avx2 = false;    ///< with FMA and F16C, and the system saves the registers
  bool avx512 = false;  ///< F, BW, DQ and VL
  bool avx512_bf16 = false;
  bool amx_bf16 = false;  ///< tiles and BF16; permission must still be asked of the kernel
};

/// Asked once, then remembered.
const CpuFeatures& cpu_features();

/// The processor's own name, for reports.
std::string cpu_name();

/// Cores that this process may run on, at least 1.
int usable_cores();

}  // namespace aima::base
