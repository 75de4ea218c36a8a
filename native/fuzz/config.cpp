/// config.json: what is accepted has sizes that the engine can compute with.
#include "model/config.h"

#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace aima;
  fuzz::accepts([&] {
    const model::Config config = model::parse_config(fuzz::text_of(data, size), "config.json");
    const auto layers = static_cast<std::int64_t>(config.layers.size());
    fuzz::require(layers > 0 && config.hidden > 0 && config.vocab > 0, "sizes are positive");
    fuzz::require(config.heads % config.kv_heads == 0, "query heads share key heads evenly");
    fuzz::require(config.rotary_dim % 2 == 0 && config.rotary_dim <= config.head_dim, "rotary part fits");
    fuzz::require(config.gdn_value_heads % config.gdn_key_heads == 0, "value heads share key heads evenly");
    fuzz::require(config.experts_per_token <= config.experts, "as many experts as are asked for");
    fuzz::require(config.eps > 0 && config.rope_theta > 1, "constants are in range");
    fuzz::require(config.query_width() > 0 && config.conv_width() > 0, "no width overflows");
    for (const std::int32_t id : config.eos_ids) {
      fuzz::require(id >= 0 && id < config.vocab, "stop ids lie in the vocabulary");
    }
  });
  return 0;
}
