// Where the bundle lies that this process was started from.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace aima::base {

/// How the root was looked for and what was found; doctor prints it.
struct BundleRoot {
  std::optional<std::filesystem::path> root{};  ///< holds libexec/aima-engine.real; empty in a development build
  std::filesystem::path image{};  ///< the engine's own file, as the loader opened it (dladdr); empty if unknown
  std::string note{};             ///< why there is no root, or where the sources disagree
};

/// The root, worked out once. No environment variable has a say. In a bundle the engine is
/// ROOT/libexec/aima-engine.real and runs under the loader copy ROOT/libexec/aima-engine, so /proc/self/exe names
/// the loader and dladdr (or AT_EXECFN) names the engine: both must agree on ROOT (packaging.md 0.7, C25).
const BundleRoot& bundle_root();

/// The rule behind it, apart from the process: `image` from dladdr or AT_EXECFN, `exe` from /proc/self/exe.
BundleRoot find_bundle_root(const std::filesystem::path& image, const std::filesystem::path& exe);

}  // namespace aima::base
