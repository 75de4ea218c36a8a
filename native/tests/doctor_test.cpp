#include <doctest/doctest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <boost/json/parse.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "doctor/checks.h"
#include "doctor/doctor.h"

namespace fs = std::filesystem;
using namespace aima::doctor;
using std::chrono::milliseconds;

namespace {

/// A host that exists only as files.
class Host {
 public:
  Host() {
    std::string name = (fs::temp_directory_path() / "aima-host-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    root = name;
  }
  ~Host() { fs::remove_all(root); }
  Host& with(const std::string& name, const std::string& text) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
    return *this;
  }
  /// A Radeon 8060S with 96 GiB of GTT.
  Host& strix_halo() {
    with("proc/meminfo", "MemTotal:       131072000 kB\nMemFree: 1 kB\nMemAvailable:   120000000 kB\n");
    with("proc/sys/kernel/osrelease", "6.18.9-generic\n");
    with("dev/kfd", "").with("dev/dri/renderD128", "");
    with("sys/class/drm/renderD128/device/vendor", "0x1002\n");
    with("sys/class/drm/card1/device/vendor", "0x1002\n");
    with("sys/class/drm/card1/device/mem_info_gtt_total", "103079215104\n");
    with("sys/class/drm/card1/device/mem_info_vram_total", "536870912\n");
    with("sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 32\ngfx_target_version 0\n");
    return with("sys/class/kfd/kfd/topology/nodes/1/properties",
                "simd_count 80\ngfx_target_version 110501\nvendor_id 4098\n");
  }
  Context context(bool require_gpu = false) const {
    return {.system = system_,
            .bundle = none_,
            .gpu_missing = require_gpu ? Status::fail : Status::warn,
            .kernel_targets = {"gfx1151"}};
  }

  fs::path root;

 private:
  mutable System system_{""};
  aima::base::BundleRoot none_{.note = "none"};

 public:
  const Host& ready() const {
    system_ = System(root);
    return *this;
  }
};

boost::json::object report_of(const DoctorOptions& options, int& code) {
  std::ostringstream out;
  code = run_doctor(options, out);
  return boost::json::parse(out.str()).as_object();
}

boost::json::object check_of(const boost::json::object& report, std::string_view name) {
  for (const auto& check : report.at("checks").as_array()) {
    if (check.at("name").as_string() == name) return check.as_object();
  }
  FAIL("no such check");
  return {};
}

}  // namespace

TEST_CASE("a host with the GPU passes every check of the chain") {
  Host host;
  host.strix_halo().ready();
  const Context context = host.context();
  CHECK(check_kfd(context).status == Status::ok);
  CHECK(check_render_nodes(context).status == Status::ok);
  const Check gpu = check_gpu(context);
  CHECK(gpu.status == Status::ok);
  CHECK(gpu.actual == "gfx1151");
  const Check gtt = check_gpu_memory(context);
  CHECK(gtt.status == Status::ok);
  CHECK(gtt.actual == "card1: GTT 96.0 GiB, VRAM 512.0 MiB");
  CHECK(check_kernel_release(context).status == Status::ok);
  const Check memory = check_memory(context);
  CHECK(memory.status == Status::ok);
  CHECK(memory.details.at("total_bytes") == 131072000ULL * 1024);
}

TEST_CASE("a host without a GPU: a warning, or a failure where one is required") {
  Host host;
  host.ready();
  for (const bool required : {false, true}) {
    const Status wanted = required ? Status::fail : Status::warn;
    const Context context = host.context(required);
    for (const Check& check :
         {check_kfd(context), check_render_nodes(context), check_gpu(context), check_gpu_memory(context)}) {
      CAPTURE(check.name);
      CHECK(check.status == wanted);
      CHECK_FALSE(check.remedy.empty());
      CHECK_FALSE(check.expected.empty());
    }
  }
  CHECK(check_memory(host.context()).status == Status::skip);
}

TEST_CASE("another GPU than the kernels are for") {
  Host host;
  host.strix_halo()
      .with("sys/class/kfd/kfd/topology/nodes/1/properties", "gfx_target_version 120001\n")
      .ready();
  const Check gpu = check_gpu(host.context());
  CHECK(gpu.status == Status::warn);
  CHECK(gpu.actual == "gfx1201");
  CHECK(gpu.remedy.find("bundle") != std::string::npos);
  host.with("sys/class/kfd/kfd/topology/nodes/1/properties", "gfx_target_version 90010\n");
  CHECK(check_gpu(host.context()).actual == "gfx90a");
}

TEST_CASE("device files that may not be opened name their group") {
  if (::geteuid() == 0) return;  // root opens everything
  Host host;
  host.strix_halo().with("etc/group", "root:x:0:\nrender:x:" + std::to_string(::getegid()) + ":\n").ready();
  fs::permissions(host.root / "dev/kfd", fs::perms::none);
  const Check check = check_kfd(host.context());
  CHECK(check.status == Status::warn);
  CHECK(check.details.at("errno") == EACCES);
  CHECK(check.remedy.find("usermod -aG render") != std::string::npos);
}

TEST_CASE("group names come from the host's own file") {
  Host host;
  host.with("etc/group", "root:x:0:\nvideo:x:44:me\nrender:x:993:\nbroken\n").ready();
  const System system(host.root);
  CHECK(system.group_name(993) == "render");
  CHECK(system.group_name(44) == "video");
  CHECK(system.group_name(99) == "99");
}

TEST_CASE("a render node of another vendor is not enough") {
  Host host;
  host.strix_halo().with("sys/class/drm/renderD128/device/vendor", "0x8086\n").ready();
  const Check check = check_render_nodes(host.context());
  CHECK(check.status == Status::warn);
  CHECK(check.actual == "renderD128 (vendor 0x8086)");
}

TEST_CASE("too little GTT: the remedy names pages") {
  Host host;
  host.strix_halo().with("sys/class/drm/card1/device/mem_info_gtt_total", "33000000000").ready();
  const Check check = check_gpu_memory(host.context());
  CHECK(check.status == Status::warn);
  CHECK(check.remedy.find("ttm.pages_limit=") != std::string::npos);
  // Enough VRAM will do as well.
  host.with("sys/class/drm/card1/device/mem_info_vram_total", "103079215104");
  CHECK(check_gpu_memory(host.context()).status == Status::ok);
}

TEST_CASE("an old kernel matters where the GPU is there") {
  Host host;
  host.strix_halo().with("proc/sys/kernel/osrelease", "6.17.12-x\n").ready();
  CHECK(check_kernel_release(host.context()).status == Status::warn);
  host.with("proc/sys/kernel/osrelease", "7.0.0\n");
  CHECK(check_kernel_release(host.context()).status == Status::ok);
  host.with("proc/sys/kernel/osrelease", "5.10.1\n");
  host.with("sys/class/kfd/kfd/topology/nodes/1/properties", "gfx_target_version 0\n");
  CHECK(check_kernel_release(host.context()).status == Status::ok);
}

TEST_CASE("the temporary folder is tried") {
  const char* const before = ::getenv("TMPDIR");
  const std::string saved = before == nullptr ? "" : before;
  Host host;
  ::setenv("TMPDIR", host.root.c_str(), 1);
  CHECK(check_temporary_folder().status == Status::ok);
  CHECK(fs::is_empty(host.root));
  ::setenv("TMPDIR", "/nonexistent", 1);
  const Check check = check_temporary_folder();
  CHECK(check.status == Status::warn);
  CHECK(check.actual == "/nonexistent: No such file or directory");
  before == nullptr ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", saved.c_str(), 1);
}

TEST_CASE("the environment: what hides GPUs, and what the launcher took out") {
  ::setenv("ROCR_VISIBLE_DEVICES", "1", 1);
  ::setenv("AIMA_DROPPED_ENV", "LD_PRELOAD,HSA_TOOLS_LIB", 1);
  const Check check = check_environment();
  ::unsetenv("ROCR_VISIBLE_DEVICES");
  ::unsetenv("AIMA_DROPPED_ENV");
  CHECK(check.status == Status::warn);
  CHECK(check.actual == "ROCR_VISIBLE_DEVICES=1; taken out by the launcher: LD_PRELOAD HSA_TOOLS_LIB");
  CHECK(check.details.at("dropped").as_array().size() == 2);
  CHECK(check_environment().status == Status::ok);
}

TEST_CASE("work apart: an answer, a crash, an exception, a hang") {
  const std::string big(1 << 20, 'x');
  CHECK(run_apart([&] { return big; }, milliseconds(10'000)).answer == big);
  const Outcome crash = run_apart(
      []() -> std::string {
        ::raise(SIGSEGV);
        return "";
      },
      milliseconds(10'000));
  CHECK_FALSE(crash.answer.has_value());
  CHECK(crash.trouble.find("Segmentation fault") != std::string::npos);
  const Outcome thrown =
      run_apart([]() -> std::string { throw std::runtime_error("x"); }, milliseconds(10'000));
  CHECK(thrown.trouble == "the process stopped with code 1");
  const auto start = std::chrono::steady_clock::now();
  const Outcome hang = run_apart(
      []() -> std::string {
        for (;;) ::pause();
      },
      milliseconds(1'000));
  CHECK(hang.trouble == "no answer within 1 s");
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
}

TEST_CASE("kernels libraries that are none") {
  Host host;
  host.with("libaima-kernels-x.so", "no ELF file").with("libaima-kernels-empty.so", "").ready();
  for (const char* name : {"libaima-kernels-x.so", "libaima-kernels-empty.so", "absent.so"}) {
    const Check check = check_kernels(host.context(), host.root / name);
    CHECK(check.status == Status::warn);
    CHECK(check.actual.starts_with(name));
    CHECK_FALSE(check.remedy.empty());
  }
}

TEST_CASE("a bundle's kernels libraries are found by name, in order") {
  Host host;
  host.with("lib/libaima-kernels-gfx1201.so", "")
      .with("lib/libaima-kernels-gfx1151.so", "")
      .with("lib/libc.so.6", "");
  host.with("lib/libaima-kernels-gfx1151.so.old", "");
  aima::base::BundleRoot bundle;
  bundle.root = host.root;
  const auto found = kernel_libraries(bundle, "");
  REQUIRE(found.size() == 2);
  CHECK(found[0].filename() == "libaima-kernels-gfx1151.so");
  CHECK(kernel_libraries(bundle, "/x.so") == std::vector<fs::path>{"/x.so"});
}

TEST_CASE("HIP: nothing to ask, and a library that cannot be loaded") {
  Host host;
  host.ready();
  CHECK(check_hip(host.context(), milliseconds(10'000)).status == Status::skip);
  aima::base::BundleRoot bundle;
  bundle.root = host.root;
  const System system(host.root);
  const Context context{.system = system, .bundle = bundle, .gpu_missing = Status::fail};
  CHECK(check_hip(context, milliseconds(10'000)).status == Status::skip);
  host.with("lib/libamdhip64.so.7", "damaged");
  const Check check = check_hip(context, milliseconds(10'000));
  CHECK(check.status == Status::fail);
  CHECK(check.actual.starts_with("cannot be opened: "));
}

TEST_CASE("the report: schema, exit codes, lines") {
  Host host;
  host.strix_halo();
  int code = -1;
  DoctorOptions options{.json = true, .sysroot = host.root};
  boost::json::object report = report_of(options, code);
  CHECK(code == 0);
  CHECK(report.at("schema") == "aima/doctor/v1");
  CHECK(report.at("ok") == true);
  CHECK(report.at("devices").at("gpu") == false);  // no HIP runtime here
  CHECK(check_of(report, "gpu").at("status") == "ok");
  CHECK(check_of(report, "hip-runtime").at("status") == "skip");
  for (const auto& check : report.at("checks").as_array()) {
    for (const char* key : {"name", "status", "actual", "expected", "remedy"})
      CHECK(check.at(key).is_string());
    CHECK_FALSE(check.at("actual").as_string().empty());
  }
  options.require_gpu = true;
  report_of(options, code);
  CHECK(code == 3);

  std::ostringstream lines;
  CHECK(run_doctor({.sysroot = "/nonexistent"}, lines) == 0);
  CHECK(lines.str().find("warn  kfd           /dev/kfd: No such file or directory\n") != std::string::npos);
  CHECK(lines.str().find("remedy: run on a host with an AMD GPU") != std::string::npos);
  CHECK(lines.str().ends_with("The CPU can be used; the GPU cannot.\n"));
}
