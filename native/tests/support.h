/// Helpers of several tests: random rows, temporary folders, small checkpoints of the real architecture.
#pragma once

#include <stdlib.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "base/numbers.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/tables.h"

namespace aima::test {

/// Every inner-loop table that this processor can run.
using device::cpu::usable_isas;

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(engine_); }
  float normal(float scale = 1, float mean = 0) {
    return std::normal_distribution<float>(mean, scale)(engine_);
  }
  std::int64_t below(std::int64_t limit) {
    return std::uniform_int_distribution<std::int64_t>(0, limit - 1)(engine_);
  }
  std::vector<float> normals(std::int64_t count, float scale = 1, float mean = 0) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal(scale, mean);
    return values;
  }

 private:
  std::mt19937 engine_;
};

/// An operation's context with its own threads.
struct OpContext {
  explicit OpContext(const device::cpu::Isa& isa, Math math = Math::f32, int threads = 2)
      : pool(threads), scratch(threads), context{isa, pool, scratch, math} {}

  base::ThreadPool pool;
  device::cpu::Scratch scratch;
  device::cpu::Context context;
};

/// A folder that disappears with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "aima-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

/// The error that `work` throws; its `what` is empty when it throws none.
inline base::Error error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const base::Error& error) {
    return error;
  }
  return base::Error({.what = ""});
}

/// A tensor to write: name, dtype as safetensors spells it, shape, values.
struct TestTensor {
  std::string dtype = "BF16";
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

inline std::uint16_t f16_from_float(float value) {  // values of tests are normal halves, or zero
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) == 0) return 0;
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | ((((bits >> 23) & 0xffU) - 112) << 10) |
                                    ((bits >> 13) & 0x3ffU));
}

inline std::string bytes_of(const TestTensor& tensor) {
  std::string out;
  for (const float value : tensor.values) {
    if (tensor.dtype == "F32") {
      out.append(reinterpret_cast<const char*>(&value), 4);
      continue;
    }
    const std::uint16_t bits = tensor.dtype == "F16" ? f16_from_float(value) : base::bf16_from_float(value);
    out.append(reinterpret_cast<const char*>(&bits), 2);
  }
  return out;
}

/// A whole safetensors file from a header and its data.
inline std::string safetensors(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), 8);
  return file.append(header).append(data);
}

inline std::string safetensors(const std::map<std::string, TestTensor>& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t begin = data.size();
    data += bytes_of(tensor);
    header += ",\"" + name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      header += (i > 0 ? "," : "") + std::to_string(tensor.shape[i]);
    }
    header += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  return safetensors(header + "}", data);
}

/// Sizes of a small model. None is a multiple of 8, so that every inner loop has a tail.
struct SmallModel {
  std::int64_t hidden = 44, vocab = 101, heads = 6, kv_heads = 2, head_dim = 20, gdn_key_heads = 2,
               gdn_value_heads = 6, gdn_key_dim = 12, gdn_value_dim = 18, experts = 7, experts_per_token = 3,
               expert_width = 22, shared_width = 26;
  std::vector<std::string> layers = {"linear_attention", "full_attention", "linear_attention",
                                     "full_attention"};
  std::string dtype = "BF16";
  bool split_experts = false;
  bool extras = false;  ///< vision and draft head (MTP) tensors too
  std::string prefix = "model.language_model.";

  std::string config() const;
  std::map<std::string, TestTensor> tensors(std::uint32_t seed = 1) const;
  void write(const std::filesystem::path& folder, std::uint32_t seed = 1) const {
    write_file(folder / "config.json", config());
    write_file(folder / "model.safetensors", safetensors(tensors(seed)));
  }
};

inline std::string SmallModel::config() const {
  std::string kinds;
  for (const std::string& kind : layers) kinds += (kinds.empty() ? "\"" : ", \"") + kind + "\"";
  const auto field = [](const char* name, std::int64_t value) {
    return "    \"" + std::string(name) + "\": " + std::to_string(value) + ",\n";
  };
  return "{\n  \"architectures\": [\"Qwen3_5MoeForConditionalGeneration\"],\n  \"text_config\": {\n" +
         field("hidden_size", hidden) + field("vocab_size", vocab) +
         field("num_hidden_layers", static_cast<std::int64_t>(layers.size())) +
         field("num_attention_heads", heads) + field("num_key_value_heads", kv_heads) +
         field("head_dim", head_dim) + field("linear_num_key_heads", gdn_key_heads) +
         field("linear_num_value_heads", gdn_value_heads) + field("linear_key_head_dim", gdn_key_dim) +
         field("linear_value_head_dim", gdn_value_dim) + field("num_experts", experts) +
         field("num_experts_per_tok", experts_per_token) + field("moe_intermediate_size", expert_width) +
         field("shared_expert_intermediate_size", shared_width) + field("max_position_embeddings", 4096) +
         "    \"rms_norm_eps\": 1e-06,\n    \"layer_types\": [" + kinds +
         "],\n    \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000000, "
         "\"partial_rotary_factor\": 0.5}\n  }\n}\n";
}

inline std::map<std::string, TestTensor> SmallModel::tensors(std::uint32_t seed) const {
  Random random(seed);
  std::map<std::string, TestTensor> out;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, float scale,
                       float mean = 0) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    std::vector<float> values = random.normals(count, scale, mean);
    for (float& value : values) value = base::round_to_bf16(value);  // exact in every dtype
    out[name] = {dtype, std::move(shape), std::move(values)};
  };
  const auto linear = [&](const std::string& name, std::int64_t rows, std::int64_t cols, float scale = 1) {
    add(name, {rows, cols}, scale / std::sqrt(static_cast<float>(cols)));
  };
  linear(prefix + "embed_tokens.weight", vocab, hidden, std::sqrt(static_cast<float>(hidden)));
  linear("lm_head.weight", vocab, hidden, 3);
  add(prefix + "norm.weight", {hidden}, 0.15F);
  const std::int64_t keys = gdn_key_heads * gdn_key_dim;
  const std::int64_t values = gdn_value_heads * gdn_value_dim;
  const auto layer = [&](const std::string& p, bool full_attention) {
    add(p + "input_layernorm.weight", {hidden}, 0.15F);
    add(p + "post_attention_layernorm.weight", {hidden}, 0.15F);
    linear(p + "mlp.gate.weight", experts, hidden, 3);
    if (split_experts) {
      for (std::int64_t e = 0; e < experts; ++e) {
        const std::string x = p + "mlp.experts." + std::to_string(e) + ".";
        linear(x + "gate_proj.weight", expert_width, hidden);
        linear(x + "up_proj.weight", expert_width, hidden);
        linear(x + "down_proj.weight", hidden, expert_width, 0.5F);
      }
    } else {
      add(p + "mlp.experts.gate_up_proj", {experts, 2 * expert_width, hidden},
          1 / std::sqrt(static_cast<float>(hidden)));
      add(p + "mlp.experts.down_proj", {experts, hidden, expert_width},
          0.5F / std::sqrt(static_cast<float>(expert_width)));
    }
    linear(p + "mlp.shared_expert.gate_proj.weight", shared_width, hidden);
    linear(p + "mlp.shared_expert.up_proj.weight", shared_width, hidden);
    linear(p + "mlp.shared_expert.down_proj.weight", hidden, shared_width, 0.5F);
    linear(p + "mlp.shared_expert_gate.weight", 1, hidden);
    if (full_attention) {
      const std::string a = p + "self_attn.";
      linear(a + "q_proj.weight", 2 * heads * head_dim, hidden);
      linear(a + "k_proj.weight", kv_heads * head_dim, hidden);
      linear(a + "v_proj.weight", kv_heads * head_dim, hidden);
      linear(a + "o_proj.weight", hidden, heads * head_dim, 0.5F);
      add(a + "q_norm.weight", {head_dim}, 0.3F, 0.5F);
      add(a + "k_norm.weight", {head_dim}, 0.3F, 0.5F);
      return;
    }
    const std::string g = p + "linear_attn.";
    linear(g + "in_proj_qkv.weight", 2 * keys + values, hidden);
    linear(g + "in_proj_z.weight", values, hidden);
    linear(g + "in_proj_a.weight", gdn_value_heads, hidden);
    linear(g + "in_proj_b.weight", gdn_value_heads, hidden);
    add(g + "conv1d.weight", {2 * keys + values, 1, 4}, 0.5F);
    add(g + "A_log", {gdn_value_heads}, 1, -0.5F);
    add(g + "dt_bias", {gdn_value_heads}, 1, -1.5F);
    add(g + "norm.weight", {gdn_value_dim}, 0.15F, 1);
    linear(g + "out_proj.weight", hidden, values, 0.5F);
  };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layer(prefix + "layers." + std::to_string(i) + ".", layers[i] == "full_attention");
  }
  if (extras) {
    add("model.visual.patch_embed.proj.weight", {3, 2}, 1);
    linear("mtp.fc.weight", hidden, 2 * hidden);
    for (const char* name : {"norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"}) {
      add("mtp." + std::string(name) + ".weight", {hidden}, 0.15F);
    }
    layer("mtp.layers.0.", true);
  }
  return out;
}

}  // namespace aima::test
