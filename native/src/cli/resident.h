/// A model folder, a device and an engine, as the options ask for: what every command that computes shares.
#pragma once

#include <array>
#include <boost/json/object.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "device/device.h"
#include "engine/engine.h"
#include "engine/loaded_model.h"
#include "engine/memory_plan.h"

namespace aima::cli {

inline constexpr std::array<Option, 7> resident_options = {{
    {"model-dir", "DIR", "folder with config.json, the .safetensors files and tokenizer.json"},
    {"device", "NAME", "cpu, the only one in this version"},
    {"math", "MODE", "bf16 (default), or f32: round no input of a matrix product"},
    {"threads", "N", "threads to compute with, each pinned to a core (default: one per usable core)"},
    {"isa", "NAME", "instruction set, no better than the processor's (default: the best; see doctor)"},
    {"context-tokens", "N", "most tokens in one prefill pass, a multiple of 64 (default 8192)"},
    {"cache-capacity", "N", "window: most tokens of prompt and reply (default: what fits, up to 262144)"},
}};

class Resident {
 public:
  /// Loads the model. Throws usage errors for options that cannot be.
  explicit Resident(const Arguments& arguments);

  struct Start {
    std::int64_t longest_prompt =
        engine::max_context_tokens;  ///< no prompt is longer: a smaller workspace does
    std::size_t cache_bytes = 0;     ///< of the prefix cache
    bool reuse_decode_state = false;
  };
  /// States what memory it takes, refuses what does not fit, and makes the engine.
  engine::Engine& start(const Start& start);

  const engine::LoadedModel& model() const { return *model_; }
  device::Device& device() { return *device_; }
  const device::Facts& facts() const { return device_->facts(); }
  std::vector<device::JointTime> joint_times() const { return device_->joint_times(); }
  const engine::MemoryPlan& plan() const { return plan_; }
  double load_seconds() const { return load_seconds_; }

  /// The plan against the peak so far, in bytes.
  boost::json::object memory_json() const;
  /// The same as one line for people.
  std::string memory_line() const;

 private:
  std::int64_t context_tokens_;
  std::optional<std::int64_t> capacity_;
  std::unique_ptr<engine::LoadedModel> model_;
  std::unique_ptr<device::Device> device_;
  engine::MemoryPlan plan_;
  std::unique_ptr<engine::Engine> engine_;
  double load_seconds_ = 0;
};

}  // namespace aima::cli
