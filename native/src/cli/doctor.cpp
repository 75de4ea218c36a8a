#include <array>
#include <sstream>

#include "base/error.h"
#include "cli/commands.h"
#include "doctor/doctor.h"

namespace aima::cli {
namespace {

constexpr std::array<Option, 4> options = {{
    {"json", "", "print aima/doctor/v1 as JSON"},
    {"require-gpu", "", "no usable GPU is a failed check"},
    {"kernels", "FILE", "examine this kernels library instead of the bundle's"},
    {"sysroot", "DIR", "look for /sys, /proc, /dev and /etc below DIR"},
}};

int run_command(const Arguments& arguments) {
  doctor::DoctorOptions wanted;
  wanted.json = arguments.has("json");
  wanted.require_gpu = arguments.has("require-gpu");
  if (const auto file = arguments.value("kernels")) wanted.kernels = *file;
  if (const auto folder = arguments.value("sysroot")) wanted.sysroot = *folder;
  std::ostringstream report;
  const int code = doctor::run_doctor(wanted, report);
  write_out(report.view());
  return code;
}

}  // namespace

const Command doctor_command = {
    .name = "doctor",
    .summary = "Examine the host and the bundle, and say what to do where one lacks something",
    .usage = "[--json]",
    .options = options,
    .notes = {},
    .run = run_command};

}  // namespace aima::cli
