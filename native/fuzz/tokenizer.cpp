/// Any bytes: encoding loses nothing but what NFC and U+FFFD change, decoding in parts equals decoding at
/// once and gives whole characters only, and added tokens are found where they are trusted and nowhere else.
#include "text/tokenizer.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "fuzz/fuzz_tokenizer.h"
#include "text/normalize.h"
#include "text/utf8.h"

namespace {

using namespace aima;
using Ids = std::vector<std::int32_t>;

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const text::Utf8Step step = text::utf8_step(text, i);
    if (!step.valid) return false;
    i += step.length;
  }
  return true;
}

void check_stream(const Ids& ids, bool skip_special) {
  text::StreamDecoder decoder(fuzz::tokenizer(), skip_special);
  std::string whole;
  for (const std::int32_t id : ids) {
    const std::string part = decoder.push(id);
    fuzz::require(is_utf8(part), "a part holds whole characters");
    whole += part;
  }
  whole += decoder.finish();
  fuzz::require(is_utf8(whole), "the end holds whole characters");
  fuzz::require(whole == fuzz::tokenizer().decode(ids, skip_special), "the parts are the whole");
}

/// Without added tokens every token is a part of the normal text.
void check_plain(std::string_view bytes) {
  const text::Tokenizer& tokenizer = fuzz::tokenizer();
  const Ids ids = tokenizer.encode(bytes, false);
  std::string joined;
  for (const std::int32_t id : ids) {
    fuzz::require(id < 1000, "what is not trusted is text");
    joined += tokenizer.bytes_of(id);
  }
  std::string scratch;
  fuzz::require(joined == text::to_nfc(bytes, scratch), "the tokens spell the text's NFC");
  fuzz::require(is_utf8(joined), "NFC is well-formed");
  std::string again_scratch;
  fuzz::require(text::to_nfc(joined, again_scratch) == joined, "NFC leaves NFC alone");
  fuzz::require(tokenizer.decode(ids, false) == joined, "decoding gives the normal text");
  fuzz::require(tokenizer.encode(joined, false) == ids, "the normal text has the same tokens");
  check_stream(ids, true);
}

/// The first byte cuts the text in two: one half is trusted.
void check_ranges(std::string_view bytes, std::size_t cut) {
  const text::Tokenizer& tokenizer = fuzz::tokenizer();
  const text::ByteRange whole{0, bytes.size()};
  fuzz::require(tokenizer.encode(bytes, std::span(&whole, 1)) == tokenizer.encode(bytes, true),
                "all trusted is all recognised");
  const text::ByteRange half{0, cut};
  const Ids ids = tokenizer.encode(bytes, std::span(&half, 1));
  const auto added = [](const Ids& of) {
    return std::ranges::count_if(of, [](auto id) { return id >= 1000; });
  };
  fuzz::require(added(ids) == added(tokenizer.encode(bytes.substr(0, cut), true)),
                "tokens are recognised wholly inside the trusted part");
  check_stream(ids, false);
  check_stream(ids, true);
}

/// Ids at random, of parts of characters, special ones and ones that name nothing.
void check_ids(std::string_view bytes) {
  Ids ids;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const auto high = static_cast<unsigned char>(bytes[i]), low = static_cast<unsigned char>(bytes[i + 1]);
    ids.push_back((high & 15) << 8 | low);
  }
  ids.push_back(-1);
  check_stream(ids, true);
  check_stream(ids, false);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes = fuzz::text_of(data + 1, size - 1);
  check_plain(bytes);
  check_ranges(bytes, bytes.size() * data[0] / 255);
  check_ids(bytes);
  return 0;
}
