#include <dlfcn.h>
#include <link.h>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "doctor/checks.h"

namespace aima::doctor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibraries[] = {"libamdhip64.so.7", "libamdhip64.so.6"};

/// The functions asked, with HIP's own C types: hipError_t is an int.
struct Hip {
  int (*runtime_version)(int*) = nullptr;
  int (*device_count)(int*) = nullptr;
  const char* (*error_name)(int) = nullptr;
  const char* (*error_string)(int) = nullptr;

  template <typename Function>
  static bool take(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    return function != nullptr;
  }
  bool bind(void* library) {
    return take(library, "hipRuntimeGetVersion", runtime_version) &&
           take(library, "hipGetDeviceCount", device_count) && take(library, "hipGetErrorName", error_name) &&
           take(library, "hipGetErrorString", error_string);
  }
};

/// Objects of this process that lie outside `root`. The engine itself has no name, the vDSO no slash.
boost::json::array objects_outside(const std::string& root) {
  struct Search {
    const std::string& root;
    boost::json::array found;
  } search{root, {}};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& s = *static_cast<Search*>(data);
        const std::string name = info->dlpi_name;
        // A name may lead through an open descriptor (/proc/self/fd/3/lib/...): its own place counts.
        std::error_code error;
        const fs::path real = fs::canonical(name, error);
        if (name.find('/') != std::string::npos && !(error ? name : real.string()).starts_with(s.root + "/"))
          s.found.push_back(boost::json::string(name));
        return 0;
      },
      &search);
  return std::move(search.found);
}

/// In the child: opens the library and asks. HIP stays loaded: closing it is not supported.
std::string ask(const fs::path& library, const fs::path& root) {
  void* const handle = open_library(library);
  if (handle == nullptr) return boost::json::serialize(boost::json::object{{"load_error", load_error()}});
  Hip hip;
  if (!hip.bind(handle)) return boost::json::serialize(boost::json::object{{"load_error", load_error()}});
  int version = 0, count = 0;
  const int version_error = hip.runtime_version(&version);
  const int count_error = hip.device_count(&count);
  const auto text = [](const char* value) { return value == nullptr ? "" : value; };
  return boost::json::serialize(boost::json::object{{"runtime_version", version_error == 0 ? version : 0},
                                                    {"device_count", count_error == 0 ? count : 0},
                                                    {"error", count_error},
                                                    {"error_name", text(hip.error_name(count_error))},
                                                    {"error_string", text(hip.error_string(count_error))},
                                                    {"outside", objects_outside(root.string())}});
}

/// 70253211 -> "7.2.53211", as HIP composes it.
std::string version_text(std::int64_t version) {
  return std::to_string(version / 10'000'000) + "." + std::to_string(version / 100'000 % 100) + "." +
         std::to_string(version % 100'000);
}

/// Bundles without a loader of their own run on the host's C library by design.
bool has_loader(const Context& context) {
  std::error_code error;
  return fs::exists(*context.bundle.root / "libexec/aima-engine", error);
}

void judge(Check& check, const boost::json::object& answer, const Context& context) {
  if (const auto* error = answer.if_contains("load_error")) {
    check.status = context.gpu_missing;
    check.actual = "cannot be opened: " + std::string(error->as_string());
    check.remedy = "check the bundle: bin/aima-engine --verify-bundle";
    return;
  }
  const std::int64_t error = answer.at("error").as_int64(), count = answer.at("device_count").as_int64();
  check.actual = "HIP " + version_text(answer.at("runtime_version").as_int64()) + ": " +
                 (error == 0 ? std::to_string(count) + (count == 1 ? " device" : " devices")
                             : "error " + std::to_string(error) + " (" +
                                   std::string(answer.at("error_name").as_string()) + ", " +
                                   std::string(answer.at("error_string").as_string()) + ")");
  if (error != 0 || count == 0) {
    check.status = context.gpu_missing;
    check.remedy = "see the checks above: HIP finds devices through /dev/kfd and the render nodes";
  } else if (has_loader(context) && !answer.at("outside").as_array().empty()) {
    check.status = Status::warn;
    check.actual += "; objects from outside the bundle are loaded";
    check.remedy = "start the engine through bin/aima-engine";
  }
}

}  // namespace

Check check_hip(const Context& context, std::chrono::milliseconds limit) {
  Check check{.name = "hip-runtime", .expected = "the bundle's HIP runtime finds a device"};
  if (!context.bundle.root) {
    check.status = Status::skip;
    check.actual = "a development build has no HIP runtime of its own";
    return check;
  }
  const fs::path folder = *context.bundle.root / "lib";
  fs::path library;
  for (const char* name : kLibraries) {
    std::error_code error;
    if (library.empty() && fs::exists(folder / name, error)) library = folder / name;
  }
  if (library.empty()) {
    check.status = Status::skip;
    check.actual = "this bundle brings no HIP runtime";
    return check;
  }
  const Outcome outcome = run_apart([&] { return ask(library, *context.bundle.root); }, limit);
  if (!outcome.answer) {
    check.status = context.gpu_missing;
    check.actual = library.filename().string() + ": " + outcome.trouble;
    check.remedy =
        "the runtime may be newer or older than the kernel driver allows: see the kernel check and dmesg";
  } else {
    check.details = parse_answer(*outcome.answer);
    judge(check, check.details, context);
  }
  check.details["library"] = library.string();
  return check;
}

}  // namespace aima::doctor
