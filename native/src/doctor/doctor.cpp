#include "doctor/doctor.h"

#include <ostream>

#include "doctor/checks.h"

namespace aima::doctor {
namespace {

constexpr std::chrono::seconds kHipLimit{30};

std::string target_of(const Check& kernels) {
  const auto* target = kernels.details.if_contains("target");
  return target != nullptr && target->is_string() ? std::string(target->as_string()) : "";
}

}  // namespace

int run_doctor(const DoctorOptions& options, std::ostream& out) {
  const System system(options.sysroot);
  Context context{.system = system,
                  .bundle = base::bundle_root(),
                  .gpu_missing = options.require_gpu ? Status::fail : Status::warn};
  std::vector<Check> kernels;
  for (const auto& library : kernel_libraries(context.bundle, options.kernels.value_or(""))) {
    kernels.push_back(check_kernels(context, library));
    if (const std::string target = target_of(kernels.back()); !target.empty())
      context.kernel_targets.push_back(target);
  }
  if (kernels.empty()) kernels.push_back(no_kernels(context));

  Report report;
  report.checks = {check_bundle(context),
                   check_cpu(),
                   check_memory(context),
                   check_kernel_release(context),
                   check_limits(),
                   check_temporary_folder(),
                   check_environment(),
                   check_kfd(context),
                   check_render_nodes(context),
                   check_gpu(context),
                   check_gpu_memory(context),
                   check_hip(context, kHipLimit)};
  const auto is_ok = [&](const char* name) {
    for (const Check& check : report.checks) {
      if (check.name == name) return check.status == Status::ok;
    }
    return false;
  };
  report.gpu_usable = is_ok("kfd") && is_ok("render-nodes") && is_ok("gpu") && is_ok("hip-runtime") &&
                      !context.kernel_targets.empty();
  report.checks.insert(report.checks.end(), kernels.begin(), kernels.end());
  options.json ? report.print_json(out) : report.print(out);
  return report.ok() && (report.gpu_usable || !options.require_gpu) ? 0 : 3;
}

}  // namespace aima::doctor
