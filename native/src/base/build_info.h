/// What this binary is. The build graph writes `build_info.cpp`, which defines `build_info()`; see
/// docs/architecture.md.
#pragma once

#include <span>
#include <string_view>

namespace aima::base {

/// A library compiled into the engine.
struct LibraryInfo {
  std::string_view name;     ///< for example "Boost"
  std::string_view version;  ///< for example "1.90.0"
};

struct BuildInfo {
  std::string_view version;   ///< of the project, for example "0.1.0"
  std::string_view commit;    ///< source commit, "-dirty" appended when files differed; "unknown" outside git
  std::string_view recipe;    ///< name of the recipe
  std::string_view compiler;  ///< for example "clang 22.1.8 (ziglang 0.17.1)"
  std::string_view host_target;  ///< for example "x86_64-linux-gnu.2.28"
  std::string_view
      kernels_target;            ///< for example "gfx1151"; empty when the recipe builds no kernels library
  int kernel_count;              ///< kernels in that library
  std::string_view plan_digest;  ///< of the kernel plan; the kernels library's `build` says the same
  std::string_view toolchain_digest;  ///< of the locked parts that compiled it
  std::span<const LibraryInfo> libraries;
};

/// Defined by the generated source.
const BuildInfo& build_info();

}  // namespace aima::base
