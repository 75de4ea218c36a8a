#include "model/config.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace aima::model {
namespace {

using base::json::Object;

constexpr std::string_view outer_architecture = "Qwen3_5MoeForConditionalGeneration";
constexpr std::string_view text_architecture = "Qwen3_5MoeForCausalLM";

/// A size: 1 .. 2^24, so that products of two stay far from overflow.
std::int64_t size_of(const Object& o, std::string_view key) {
  const std::int64_t value = o.integer(key);
  if (value < 1 || value > (1 << 24)) o.refuse(key, "a size between 1 and 16777216 is expected here");
  return value;
}

void require(bool holds, const Object& o, std::string_view key, std::string what, std::string why = {}) {
  if (!holds) o.refuse(key, std::move(what), std::move(why));
}

/// True: a text-only config, whose fields stand at the top.
bool check_architecture(const Object& top) {
  const auto& names = top.array("architectures");
  const boost::json::string* name = names.size() == 1 ? names[0].if_string() : nullptr;
  if (name == nullptr) top.refuse("architectures", "a list of one name is expected here");
  if (*name == outer_architecture) return false;
  if (*name == text_architecture) return true;
  top.refuse(
      "architectures", "the architecture `" + std::string(*name) + "` is not supported",
      "this engine runs " + std::string(outer_architecture) + " and " + std::string(text_architecture));
}

/// Switches that change the computation, at the only value that this engine computes.
void check_switches(const Object& top, const Object& text) {
  if (top.has("quantization_config")) {
    top.refuse("quantization_config", "quantised checkpoints are not supported",
               "tensors must be BF16, F16 or F32");
  }
  require(text.string_or("hidden_act", "silu") == "silu", text, "hidden_act", "only silu is supported");
  require(!text.boolean_or("attention_bias", false), text, "attention_bias",
          "projections with a bias are not supported");
  require(text.boolean_or("attn_output_gate", true), text, "attn_output_gate",
          "attention without an output gate is not supported");
  require(text.boolean_or("norm_topk_prob", true), text, "norm_topk_prob",
          "router weights that are not renormalised are not supported");
  require(text.integer_or("decoder_sparse_step", 1) == 1, text, "decoder_sparse_step",
          "layers without experts are not supported");
  const std::string_view gate = text.string_or("output_gate_type", "swish");
  require(gate == "swish" || gate == "silu", text, "output_gate_type", "only swish (silu) is supported");
  if (text.has("mlp_only_layers")) {
    require(text.array("mlp_only_layers").empty(), text, "mlp_only_layers",
            "layers without experts are not supported");
  }
  require(text.integer_or("linear_conv_kernel_dim", conv_taps) == conv_taps, text, "linear_conv_kernel_dim",
          "only 4 taps are supported");
  require(!text.has("rope_scaling"), text, "rope_scaling", "scaled rotary embeddings are not supported");
}

std::vector<LayerKind> read_layers(const Object& text) {
  const std::int64_t count = size_of(text, "num_hidden_layers");
  require(count <= 4096, text, "num_hidden_layers", "at most 4096 layers are supported");
  std::vector<LayerKind> layers;
  if (!text.has("layer_types")) {
    const std::int64_t interval =
        text.has("full_attention_interval") ? size_of(text, "full_attention_interval") : 4;
    for (std::int64_t i = 1; i <= count; ++i) {
      layers.push_back(i % interval == 0 ? LayerKind::attention : LayerKind::gdn);
    }
    return layers;
  }
  for (const auto& entry : text.array("layer_types")) {
    const boost::json::string* name = entry.if_string();
    const bool attention = name != nullptr && *name == "full_attention";
    if (!attention && (name == nullptr || *name != "linear_attention")) {
      text.refuse("layer_types", "each entry is `linear_attention` or `full_attention`");
    }
    layers.push_back(attention ? LayerKind::attention : LayerKind::gdn);
  }
  require(
      static_cast<std::int64_t>(layers.size()) == count, text, "layer_types",
      "the list has " + std::to_string(layers.size()) + " entries for " + std::to_string(count) + " layers");
  return layers;
}

/// Newer files keep the rotary fields in `rope_parameters`, older ones beside the others.
void read_rope(const Object& text, Config& c) {
  const bool nested = text.has("rope_parameters");
  const Object rope = nested ? text.object("rope_parameters") : text;
  require(rope.string_or("rope_type", "default") == "default", rope, "rope_type",
          "only `default` is supported");
  c.rope_theta = rope.number("rope_theta");
  require(c.rope_theta > 1 && c.rope_theta < 1e18, rope, "rope_theta", "a number above 1 is expected here");
  const Object& place = rope.has("partial_rotary_factor") ? rope : text;
  const double factor = place.number_or("partial_rotary_factor", 1.0);
  require(factor > 0 && factor <= 1, place, "partial_rotary_factor", "a number in (0, 1] is expected here");
  c.rotary_dim = static_cast<std::int64_t>(static_cast<double>(c.head_dim) * factor);
  require(c.rotary_dim >= 2 && c.rotary_dim % 2 == 0, place, "partial_rotary_factor",
          "it gives " + std::to_string(c.rotary_dim) + " rotary dimensions; an even number is needed");
}

void read_attention(const Object& text, Config& c) {
  c.heads = size_of(text, "num_attention_heads");
  c.kv_heads = size_of(text, "num_key_value_heads");
  c.head_dim = text.has("head_dim") ? size_of(text, "head_dim") : c.hidden / c.heads;
  require(c.heads % c.kv_heads == 0, text, "num_key_value_heads", "it must divide num_attention_heads");
  read_rope(text, c);
}

void read_gdn(const Object& text, Config& c) {
  c.gdn_key_heads = size_of(text, "linear_num_key_heads");
  c.gdn_value_heads = size_of(text, "linear_num_value_heads");
  c.gdn_key_dim = size_of(text, "linear_key_head_dim");
  c.gdn_value_dim = size_of(text, "linear_value_head_dim");
  require(c.gdn_value_heads % c.gdn_key_heads == 0, text, "linear_num_value_heads",
          "it must be a multiple of linear_num_key_heads");
}

void read_moe(const Object& text, Config& c) {
  c.experts = size_of(text, "num_experts");
  c.experts_per_token = size_of(text, "num_experts_per_tok");
  c.expert_width = size_of(text, "moe_intermediate_size");
  c.shared_width = size_of(text, "shared_expert_intermediate_size");
  require(c.experts_per_token <= c.experts, text, "num_experts_per_tok", "it is more than num_experts");
}

/// An id or a list of ids; entries outside the vocabulary are an error.
std::vector<std::int32_t> read_ids(const Object& o, std::string_view key, std::int64_t vocab) {
  std::vector<std::int32_t> ids;
  const auto add = [&](const boost::json::value& value) {
    if (!value.is_int64() || value.get_int64() < 0 || value.get_int64() >= vocab) {
      o.refuse(key, "token ids between 0 and " + std::to_string(vocab - 1) + " are expected here");
    }
    ids.push_back(static_cast<std::int32_t>(value.get_int64()));
  };
  if (!o.has(key)) return ids;
  if (const auto* list = o.at(key).if_array()) {
    for (const auto& value : *list) add(value);
  } else {
    add(o.at(key));
  }
  return ids;
}

}  // namespace

std::int64_t Config::count(LayerKind kind) const { return std::ranges::count(layers, kind); }

Config parse_config(std::string_view text, std::string_view where) {
  const boost::json::value document = base::json::parse(text, where);
  const Object top(document, std::string(where));
  const bool text_only = check_architecture(top);
  const Object fields = text_only ? top : top.object("text_config");
  check_switches(top, fields);
  Config c;
  c.hidden = size_of(fields, "hidden_size");
  c.vocab = size_of(fields, "vocab_size");
  c.layers = read_layers(fields);
  c.max_positions = size_of(fields, "max_position_embeddings");
  const double eps = fields.number("rms_norm_eps");
  require(eps > 0 && eps < 1, fields, "rms_norm_eps", "a number in (0, 1) is expected here");
  c.eps = static_cast<float>(eps);
  c.tied = top.boolean_or("tie_word_embeddings", fields.boolean_or("tie_word_embeddings", false));
  read_attention(fields, c);
  read_gdn(fields, c);
  read_moe(fields, c);
  c.eos_ids = read_ids(fields, "eos_token_id", c.vocab);
  return c;
}

Config read_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  if (!base::is_there(path)) {
    base::throw_usage({.what = "not a model folder: it has no config.json",
                       .where = folder.string(),
                       .hint = "name the folder that holds config.json and the .safetensors files"});
  }
  return parse_config(base::read_text(path, 1 << 24), path.string());
}

std::vector<std::int32_t> parse_stop_ids(std::string_view text, std::string_view where, std::int64_t vocab) {
  const boost::json::value document = base::json::parse(text, where);
  return read_ids(Object(document, std::string(where)), "eos_token_id", vocab);
}

std::vector<std::int32_t> read_stop_ids(const std::filesystem::path& folder, const Config& config) {
  const std::filesystem::path path = folder / "generation_config.json";
  if (base::is_there(path)) {
    const std::vector<std::int32_t> ids =
        parse_stop_ids(base::read_text(path, 1 << 24), path.string(), config.vocab);
    if (!ids.empty()) return ids;
  }
  // config.json alone names only <|endoftext|>, which never ends a chat turn: <|im_end|> is added.
  constexpr std::array<std::int32_t, 2> known = {248046, 248044};
  std::vector<std::int32_t> ids = config.eos_ids;
  for (const std::int32_t id : known) {
    if (id < config.vocab && std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

}  // namespace aima::model
