/// config.json of a checkpoint folder, checked: what passes here is exactly the architecture of model.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace aima::model {

enum class LayerKind { gdn, attention };

/// Sizes in elements. Comments name the field of config.json's `text_config`.
struct Config {
  std::int64_t hidden = 0;         ///< hidden_size
  std::int64_t vocab = 0;          ///< vocab_size, padding rows included
  std::vector<LayerKind> layers;   ///< layer_types
  std::int64_t max_positions = 0;  ///< max_position_embeddings
  float eps = 0;                   ///< rms_norm_eps, of every norm
  bool tied = false;               ///< tie_word_embeddings: the head is the embedding table

  std::int64_t heads = 0;     ///< num_attention_heads
  std::int64_t kv_heads = 0;  ///< num_key_value_heads
  std::int64_t head_dim = 0;
  std::int64_t rotary_dim = 0;  ///< head_dim * partial_rotary_factor
  double rope_theta = 0;

  std::int64_t gdn_key_heads = 0;    ///< linear_num_key_heads
  std::int64_t gdn_value_heads = 0;  ///< linear_num_value_heads
  std::int64_t gdn_key_dim = 0;      ///< linear_key_head_dim
  std::int64_t gdn_value_dim = 0;    ///< linear_value_head_dim

  std::int64_t experts = 0;            ///< num_experts
  std::int64_t experts_per_token = 0;  ///< num_experts_per_tok
  std::int64_t expert_width = 0;       ///< moe_intermediate_size
  std::int64_t shared_width = 0;       ///< shared_expert_intermediate_size

  std::vector<std::int32_t> eos_ids;  ///< eos_token_id, used where generation_config.json names none

  std::int64_t query_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  std::int64_t gdn_key_width() const { return gdn_key_heads * gdn_key_dim; }
  std::int64_t gdn_value_width() const { return gdn_value_heads * gdn_value_dim; }
  /// Channels of the causal convolution: q, k, v.
  std::int64_t conv_width() const { return 2 * gdn_key_width() + gdn_value_width(); }
  std::int64_t count(LayerKind kind) const;
};

/// Taps of the causal convolution; the only length that exists in this architecture.
inline constexpr std::int64_t conv_taps = 4;

/// Reads `folder`/config.json. Throws base::Error (usage) naming the field when it is malformed, of another
/// architecture, or asks for something that this engine does not compute.
Config read_config(const std::filesystem::path& folder);

/// The same from text; `where` names its source in errors.
Config parse_config(std::string_view text, std::string_view where);

/// Ids that end a reply: of generation_config.json, else of config.json, else <|im_end|> and <|endoftext|> as
/// far as the vocabulary reaches.
std::vector<std::int32_t> read_stop_ids(const std::filesystem::path& folder, const Config& config);

/// The ids that the text of a generation_config.json names; none when it names none. Throws base::Error
/// (usage) for one outside the vocabulary.
std::vector<std::int32_t> parse_stop_ids(std::string_view text, std::string_view where, std::int64_t vocab);

}  // namespace aima::model
