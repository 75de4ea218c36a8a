// Byte-level BPE exactly as Hugging Face `tokenizers` runs it for Qwen3.6 (model.md 7):
//   added tokens split out of the raw text -> NFC -> pre-token split -> UTF-8 bytes -> merges by rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aima::text {

/// Bytes [begin, end) of a text.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// One loaded tokenizer. Immutable after loading: every method may be called from several threads at once.
class Tokenizer {
 public:
  /// Reads a tokenizer.json: merges as "a b" strings or as pairs, any set of added tokens. Added tokens that
  /// only the tokenizer_config.json beside it names (`added_tokens_decoder`) are taken from there, as
  /// transformers does. Throws base::Error (exit code 2) for a missing, damaged or oversized file, and for a
  /// tokenizer whose normalizer, pre-tokenizer, decoder or model settings differ from the ones implemented
  /// here.
  static std::unique_ptr<Tokenizer> load(const std::filesystem::path& tokenizer_json);

  /// The same from memory; `where` names the source in errors. `config_json` is a tokenizer_config.json or
  /// empty.
  static std::unique_ptr<Tokenizer> parse(std::string_view tokenizer_json, std::string_view where,
                                          std::string_view config_json = {});

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Token ids of `utf8`. Invalid UTF-8 is read as U+FFFD, one for each maximal ill-formed part (Unicode 3.9,
  /// as Python's errors="replace" does). With `recognise_added_tokens`, added tokens in the text become their
  /// ids, leftmost first and longest there; without, they are text like any other.
  std::vector<std::int32_t> encode(std::string_view utf8, bool recognise_added_tokens) const;

  /// As above, but an added token is recognised only where it lies wholly inside one of `trusted`, sorted and
  /// not overlapping: a template's own spans in a rendered prompt.
  std::vector<std::int32_t> encode(std::string_view utf8, std::span<const ByteRange> trusted) const;

  /// Text of `ids`: their bytes in a row, read as UTF-8 with U+FFFD for each maximal ill-formed part. Ids
  /// that name no token (padding rows) add nothing; `skip_special` leaves out the added tokens marked
  /// special.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  /// Bytes of one token, which may be a part of a character; empty for an id that names no token.
  std::string_view bytes_of(std::int32_t id) const;

  /// Highest id that names a token, plus one.
  std::int32_t vocab_size() const;

  /// Id of an added token by its text.
  std::optional<std::int32_t> added_token(std::string_view content) const;

  /// True for an added token that `skip_special` leaves out.
  bool is_special(std::int32_t id) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Turns a stream of tokens into text: what has been returned is never changed by a later token, and never
/// holds half a character. All parts together equal Tokenizer::decode of all ids. The tokenizer must outlive
/// it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  /// The text that `id` completes; empty while a character is still open.
  std::string push(std::int32_t id);

  /// End of the stream: an open character becomes U+FFFD. The decoder may be used again.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string tail_;  // bytes of an open character, at most 3
};

}  // namespace aima::text
