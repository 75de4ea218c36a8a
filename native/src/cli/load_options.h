/// The options of every command that loads weights, and what such a command says about the load.
#pragma once

#include <array>
#include <boost/json/object.hpp>
#include <filesystem>
#include <string>

#include "cli/options.h"
#include "engine/loaded_model.h"

namespace aima::cli {

inline constexpr std::array<Option, 3> load_options = {{
    {"mmap", "", "map the weights instead of reading them: starts at once, pages come in as they are used"},
    {"load-threads", "N", "workers that read the weights (default: one per usable core, 4 to 8)"},
    {"expect-manifest", "FILE",
     "refuse weights that differ from this manifest (default: aima-weights.json in DIR)"},
}};

/// Reads the three options. Long loads show their progress on stderr where that is a terminal.
engine::LoadRequest load_request(const Arguments& arguments);

/// aima-engine's "load" object: method, workers, tensors, bytes, read_bytes, seconds, gb_per_second,
/// held_bytes, mapped_bytes.
boost::json::object json_of(const model::LoadReport& report);
/// The same with weights_digest and manifest (null where there is none).
boost::json::object load_json(const engine::LoadedModel& model);

/// "read 69.32 GB in 20.1 s with 8 workers, 3.45 GB/s"
std::string load_line(const model::LoadReport& report);

/// A watch that shows progress on a terminal.
model::Watch terminal_watch();

}  // namespace aima::cli
