#include "base/cpu.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace aima::base {
namespace {

struct Leaf {
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
};

Leaf cpuid(std::uint32_t leaf, std::uint32_t subleaf = 0) {
  Leaf r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

constexpr bool bit(std::uint32_t word, int index) { return ((word >> index) & 1U) != 0; }

/// XCR0: which register states the operating system saves.
std::uint64_t enabled_states() {
  if (!bit(cpuid(1).ecx, 27)) return 0;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

CpuFeatures detect() {
  const Leaf basic = cpuid(1);
  const Leaf extended = cpuid(7, 0);
  const Leaf more = cpuid(7, 1);
  const std::uint64_t states = enabled_states();
  const bool ymm = (states & 0x6U) == 0x6U;
  const bool zmm = (states & 0xe6U) == 0xe6U;
  const bool tiles = (states & 0x60000U) == 0x60000U;
  CpuFeatures f;
  f.avx2 = ymm && bit(basic.ecx, 12) && bit(basic.ecx, 29) && bit(extended.ebx, 5);
  f.avx512 = f.avx2 && zmm && bit(extended.ebx, 16) && bit(extended.ebx, 17) && bit(extended.ebx, 30) &&
             bit(extended.ebx, 31);
  f.avx512_bf16 = f.avx512 && bit(more.eax, 5);
  f.slow_bf16_dot = cpuid(0).ebx == 0x756e6547U;  // "Genu"ineIntel
  f.amx_bf16 = f.avx512 && tiles && bit(extended.edx, 22) && bit(extended.edx, 24);
  return f;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

bool permit_amx() {
  // From the kernel's asm/prctl.h and its list of register states; glibc has no wrapper.
  constexpr long request_permission = 0x1023;
  constexpr long tile_data = 18;
  static const bool permitted = ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  return permitted;
}

std::string cpu_name() {
  if (__get_cpuid_max(0x80000000U, nullptr) < 0x80000004U) return "unknown";
  std::array<char, 49> text{};
  for (std::uint32_t part = 0; part < 3; ++part) {
    const Leaf leaf = cpuid(0x80000002U + part);
    std::memcpy(text.data() + 16 * part, &leaf, sizeof leaf);
  }
  const std::string name(text.data());
  const std::size_t first = name.find_first_not_of(' ');
  const std::size_t last = name.find_last_not_of(' ');
  return first == std::string::npos ? "unknown" : name.substr(first, last - first + 1);
}

}  // namespace aima::base
