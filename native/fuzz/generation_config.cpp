/// generation_config.json: stop ids lie in the vocabulary.
#include <vector>

#include "fuzz/fuzz.h"
#include "model/config.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace aima;
  constexpr std::int64_t vocab = 248320;
  fuzz::accepts([&] {
    const std::string_view text = fuzz::text_of(data, size);
    for (const std::int32_t id : model::parse_stop_ids(text, "generation_config.json", vocab)) {
      fuzz::require(id >= 0 && id < vocab, "stop ids lie in the vocabulary");
    }
  });
  return 0;
}
