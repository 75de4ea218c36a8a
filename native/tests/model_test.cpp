#include <doctest/doctest.h>

#include "model/config.h"
#include "model/weights.h"
#include "support.h"

using namespace aima;
using test::SmallModel;

namespace {

/// The small config with one piece of text replaced.
std::string edited(const std::string& from, const std::string& to) {
  std::string text = SmallModel().config();
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

base::ErrorText config_error(const std::string& text) {
  const base::Error error = test::error_of([&] { model::parse_config(text, "config.json"); });
  CHECK(error.exit() == base::Exit::usage);
  return error.text();
}

}  // namespace

TEST_CASE("a config gives the sizes") {
  const model::Config c = model::parse_config(SmallModel().config(), "config.json");
  CHECK(c.hidden == 44);
  CHECK(c.rotary_dim == 10);
  CHECK(c.rope_theta == 1e7);
  CHECK(c.conv_width() == 2 * 24 + 108);
  CHECK(c.count(model::LayerKind::gdn) == 2);
  CHECK(c.layers[1] == model::LayerKind::attention);
  CHECK_FALSE(c.tied);
}

TEST_CASE("layer kinds follow from the interval where the list is absent") {
  std::string text = edited("\"layer_types\"", "\"ignored\"");
  const model::Config c = model::parse_config(text, "config.json");
  CHECK(c.layers[2] == model::LayerKind::gdn);
  CHECK(c.layers[3] == model::LayerKind::attention);
}

TEST_CASE("what the engine does not compute is refused, with the field") {
  struct Case {
    std::string from, to, where;
  };
  const std::vector<Case> cases = {
      {"Qwen3_5MoeForConditionalGeneration", "LlamaForCausalLM", "config.json: architectures"},
      {"\"hidden_size\"", "\"hidden_act\": \"gelu\", \"hidden_size\"", "config.json: text_config.hidden_act"},
      {"\"hidden_size\"", "\"attention_bias\": true, \"hidden_size\"",
       "config.json: text_config.attention_bias"},
      {"\"hidden_size\"", "\"attn_output_gate\": false, \"hidden_size\"",
       "config.json: text_config.attn_output_gate"},
      {"\"hidden_size\"", "\"norm_topk_prob\": false, \"hidden_size\"",
       "config.json: text_config.norm_topk_prob"},
      {"\"hidden_size\"", "\"decoder_sparse_step\": 2, \"hidden_size\"",
       "config.json: text_config.decoder_sparse_step"},
      {"\"hidden_size\"", "\"mlp_only_layers\": [1], \"hidden_size\"",
       "config.json: text_config.mlp_only_layers"},
      {"\"hidden_size\"", "\"output_gate_type\": \"sigmoid\", \"hidden_size\"",
       "config.json: text_config.output_gate_type"},
      {"\"hidden_size\"", "\"linear_conv_kernel_dim\": 3, \"hidden_size\"",
       "config.json: text_config.linear_conv_kernel_dim"},
      {"\"hidden_size\"", "\"rope_scaling\": {}, \"hidden_size\"", "config.json: text_config.rope_scaling"},
      {"\"rope_type\": \"default\"", "\"rope_type\": \"yarn\"",
       "config.json: text_config.rope_parameters.rope_type"},
      {"\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 0.25",
       "config.json: text_config.rope_parameters.partial_rotary_factor"},
      {"\"text_config\"", "\"quantization_config\": {}, \"text_config\"", "config.json: quantization_config"},
      {"\"hidden_size\": 44", "\"hidden_size\": 0", "config.json: text_config.hidden_size"},
      {"\"hidden_size\": 44", "\"hidden_size\": 4.5", "config.json: text_config.hidden_size"},
      {"\"hidden_size\": 44", "\"hidden_size\": 99999999999", "config.json: text_config.hidden_size"},
      {"\"hidden_size\"", "\"hidden_siez\"", "config.json: text_config.hidden_size"},
      {"\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4",
       "config.json: text_config.num_key_value_heads"},
      {"\"linear_num_key_heads\": 2", "\"linear_num_key_heads\": 4",
       "config.json: text_config.linear_num_value_heads"},
      {"\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 8",
       "config.json: text_config.num_experts_per_tok"},
      {"\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5", "config.json: text_config.layer_types"},
      {"\"linear_attention\"", "\"sliding_attention\"", "config.json: text_config.layer_types"},
      {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 0", "config.json: text_config.rms_norm_eps"},
      {"\"hidden_size\"", "\"eos_token_id\": 101, \"hidden_size\"", "config.json: text_config.eos_token_id"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.to);
    CHECK(config_error(edited(c.from, c.to)).where == c.where);
  }
}

TEST_CASE("a text-only config has its fields at the top") {
  std::string text = edited("\"text_config\": {", "");
  text.erase(text.rfind('}'));
  const std::size_t at = text.find("ConditionalGeneration");
  text.replace(at, std::string("ConditionalGeneration").size(), "CausalLM");
  CHECK(model::parse_config(text, "config.json").hidden == 44);
}

TEST_CASE("stop ids: generation_config.json, then config.json, then the known ones") {
  const test::TemporaryFolder folder;
  model::Config c;
  c.vocab = 250000;
  CHECK(model::read_stop_ids(folder.path(), c) == std::vector<std::int32_t>{248046, 248044});
  c.eos_ids = {248044};
  CHECK(model::read_stop_ids(folder.path(), c) == std::vector<std::int32_t>{248044, 248046});
  c.vocab = 512;
  c.eos_ids = {7};
  CHECK(model::read_stop_ids(folder.path(), c) == std::vector<std::int32_t>{7});
  test::write_file(folder.path() / "generation_config.json", R"({"eos_token_id": [3, 5]})");
  CHECK(model::read_stop_ids(folder.path(), c) == std::vector<std::int32_t>{3, 5});
  test::write_file(folder.path() / "generation_config.json", R"({"eos_token_id": 512})");
  CHECK_THROWS_AS(model::read_stop_ids(folder.path(), c), base::Error);
}

TEST_CASE("experts fused or split, three dtypes, two prefixes: the same values") {
  for (const std::string dtype : {"BF16", "F32", "F16"}) {
    for (const bool split : {false, true}) {
      for (const Math math : {Math::bf16, Math::f32}) {
        CAPTURE(dtype);
        CAPTURE(split);
        SmallModel small;
        small.dtype = dtype;
        small.split_experts = split;
        small.extras = true;
        small.prefix = split ? "model." : "model.language_model.";
        const test::TemporaryFolder folder;
        small.write(folder.path());
        const model::Config config = model::read_config(folder.path());
        const model::Checkpoint checkpoint = model::Checkpoint::open(folder.path());
        const model::Weights w = model::load_weights(checkpoint, config, math);
        const bool as_it_lies = dtype == "BF16" || (dtype == "F32" && math == Math::f32);
        CHECK(w.embed.dtype ==
              (math == Math::f32 && dtype != "BF16" ? model::DType::f32 : model::DType::bf16));
        const model::WeightsPlan plan = model::plan_weights(checkpoint, config, math);
        CHECK((plan.size(model::Method::mmap).mapped_bytes > 0) == as_it_lies);
        const auto tensors = small.tensors();
        const auto value = [](const model::Matrix& m, std::int64_t row, std::int64_t col) {
          return m.dtype == model::DType::f32
                     ? base::load_unaligned<float>(m.row(row) + 4 * col)
                     : base::float_from_bf16(base::load_unaligned<std::uint16_t>(m.row(row) + 2 * col));
        };
        const std::string p = small.prefix + "layers.1.mlp.experts.";
        const model::Expert& expert = w.layers[1].moe.experts[5];
        const std::size_t width = 22;
        const std::size_t hidden = 44;
        const float up =
            split ? tensors.at(p + "5.up_proj.weight").values[3 * hidden + 7]
                  : tensors.at(p + "gate_up_proj").values[(5 * 2 * width + width + 3) * hidden + 7];
        const float down = split ? tensors.at(p + "5.down_proj.weight").values[43 * width + 21]
                                 : tensors.at(p + "down_proj").values[(5 * hidden + 43) * width + 21];
        CHECK(value(expert.up, 3, 7) == up);
        CHECK(value(expert.down, 43, 21) == down);
        const std::string g = small.prefix + "layers.2.linear_attn.";
        CHECK(w.layers[2].gdn->norm[4] == tensors.at(g + "norm.weight").values[4]);
        CHECK(w.layers[2].gdn->conv[3 * 156 + 9] == tensors.at(g + "conv1d.weight").values[9 * 4 + 3]);
        CHECK(w.layers[2].gdn->decay[5] == doctest::Approx(-std::exp(tensors.at(g + "A_log").values[5])));
        CHECK(w.final_norm[2] == 1 + tensors.at(small.prefix + "norm.weight").values[2]);
        REQUIRE(w.draft.has_value());
        CHECK(value(w.draft->fc, 7, 50) == tensors.at("mtp.fc.weight").values[7 * 2 * hidden + 50]);
        CHECK(w.draft->hidden_norm[3] == 1 + tensors.at("mtp.pre_fc_norm_hidden.weight").values[3]);
        CHECK(w.draft->layer.attention->k_norm[1] ==
              1 + tensors.at("mtp.layers.0.self_attn.k_norm.weight").values[1]);
        CHECK(w.draft->layer.moe.experts.size() == 7);
      }
    }
  }
}

TEST_CASE("a checkpoint without a draft head is whole; one with a part of it is not") {
  SmallModel small;
  const auto bind = [&](const std::map<std::string, test::TestTensor>& tensors) {
    const test::TemporaryFolder folder;
    test::write_file(folder.path() / "config.json", small.config());
    test::write_file(folder.path() / "model.safetensors", test::safetensors(tensors));
    const model::Config config = model::read_config(folder.path());
    const model::Checkpoint checkpoint = model::Checkpoint::open(folder.path());
    return model::load_weights(checkpoint, config, Math::f32).draft.has_value();
  };
  CHECK_FALSE(bind(small.tensors()));
  small.extras = true;
  auto tensors = small.tensors();
  CHECK(bind(tensors));
  tensors.erase("mtp.norm.weight");
  CHECK_THROWS_WITH_AS(bind(tensors), doctest::Contains("`mtp.norm.weight` is missing"), base::Error);
}

TEST_CASE("tensors that do not fit the config are refused by name") {
  const test::TemporaryFolder folder;
  const SmallModel small;
  test::write_file(folder.path() / "config.json", small.config());
  const model::Config config = model::read_config(folder.path());
  const auto error = [&](const std::function<void(std::map<std::string, test::TestTensor>&)>& edit) {
    auto tensors = small.tensors();
    edit(tensors);
    test::write_file(folder.path() / "model.safetensors", test::safetensors(tensors));
    return test::error_of([&] {
      const model::Checkpoint checkpoint = model::Checkpoint::open(folder.path());
      model::load_weights(checkpoint, config, Math::f32);
    });
  };
  CHECK(error([](auto&) {}).text().what.empty());
  CHECK(error([](auto& t) { t.erase("lm_head.weight"); }).text().what ==
        "the tensor `lm_head.weight` is missing");
  const auto transposed =
      error([](auto& t) { std::swap(t["lm_head.weight"].shape[0], t["lm_head.weight"].shape[1]); });
  CHECK(transposed.text().what == "the shape is [44, 101], expected [101, 44]");
  CHECK(transposed.text().where.ends_with("model.safetensors: lm_head.weight"));
  CHECK(transposed.exit() == base::Exit::usage);
  const auto unknown =
      error([](auto& t) { t["model.language_model.layers.0.mlp.bias"] = {"F32", {1}, {0}}; });
  CHECK(unknown.text().what ==
        "the tensor `model.language_model.layers.0.mlp.bias` is not part of this architecture");
}

TEST_CASE("a tied head is the embedding table") {
  const test::TemporaryFolder folder;
  const SmallModel small;
  auto tensors = small.tensors();
  tensors.erase("lm_head.weight");
  test::write_file(folder.path() / "model.safetensors", test::safetensors(tensors));
  model::Config config = model::parse_config(small.config(), "config.json");
  config.tied = true;
  const model::Checkpoint checkpoint = model::Checkpoint::open(folder.path());
  const model::Weights w = model::load_weights(checkpoint, config, Math::f32);
  CHECK(w.head.data == w.embed.data);
}
