#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <sstream>

#include "doctor/checks.h"

namespace aima::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kAmd = 0x1002;
// The first mainline kernel said to drive gfx1151 without patches (packaging.md 1.5).
constexpr std::array<int, 3> kMainline = {6, 18, 4};

/// What to do about a device file that does not open: its group is the usual cause.
std::string access_remedy(const Context& context, const fs::path& path, int error) {
  if (error != EACCES && error != EPERM) return "see the kernel's log: dmesg | grep -i amdgpu";
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return "";
  const std::string group = context.system.group_name(info.st_gid);
  return "add your user to its group: sudo usermod -aG " + group + " $USER, then log in again" +
         " (in a container: pass the device and --group-add " + group + ")";
}

/// 110501 -> "gfx1151": major, minor and stepping in two decimal digits each, the last two written in
/// hexadecimal.
std::string gfx_name(std::uint64_t version) {
  char text[32];
  std::snprintf(text, sizeof text, "gfx%u%x%x", static_cast<unsigned>(version / 10000),
                static_cast<unsigned>(version / 100 % 100), static_cast<unsigned>(version % 100));
  return text;
}

/// "gfx_target_version" of a KFD topology node; 0 for a CPU and where it cannot be read.
std::uint64_t target_version(const Context& context, const fs::path& node) {
  std::istringstream lines(context.system.text(node / "properties").value_or(""));
  std::string key;
  for (std::uint64_t value = 0; lines >> key >> value;) {
    if (key == "gfx_target_version") return value;
  }
  return 0;
}

std::vector<std::string> gpu_targets(const Context& context) {
  std::vector<std::string> found;
  for (const fs::path& node :
       context.system.entries(context.system.at("/sys/class/kfd/kfd/topology/nodes"), "")) {
    if (const std::uint64_t version = target_version(context, node)) found.push_back(gfx_name(version));
  }
  return found;
}

/// "6.18.9-generic" -> {6, 18, 9}; zeros where there is no number.
std::array<int, 3> release_numbers(const std::string& release) {
  std::array<int, 3> numbers{};
  const char* at = release.data();
  const char* const end = at + release.size();
  for (int& number : numbers) {
    at = std::from_chars(at, end, number).ptr;
    if (at == end || *at != '.') break;
    ++at;
  }
  return numbers;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

boost::json::array json_list(const std::vector<std::string>& words) {
  return boost::json::array(words.begin(), words.end());
}

}  // namespace

Check check_kernel_release(const Context& context) {
  Check check{.name = "kernel",
              .expected = "for gfx1151: 6.18.4 or newer, or a distribution's kernel with its patches"};
  const std::string release =
      context.system.text(context.system.at("/proc/sys/kernel/osrelease")).value_or("");
  check.actual = "Linux " + (release.empty() ? "of an unknown release" : release);
  check.details["release"] = release;
  const bool older = release_numbers(release) < kMainline;
  const std::vector<std::string> gpus = gpu_targets(context);
  if (older && std::ranges::find(gpus, "gfx1151") != gpus.end()) {
    check.status = Status::warn;
    check.remedy = "should the GPU hang or be missing, update the kernel and linux-firmware first";
  }
  return check;
}

Check check_kfd(const Context& context) {
  Check check{.name = "kfd", .expected = "/dev/kfd opens for reading and writing"};
  const fs::path device = context.system.at("/dev/kfd");
  const int error = open_error(device);
  check.details = {
      {"path", "/dev/kfd"}, {"present", error != ENOENT}, {"opens", error == 0}, {"errno", error}};
  if (error == 0) {
    check.actual = "/dev/kfd opens";
    return check;
  }
  check.status = context.gpu_missing;
  check.actual = "/dev/kfd: " + error_text(error);
  check.remedy = error == ENOENT
                     ? "run on a host with an AMD GPU and its driver (modprobe amdgpu; in a container: "
                       "--device /dev/kfd --device /dev/dri)"
                     : access_remedy(context, device, error);
  return check;
}

Check check_render_nodes(const Context& context) {
  Check check{.name = "render-nodes", .expected = "a render node of AMD (vendor 0x1002) that opens"};
  boost::json::array nodes;
  bool usable = false;
  for (const fs::path& node : context.system.entries(context.system.at("/dev/dri"), "renderD")) {
    const std::string name = node.filename().string();
    const auto vendor = context.system.number(context.system.at("/sys/class/drm/" + name + "/device/vendor"));
    const int error = open_error(node);
    const bool amd = vendor == kAmd;
    usable = usable || (amd && error == 0);
    char id[24] = "unknown";
    if (vendor) std::snprintf(id, sizeof id, "0x%04x", static_cast<unsigned>(*vendor));
    nodes.push_back({{"name", name}, {"vendor", id}, {"opens", error == 0}, {"errno", error}});
    check.actual += (check.actual.empty() ? "" : ", ") + name + " (vendor " + id +
                    (error == 0 ? ")" : "; " + error_text(error) + ")");
    if (amd && error != 0) check.remedy = access_remedy(context, node, error);
  }
  if (nodes.empty()) check.actual = "none in /dev/dri";
  check.details["nodes"] = std::move(nodes);
  if (!usable) {
    check.status = context.gpu_missing;
    if (check.remedy.empty()) check.remedy = "run on a host with an AMD GPU and its driver";
  } else {
    check.remedy.clear();
  }
  return check;
}

Check check_gpu(const Context& context) {
  const std::vector<std::string> gpus = gpu_targets(context);
  Check check{.name = "gpu"};
  check.expected = context.kernel_targets.empty()
                       ? "a GPU that the kernels library is built for"
                       : joined(context.kernel_targets, " or ") + ", as the kernels are";
  check.actual = gpus.empty() ? "KFD lists no GPU" : joined(gpus, ", ");
  check.details = {{"found", json_list(gpus)}, {"wanted", json_list(context.kernel_targets)}};
  const bool fits = std::ranges::any_of(gpus, [&](const std::string& gpu) {
    return context.kernel_targets.empty() ||
           std::ranges::find(context.kernel_targets, gpu) != context.kernel_targets.end();
  });
  if (!fits) {
    check.status = context.gpu_missing;
    check.remedy = gpus.empty() ? "see the checks above" : "use the bundle that is built for this GPU";
  }
  return check;
}

Check check_gpu_memory(const Context& context) {
  Check check{.name = "gtt",
              .expected = size_text(kModelBytes) + " of GTT or VRAM for Qwen3.6-35B-A3B in bf16"};
  boost::json::array cards;
  bool enough = false;
  for (const fs::path& card : context.system.entries(context.system.at("/sys/class/drm"), "card")) {
    const fs::path device = card / "device";
    const auto gtt = context.system.number(device / "mem_info_gtt_total");
    if (context.system.number(device / "vendor") != kAmd || !gtt) continue;
    const std::uint64_t vram = context.system.number(device / "mem_info_vram_total").value_or(0);
    const std::string name = card.filename().string();
    enough = enough || *gtt >= kModelBytes || vram >= kModelBytes;
    cards.push_back({{"name", name}, {"gtt_bytes", *gtt}, {"vram_bytes", vram}});
    check.actual +=
        (check.actual.empty() ? "" : ", ") + name + ": GTT " + size_text(*gtt) + ", VRAM " + size_text(vram);
  }
  if (cards.empty()) {
    check.actual = "no AMD card in /sys/class/drm";
    check.status = context.gpu_missing;
    check.remedy = "see the checks above";
  } else if (!enough) {
    // Judged by its effect: more than one kernel parameter leads there.
    check.status = Status::warn;
    check.remedy =
        "for the full model boot with ttm.pages_limit=" + std::to_string(kModelBytes / 4096 * 5 / 4) +
        " (pages of 4 KiB; leave amdgpu.gttsize alone), and keep the firmware's VRAM carve-out small";
  }
  check.details["cards"] = std::move(cards);
  return check;
}

}  // namespace aima::doctor
