/// A model on the CPU device, and sequences on it. The model computes for one caller at a time; others wait.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/tables.h"
#include "engine/loaded_model.h"
#include "engine/session.h"
#include "python.h"

namespace aima::bindings {
namespace {

using device::cpu::CpuDevice;

struct Model {
  std::unique_ptr<engine::LoadedModel> loaded;
  std::unique_ptr<CpuDevice> device;
  std::mutex running;

  const model::Config& config() const { return loaded->config; }

  /// Runs `work` with the device to itself.
  void run(const std::function<void()>& work) {
    compute([&](const std::atomic<bool>& stop) {
      const std::lock_guard lock(running);
      device->set_stop(&stop);
      try {
        work();
      } catch (...) {
        device->set_stop(nullptr);
        throw;
      }
      device->set_stop(nullptr);
    });
  }
};

using ModelHandle = std::shared_ptr<Model>;

Math math_of(const std::string& name) {
  if (name != "f32" && name != "bf16") {
    base::throw_usage({.what = "math cannot be `" + name + "`", .why = "it is one of: bf16, f32"});
  }
  return name == "f32" ? Math::f32 : Math::bf16;
}

ModelHandle open_model(const std::filesystem::path& folder, const std::string& math_name, int threads,
                       const std::string& isa) {
  const Math math = math_of(math_name);
  if (threads < 0 || threads > 1024) base::throw_usage({.what = "threads must be 0 to 1024"});
  const device::cpu::Isa* table = isa.empty() ? nullptr : &device::cpu::isa_named(isa);
  auto model = std::make_shared<Model>();
  compute([&](const std::atomic<bool>&) {
    model->loaded = engine::load_model(folder, math);
    model->device =
        std::make_unique<CpuDevice>(model->loaded->config, model->loaded->weights,
                                    device::cpu::CpuOptions{.math = math, .threads = threads, .isa = table});
    model->device->set_vocab_limit(model->loaded->vocab_limit());
  });
  return model;
}

struct Snapshot {
  ModelHandle model;  // first: it must outlive the snapshot
  std::unique_ptr<device::Snapshot> held;
};

/// What one call computed. Arrays that were not asked for are None.
struct Pass {
  FloatArray logits;
  py::object experts = py::none();
  py::object weights = py::none();
  py::object draft_logits = py::none();
  std::int32_t next = 0;
};

/// Collects whole rows behind one another in an array.
engine::LogitsSink fill(float*& at) {
  return [&at](std::span<const float> rows) { at = std::ranges::copy(rows, at).out; };
}

/// Collects the routers' choices as [layers, tokens, k], pass after pass.
class RoutingCollector {
 public:
  RoutingCollector(const model::Config& config, std::int64_t tokens)
      : layers_(static_cast<int>(config.layers.size())),
        width_(tokens * config.experts_per_token),
        ids_({static_cast<std::int64_t>(layers_), tokens, config.experts_per_token}),
        weights_({static_cast<std::int64_t>(layers_), tokens, config.experts_per_token}),
        ids_at_(ids_.mutable_data()),
        weights_at_(weights_.mutable_data()) {}

  engine::RoutingSink sink() {
    return [this](int layer, std::span<const std::int32_t> ids, std::span<const float> weights) {
      const std::int64_t at = layer * width_ + done_;
      std::ranges::copy(ids, ids_at_ + at);
      std::ranges::copy(weights, weights_at_ + at);
      if (layer + 1 == layers_) done_ += static_cast<std::int64_t>(ids.size());
    };
  }
  void give(Pass& pass) const {
    pass.experts = ids_;
    pass.weights = weights_;
  }

 private:
  int layers_;
  std::int64_t width_;
  IntArray ids_;
  FloatArray weights_;
  std::int32_t* ids_at_;  // taken while the lock is held
  float* weights_at_;
  std::int64_t done_ = 0;
};

struct PrefillOptions {
  bool every = true;
  bool experts = false;
  bool draft = false;
};

class Session {
 public:
  Session(ModelHandle model, std::int64_t capacity, std::int64_t pass_tokens) : model_(std::move(model)) {
    if (capacity < 1 || capacity > model_->config().max_positions) {
      base::throw_usage({.what = "a session of " + std::to_string(capacity) + " tokens cannot be made",
                         .why = "the model takes 1 to " + std::to_string(model_->config().max_positions)});
    }
    if (pass_tokens < device::block_tokens || pass_tokens > engine::max_context_tokens ||
        pass_tokens % device::block_tokens != 0) {
      base::throw_usage({.what = "pass_tokens must be a multiple of 64, at most 8192"});
    }
    model_->run([&] {
      held_ = std::make_unique<engine::Session>(*model_->device, model_->config(), capacity, pass_tokens);
    });
  }

  std::int64_t position() const { return held_->position(); }
  std::int64_t capacity() { return held_->state().capacity(); }

  Pass prefill(const py::object& given, const PrefillOptions& options) {
    const Ids ids(given);
    const auto tokens = static_cast<std::int64_t>(ids.span().size());
    if (options.draft && !model_->device->has_draft_head()) {
      base::throw_usage(
          {.what = "the checkpoint has no draft head", .why = "there is no tensor `mtp.fc.weight`"});
    }
    const std::int64_t vocab = model_->config().vocab;
    const std::int64_t drafts = options.draft ? std::max<std::int64_t>(tokens - 1, 0) : 0;
    FloatArray logits({options.every ? tokens : 1, vocab});
    FloatArray draft_logits({drafts, vocab});
    std::optional<RoutingCollector> routing;
    if (options.experts) routing.emplace(model_->config(), tokens);
    float* const first = logits.mutable_data();
    float* at = first;
    float* drafts_at = draft_logits.mutable_data();
    engine::Probe probe;
    if (routing) probe.routing = routing->sink();
    if (options.draft) probe.draft = fill(drafts_at);
    const engine::LogitsSink last = [&](std::span<const float> rows) {
      std::ranges::copy(rows.last(static_cast<std::size_t>(vocab)), first);
    };
    Pass pass;
    run([&] { pass.next = held_->prefill(ids.span(), options.every ? fill(at) : last, probe); });
    pass.logits = std::move(logits);
    if (routing) routing->give(pass);
    if (options.draft) pass.draft_logits = std::move(draft_logits);
    return pass;
  }

  Pass step(std::int32_t id, bool experts) {
    FloatArray logits({std::int64_t{1}, model_->config().vocab});
    std::optional<RoutingCollector> routing;
    if (experts) routing.emplace(model_->config(), 1);
    float* at = logits.mutable_data();
    Pass pass;
    run([&] { pass.next = held_->decode(id, fill(at), routing ? routing->sink() : engine::RoutingSink()); });
    pass.logits = std::move(logits);
    if (routing) routing->give(pass);
    return pass;
  }

  py::tuple delta_state(int layer) {
    const model::Config& c = model_->config();
    if (layer < 0 || layer >= static_cast<int>(c.layers.size()) ||
        c.layers[static_cast<std::size_t>(layer)] != model::LayerKind::gdn) {
      base::throw_usage({.what = "layer " + std::to_string(layer) + " has no delta state"});
    }
    FloatArray delta({c.gdn_value_heads, c.gdn_key_dim, c.gdn_value_dim});
    FloatArray tail({model::conv_taps - 1, c.conv_width()});
    const std::span delta_span(delta.mutable_data(), static_cast<std::size_t>(delta.size()));
    const std::span tail_span(tail.mutable_data(), static_cast<std::size_t>(tail.size()));
    run([&] { model_->device->read_delta_state(held_->state(), layer, delta_span, tail_span); });
    return py::make_tuple(delta, tail);
  }

  Snapshot snapshot() {
    Snapshot made{.model = model_, .held = nullptr};
    run([&] { made.held = model_->device->snapshot(held_->state()); });
    return made;
  }

  void restore(const Snapshot& snapshot) {
    if (snapshot.model != model_) base::throw_usage({.what = "the snapshot is of another model"});
    broken_ = false;
    run([&] { model_->device->restore(held_->state(), *snapshot.held); });
  }

  void clear() {
    broken_ = false;
    run([&] { model_->device->clear(held_->state()); });
  }

 private:
  /// A call that failed on the way leaves a state that is neither the old one nor the new one.
  void run(const std::function<void()>& work) {
    if (broken_) {
      throw base::Error(
          {.what = "the session's last call did not finish", .hint = "clear() it, or restore() a snapshot"});
    }
    const std::int64_t before = position();
    try {
      model_->run(work);
    } catch (const base::Error& error) {
      broken_ = error.exit() != base::Exit::usage || position() != before;
      throw;
    } catch (...) {
      broken_ = true;
      throw;
    }
  }

  ModelHandle model_;  // first: the session lives on its device
  std::unique_ptr<engine::Session> held_;
  bool broken_ = false;
};

std::shared_ptr<text::Tokenizer> tokenizer_of(const ModelHandle& model) {
  return {model, model->loaded->tokenizer.get()};
}

std::vector<std::string> layers_of(const Model& model) {
  std::vector<std::string> names;
  for (const model::LayerKind kind : model.config().layers) {
    names.emplace_back(kind == model::LayerKind::gdn ? "linear_attention" : "full_attention");
  }
  return names;
}

void add_session(py::module_& module) {
  py::class_<Pass>(module, "Pass")
      .def_readonly("logits", &Pass::logits)
      .def_readonly("experts", &Pass::experts)
      .def_readonly("weights", &Pass::weights)
      .def_readonly("draft_logits", &Pass::draft_logits)
      .def_readonly("next", &Pass::next);
  py::class_<Snapshot>(module, "Snapshot").def_property_readonly("position", [](const Snapshot& snapshot) {
    return snapshot.held->position();
  });
  py::class_<Session>(module, "Session")
      .def_property_readonly("position", &Session::position)
      .def_property_readonly("capacity", &Session::capacity)
      .def(
          "prefill",
          [](Session& session, const py::object& ids, bool every, bool experts, bool draft) {
            return session.prefill(ids, {.every = every, .experts = experts, .draft = draft});
          },
          py::arg("ids"), py::kw_only(), py::arg("every") = true, py::arg("experts") = false,
          py::arg("draft") = false)
      .def("step", &Session::step, py::arg("id"), py::kw_only(), py::arg("experts") = false)
      .def("delta_state", &Session::delta_state, py::arg("layer"))
      .def("snapshot", &Session::snapshot)
      .def("restore", &Session::restore, py::arg("snapshot"))
      .def("clear", &Session::clear);
}

}  // namespace

void add_model(py::module_& module) {
  add_session(module);
  py::class_<Model, ModelHandle>(module, "Model")
      .def(py::init(&open_model), py::arg("folder"), py::kw_only(), py::arg("math") = "bf16",
           py::arg("threads") = 0, py::arg("isa") = "")
      .def_property_readonly("layers", layers_of)
      .def_property_readonly("vocab", [](const Model& m) { return m.config().vocab; })
      .def_property_readonly("hidden", [](const Model& m) { return m.config().hidden; })
      .def_property_readonly("experts", [](const Model& m) { return m.config().experts; })
      .def_property_readonly("experts_per_token", [](const Model& m) { return m.config().experts_per_token; })
      .def_property_readonly("max_positions", [](const Model& m) { return m.config().max_positions; })
      .def_property_readonly("stop_ids", [](const Model& m) { return m.loaded->stop_ids; })
      .def_property_readonly("has_draft_head", [](const Model& m) { return m.device->has_draft_head(); })
      .def_property_readonly("device", [](const Model& m) { return m.device->facts().detail; })
      .def_property_readonly("math", [](const Model& m) { return name_of(m.device->facts().math); })
      .def_property_readonly("tokenizer", tokenizer_of)
      .def(
          "session",
          [](const ModelHandle& model, std::int64_t capacity, std::int64_t pass_tokens) {
            return Session(model, capacity, pass_tokens);
          },
          py::arg("capacity"), py::kw_only(), py::arg("pass_tokens") = engine::max_context_tokens);
}

}  // namespace aima::bindings
