/// tokenizer.json, and behind a zero byte tokenizer_config.json: what is accepted can be used.
#include <algorithm>
#include <string>

#include "fuzz/fuzz.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace aima;
  std::string_view config = fuzz::text_of(data, size);
  const std::string_view file = fuzz::take_until(config, '\0');
  fuzz::accepts([&] {
    const auto tokenizer = text::Tokenizer::parse(file, "tokenizer.json", config);
    // The file itself is a text full of its own tokens.
    const std::string_view sample = file.substr(file.size() - std::min<std::size_t>(file.size(), 600));
    std::string whole;
    text::append_replacing(whole, sample);
    for (const bool added : {false, true}) {
      const auto ids = tokenizer->encode(sample, added);
      for (const std::int32_t id : ids) {
        fuzz::require(id >= 0 && id < tokenizer->vocab_size(), "ids lie in the vocabulary");
        fuzz::require(!tokenizer->bytes_of(id).empty(), "an id that is given names a token");
      }
      fuzz::require(ids.size() <= whole.size() * 3, "a token is at least a byte of the text's NFC");
    }
  });
  return 0;
}
