// `aima-engine doctor`: what this host offers, what the bundle holds, and what to do where one is missing.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>

namespace aima::doctor {

struct DoctorOptions {
  bool json = false;                    ///< print aima/doctor/v1 instead of lines for people
  bool require_gpu = false;             ///< no usable GPU is a failed check (exit 3), not a warning
  std::filesystem::path sysroot = "/";  ///< where /sys, /proc and /dev are looked for
  std::optional<std::filesystem::path> kernels{};  ///< a kernels library instead of the bundle's
};

/// Runs every check and prints the report. Returns the exit code: 0 when the engine can run here on some
/// device (the CPU counts), 3 when a check failed. A check that cannot be made is reported as such, never
/// thrown.
int run_doctor(const DoctorOptions& options, std::ostream& out);

}  // namespace aima::doctor
