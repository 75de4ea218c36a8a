/// Which tables of inner loops there are, and which of them this processor runs.
#pragma once

#include <string_view>
#include <vector>

#include "device/cpu/isa.h"

namespace aima::device::cpu {

/// The tables that the processor and its system allow, the best first; at least `isa_portable`. Found once:
/// the first call asks the kernel for AMX's tiles, so it belongs before threads are started.
const std::vector<const Isa*>& usable_isas();

/// The names of all tables in this program.
inline constexpr std::string_view isa_names[] = {"amx-bf16", "avx512-bf16", "avx512", "avx2", "sse2"};

/// The usable table of that name; a usage error names those there are.
const Isa& isa_named(std::string_view name);

}  // namespace aima::device::cpu
