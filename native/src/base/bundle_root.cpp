#include "base/bundle_root.h"

#include <sys/auxv.h>

#include <system_error>

namespace aima::base {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEngine = "aima-engine.real";
constexpr const char* kLoader = "aima-engine";

/// The path with every link resolved; empty when nothing is there.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  if (path.empty()) return {};
  fs::path found = fs::canonical(path, error);
  return error ? fs::path() : found;
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

}  // namespace

BundleRoot find_bundle_root(const fs::path& image, const fs::path& exe) {
  BundleRoot found;
  const fs::path program = resolved(exe);
  found.image = resolved(image);
  if (found.image.empty()) found.image = program;
  if (found.image.filename() != kEngine || found.image.parent_path().filename() != "libexec") {
    found.note = "the engine is not libexec/aima-engine.real of a bundle: a development build";
    return found;
  }
  const fs::path root = found.image.parent_path().parent_path();
  if (!is_file(root / "share/aima/manifest.json")) {
    found.note = "there is no share/aima/manifest.json beside the engine: a development build";
    return found;
  }
  found.root = root;
  if (is_file(root / "libexec" / kLoader) && program != root / "libexec" / kLoader) {
    found.note = "started by " + (program.empty() ? "an unknown loader" : program.string()) +
                 " and not through bin/aima-engine: libraries of the host may be in use";
  }
  return found;
}

const BundleRoot& bundle_root() {
  static const BundleRoot found = [] {
    const auto* image = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
    std::error_code error;
    const fs::path exe = fs::read_symlink("/proc/self/exe", error);
    return find_bundle_root(image == nullptr ? fs::path() : fs::path(image), error ? fs::path() : exe);
  }();
  return found;
}

}  // namespace aima::base
