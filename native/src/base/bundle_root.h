/// Where the bundle lies that this process was started from.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace aima::base {

/// What was found and how; doctor prints it.
struct BundleRoot {
  /// Holds libexec/aima-engine.real and share/aima/manifest.json; empty in a development build.
  std::optional<std::filesystem::path> root{};
  /// The engine's own file, links resolved; empty when unknown.
  std::filesystem::path image{};
  /// Why there is no root, or what is unusual about it; otherwise empty.
  std::string note{};
};

/// The root, worked out on first use. No environment variable has a say. In a bundle the engine is
/// ROOT/libexec/aima-engine.real and runs under the loader copy ROOT/libexec/aima-engine, so that
/// /proc/self/exe names the loader; AT_EXECFN, which the loader corrects, names the engine.
const BundleRoot& bundle_root();

/// The rule behind it, apart from the process: `image` as in AT_EXECFN, `exe` as in /proc/self/exe, either
/// may be empty.
BundleRoot find_bundle_root(const std::filesystem::path& image, const std::filesystem::path& exe);

}  // namespace aima::base
