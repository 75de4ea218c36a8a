/// The checks, in the order in which doctor makes them. None throws.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/bundle_root.h"
#include "doctor/report.h"
#include "doctor/system.h"

namespace aima::doctor {

/// What the checks share.
struct Context {
  const System& system;
  const base::BundleRoot& bundle;
  Status
      gpu_missing;  ///< what a missing piece of the GPU's chain counts as: warn, or fail with --require-gpu
  std::vector<std::string> kernel_targets{};  ///< of the kernels libraries found, for example "gfx1151"
};

/// Bytes that the weights of Qwen3.6-35B-A3B take in bf16, with a gibibyte for state and the first few
/// thousand tokens of KV (model.md 2 and 5).
inline constexpr std::uint64_t kModelBytes = 69'321'221'376 + (std::uint64_t{1} << 30);

// host_checks.cpp
Check check_bundle(const Context& context);
Check check_cpu();
Check check_memory(const Context& context);
Check check_limits();
Check check_temporary_folder();
Check check_environment();

// gpu_checks.cpp
Check check_kernel_release(const Context& context);
Check check_kfd(const Context& context);
Check check_render_nodes(const Context& context);
Check check_gpu(const Context& context);
Check check_gpu_memory(const Context& context);

// hip_check.cpp: asks the bundle's own HIP, in a process apart, with `limit` for its answer.
Check check_hip(const Context& context, std::chrono::milliseconds limit);

// kernels_check.cpp
/// The libraries to look at: `chosen` alone when not empty, else the bundle's or the build tree's.
std::vector<std::filesystem::path> kernel_libraries(const base::BundleRoot& bundle,
                                                    const std::filesystem::path& chosen);
/// One library: opened in a process apart, its table compared with this engine's idea of it, and listed.
Check check_kernels(const Context& context, const std::filesystem::path& library);
Check no_kernels(const Context& context);

}  // namespace aima::doctor
