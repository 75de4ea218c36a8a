#include <dlfcn.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "aima/kernels_v1.h"
#include "base/build_info.h"
#include "doctor/checks.h"

namespace aima::doctor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "libaima-kernels-";
constexpr std::uint32_t kMostKernels = 100'000;
constexpr std::chrono::seconds kLimit{20};

std::string problem(std::string text) {
  return boost::json::serialize(boost::json::object{{"problem", std::move(text)}});
}

boost::json::object entry_of(const aima_kernel_v1& kernel) {
  return {{"id", kernel.id},
          {"op", kernel.op},
          {"template", kernel.template_name},
          {"dtype", kernel.dtype},
          {"tokens", {kernel.token_min, kernel.token_max}},
          {"primary", kernel.primary != 0},
          {"kernarg_bytes", kernel.kernarg_size},
          {"image_bytes", kernel.image_size},
          {"lds_bytes", kernel.lds_bytes}};
}

/// In the child: opens the library, compares what both sides think a table is, and lists it.
std::string read_table(const fs::path& library) {
  void* const handle = open_library(library);
  if (handle == nullptr) return problem(load_error());
  const auto* table = static_cast<const aima_kernels_table_v1*>(::dlsym(handle, "aima_kernels_v1"));
  if (table == nullptr) return problem("it exports no aima_kernels_v1");
  if (table->magic != AIMA_KERNELS_MAGIC) return problem("its table has another magic number");
  if (table->struct_size != sizeof(aima_kernels_table_v1) || table->kernel_size != sizeof(aima_kernel_v1)) {
    return problem("its table has entries of " + std::to_string(table->kernel_size) +
                   " bytes, this engine expects " + std::to_string(sizeof(aima_kernel_v1)));
  }
  if (table->kernel_count > kMostKernels)
    return problem("its table claims " + std::to_string(table->kernel_count) + " kernels");
  boost::json::array kernels;
  for (const aima_kernel_v1* k = table->kernels; k != table->kernels + table->kernel_count; ++k) {
    if (k->image == nullptr || k->image_size == 0)
      return problem(std::string("kernel ") + k->id + " has no code object");
    kernels.push_back(entry_of(*k));
  }
  return boost::json::serialize(boost::json::object{
      {"target", table->target}, {"build", table->build}, {"kernels", std::move(kernels)}});
}

}  // namespace

std::vector<fs::path> kernel_libraries(const base::BundleRoot& bundle, const fs::path& chosen) {
  if (!chosen.empty()) return {chosen};
  const fs::path folder = bundle.root ? *bundle.root / "lib" : bundle.image.parent_path().parent_path();
  std::vector<fs::path> found;
  for (const fs::path& path : System("/").entries(folder, kPrefix)) {
    if (path.extension() == ".so") found.push_back(path);
  }
  return found;
}

Check check_kernels(const Context& context, const fs::path& library) {
  Check check{.name = "kernels", .expected = "a table that this engine can read, from the same build"};
  const Outcome outcome = run_apart([&] { return read_table(library); }, kLimit);
  const std::string name = library.filename().string();
  if (outcome.answer) check.details = parse_answer(*outcome.answer);
  const auto* trouble = check.details.if_contains("problem");
  if (!outcome.answer || trouble != nullptr) {
    check.status = context.gpu_missing;
    check.actual = name + ": " + (trouble ? std::string(trouble->as_string()) : outcome.trouble);
    check.remedy = context.bundle.root ? "check the bundle: bin/aima-engine --verify-bundle"
                                       : "build it again: aimabuild build";
  } else {
    const std::size_t count = check.details.at("kernels").as_array().size();
    const std::string build(check.details.at("build").as_string());
    check.actual = name + ": " + std::to_string(count) + " kernels for " +
                   std::string(check.details.at("target").as_string());
    const std::string ours(base::build_info().plan_digest);
    if (!ours.empty() && ours != build) {
      check.status = Status::warn;
      check.actual += ", of build " + build.substr(0, 16) + " and not " + ours.substr(0, 16);
      check.remedy = "take engine and kernels from one build";
    }
  }
  check.details["library"] = library.string();
  return check;
}

Check no_kernels(const Context& context) {
  Check check{.name = "kernels", .status = context.gpu_missing, .actual = "no libaima-kernels-*.so found"};
  check.expected = "a kernels library beside the engine";
  check.remedy = "use a bundle that is built for a GPU, or name one with --kernels FILE";
  return check;
}

}  // namespace aima::doctor
