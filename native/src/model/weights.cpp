#include "model/weights.h"

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"

namespace aima::model {
namespace {

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

using Shape = std::vector<std::int64_t>;

/// Looks tensors up, and remembers which ones were used. It walks the model twice: without a store it writes
/// down what is needed, and matrices have no data yet; with one it puts everything in its place.
class Binder {
 public:
  Binder(const Checkpoint& checkpoint, const Config& config, Math math, const TensorStore* store)
      : checkpoint_(checkpoint), c_(config), math_(math), store_(store), prefix_(prefix_of(checkpoint)) {}

  Weights bind() {
    weights_.embed = matrix(prefix_ + "embed_tokens.weight", c_.vocab, c_.hidden);
    weights_.head = c_.tied ? weights_.embed : matrix("lm_head.weight", c_.vocab, c_.hidden);
    if (c_.tied) used_.insert("lm_head.weight");
    weights_.final_norm = gain(prefix_ + "norm.weight", c_.hidden);
    for (std::size_t i = 0; i < c_.layers.size(); ++i) {
      weights_.layers.push_back(layer(prefix_ + "layers." + std::to_string(i) + ".", c_.layers[i]));
    }
    if (checkpoint_.find("mtp.fc.weight") != nullptr) weights_.draft = draft();
    refuse_unknown();
    return std::move(weights_);
  }

  std::vector<Wanted>& wanted() { return wanted_; }

 private:
  static std::string prefix_of(const Checkpoint& checkpoint) {
    constexpr std::string_view outer = "model.language_model.";
    return std::string(checkpoint.find("model.language_model.embed_tokens.weight") != nullptr ? outer
                                                                                              : "model.");
  }

  const Tensor& tensor(const std::string& name, const Shape& shape) {
    const Tensor* found = checkpoint_.find(name);
    if (found == nullptr) {
      base::throw_usage({.what = "the tensor `" + name + "` is missing", .where = checkpoint_.where()});
    }
    const std::string where = std::string(found->file) + ": " + name;
    if (found->dtype == DType::other) {
      base::throw_usage({.what = "the dtype " + found->dtype_name + " is not supported",
                         .where = where,
                         .why = "weights must be BF16, F16 or F32"});
    }
    if (found->shape != shape) {
      base::throw_usage(
          {.what = "the shape is " + shape_text(found->shape) + ", expected " + shape_text(shape),
           .where = where,
           .why = "config.json gives the expected sizes"});
    }
    used_.insert(name);
    return *found;
  }

  /// Where the tensor lies as `dtype`; null while planning.
  const std::byte* place(const std::string& name, const Tensor& tensor, DType dtype, bool passing) {
    if (store_ != nullptr) return store_->find(name);
    const auto stored = checkpoint_.tensors().find(name);
    wanted_.push_back({.name = stored->first, .tensor = &tensor, .dtype = dtype, .passing = passing});
    return nullptr;
  }

  /// As it lies where the math takes that, otherwise converted.
  Matrix as_matrix(const std::string& name, const Shape& shape, std::int64_t rows, std::int64_t cols) {
    const Tensor& found = tensor(name, shape);
    const bool fits = found.dtype == DType::bf16 || (found.dtype == DType::f32 && math_ == Math::f32);
    const DType dtype = fits ? found.dtype : math_ == Math::bf16 ? DType::bf16 : DType::f32;
    return {dtype, place(name, found, dtype, false), rows, cols};
  }

  Matrix matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
    return as_matrix(name, {rows, cols}, rows, cols);
  }

  std::vector<float> floats(const std::string& name, const Shape& shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    std::vector<float> values(static_cast<std::size_t>(count));
    const std::byte* data = place(name, tensor(name, shape), DType::f32, true);
    if (data != nullptr) std::memcpy(values.data(), data, values.size() * sizeof(float));
    return values;
  }

  /// 1 + w of the norms that store their weight around 0.
  std::vector<float> gain(const std::string& name, std::int64_t size) {
    std::vector<float> values = floats(name, {size});
    for (float& value : values) value += 1.0F;
    return values;
  }

  /// [rows][cols] -> [cols][rows]
  static std::vector<float> transposed(const std::vector<float>& values, std::size_t cols) {
    const std::size_t rows = values.size() / cols;
    std::vector<float> out(values.size());
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < cols; ++c) out[c * rows + r] = values[r * cols + c];
    }
    return out;
  }

  GdnWeights gdn(const std::string& p) {
    GdnWeights w;
    w.qkv = matrix(p + "in_proj_qkv.weight", c_.conv_width(), c_.hidden);
    w.z = matrix(p + "in_proj_z.weight", c_.gdn_value_width(), c_.hidden);
    w.a = matrix(p + "in_proj_a.weight", c_.gdn_value_heads, c_.hidden);
    w.b = matrix(p + "in_proj_b.weight", c_.gdn_value_heads, c_.hidden);
    w.out = matrix(p + "out_proj.weight", c_.hidden, c_.gdn_value_width());
    w.conv = transposed(floats(p + "conv1d.weight", {c_.conv_width(), 1, conv_taps}), conv_taps);
    w.decay = floats(p + "A_log", {c_.gdn_value_heads});
    for (float& value : w.decay) value = -std::exp(value);
    w.dt_bias = floats(p + "dt_bias", {c_.gdn_value_heads});
    w.norm = floats(p + "norm.weight", {c_.gdn_value_dim});
    return w;
  }

  AttentionWeights attention(const std::string& p) {
    AttentionWeights w;
    w.q = matrix(p + "q_proj.weight", 2 * c_.query_width(), c_.hidden);
    w.k = matrix(p + "k_proj.weight", c_.kv_width(), c_.hidden);
    w.v = matrix(p + "v_proj.weight", c_.kv_width(), c_.hidden);
    w.out = matrix(p + "o_proj.weight", c_.hidden, c_.query_width());
    w.q_norm = gain(p + "q_norm.weight", c_.head_dim);
    w.k_norm = gain(p + "k_norm.weight", c_.head_dim);
    return w;
  }

  Expert expert(const std::string& p, std::int64_t width) {
    return {.gate = matrix(p + "gate_proj.weight", width, c_.hidden),
            .up = matrix(p + "up_proj.weight", width, c_.hidden),
            .down = matrix(p + "down_proj.weight", c_.hidden, width)};
  }

  std::vector<Expert> fused_experts(const std::string& p) {
    const std::int64_t width = c_.expert_width;
    const Matrix all_gate_up =
        as_matrix(p + "gate_up_proj", {c_.experts, 2 * width, c_.hidden}, c_.experts * 2 * width, c_.hidden);
    const Matrix all_down =
        as_matrix(p + "down_proj", {c_.experts, c_.hidden, width}, c_.experts * c_.hidden, width);
    if (store_ == nullptr) return {};
    std::vector<Expert> experts;
    experts.reserve(static_cast<std::size_t>(c_.experts));
    for (std::int64_t e = 0; e < c_.experts; ++e) {
      experts.push_back({.gate = all_gate_up.slice(2 * e * width, width),
                         .up = all_gate_up.slice((2 * e + 1) * width, width),
                         .down = all_down.slice(e * c_.hidden, c_.hidden)});
    }
    return experts;
  }

  MoeWeights moe(const std::string& p) {
    MoeWeights w;
    w.router = matrix(p + "gate.weight", c_.experts, c_.hidden);
    if (checkpoint_.find(p + "experts.0.gate_proj.weight") != nullptr) {
      for (std::int64_t e = 0; e < c_.experts; ++e) {
        w.experts.push_back(expert(p + "experts." + std::to_string(e) + ".", c_.expert_width));
      }
    } else {
      w.experts = fused_experts(p + "experts.");
    }
    w.shared = expert(p + "shared_expert.", c_.shared_width);
    w.shared_gate = matrix(p + "shared_expert_gate.weight", 1, c_.hidden);
    return w;
  }

  LayerWeights layer(const std::string& p, LayerKind kind) {
    LayerWeights w;
    w.input_norm = gain(p + "input_layernorm.weight", c_.hidden);
    w.post_norm = gain(p + "post_attention_layernorm.weight", c_.hidden);
    if (kind == LayerKind::gdn) {
      w.gdn = gdn(p + "linear_attn.");
    } else {
      w.attention = attention(p + "self_attn.");
    }
    w.moe = moe(p + "mlp.");
    return w;
  }

  DraftWeights draft() {
    DraftWeights w;
    w.embed_norm = gain("mtp.pre_fc_norm_embedding.weight", c_.hidden);
    w.hidden_norm = gain("mtp.pre_fc_norm_hidden.weight", c_.hidden);
    w.fc = matrix("mtp.fc.weight", c_.hidden, 2 * c_.hidden);
    w.layer = layer("mtp.layers.0.", LayerKind::attention);
    w.norm = gain("mtp.norm.weight", c_.hidden);
    return w;
  }

  void refuse_unknown() const {
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (used_.contains(name) || name.starts_with("model.visual.") || name.starts_with("mtp.")) continue;
      base::throw_usage({.what = "the tensor `" + name + "` is not part of this architecture",
                         .where = std::string(tensor.file),
                         .why = "leaving it out would change the result"});
    }
  }

  const Checkpoint& checkpoint_;
  const Config& c_;
  Math math_;
  const TensorStore* store_;
  Weights weights_ = {};
  std::vector<Wanted> wanted_;
  std::string prefix_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace

WeightsPlan plan_weights(const Checkpoint& checkpoint, const Config& config, Math math) {
  Binder binder(checkpoint, config, math, nullptr);
  binder.bind();
  return {std::move(binder.wanted())};
}

Weights bind_weights(const Checkpoint& checkpoint, const Config& config, Math math,
                     std::shared_ptr<TensorStore> store) {
  Weights weights = Binder(checkpoint, config, math, store.get()).bind();
  store->release_passing();
  weights.store = std::move(store);
  return weights;
}

Weights load_weights(const Checkpoint& checkpoint, const Config& config, Math math,
                     const LoadOptions& options) {
  const WeightsPlan plan = plan_weights(checkpoint, config, math);
  return bind_weights(checkpoint, config, math,
                      std::make_shared<TensorStore>(checkpoint, plan.wanted, options));
}

}  // namespace aima::model
