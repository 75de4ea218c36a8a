#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "base/build_info.h"
#include "cli/commands.h"
#include "device/cpu/tables.h"

namespace aima::cli {
namespace {

boost::json::object json_of(const base::BuildInfo& info) {
  boost::json::array libraries;
  for (const base::LibraryInfo& library : info.libraries) {
    libraries.push_back(boost::json::object{{"name", library.name}, {"version", library.version}});
  }
  boost::json::array isa;
  for (const std::string_view name : device::cpu::isa_names) isa.push_back(boost::json::value(name));
  boost::json::object kernels{
      {"target", info.kernels_target}, {"count", info.kernel_count}, {"plan_digest", info.plan_digest}};
  return {{"schema", "aima/build-info/v1"},
          {"version", info.version},
          {"commit", info.commit},
          {"recipe", info.recipe},
          {"compiler", info.compiler},
          {"host_target", info.host_target},
          {"toolchain_digest", info.toolchain_digest},
          {"kernels",
           info.kernels_target.empty() ? boost::json::value() : boost::json::value(std::move(kernels))},
          {"cpu_instruction_sets", std::move(isa)},
          {"libraries", std::move(libraries)}};
}

}  // namespace

void print_build_info() { write_out(boost::json::serialize(json_of(base::build_info())) + "\n"); }

}  // namespace aima::cli
