#include "text/tokenizer.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/files.h"
#include "text/bpe.h"
#include "text/normalize.h"
#include "text/pretokenize.h"
#include "text/tokenizer_file.h"
#include "text/utf8.h"

namespace aima::text {
namespace {

constexpr std::size_t kFileLimit = std::size_t{256} << 20;
// Less than 2^32 pairs are noted for one pre-token, after NFC has at most tripled the bytes.
constexpr std::size_t kTextLimit = std::size_t{256} << 20;

/// Scratch objects not in use; each call to encode takes one, or makes one, and brings it back.
class ScratchPool {
 public:
  std::unique_ptr<BpeScratch> take() {
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) return std::make_unique<BpeScratch>();
    auto scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  void give_back(std::unique_ptr<BpeScratch> scratch) {
    const std::scoped_lock lock(mutex_);
    if (free_.size() < kKept) free_.push_back(std::move(scratch));
  }

 private:
  static constexpr std::size_t kKept = 4;
  std::mutex mutex_;
  std::vector<std::unique_ptr<BpeScratch>> free_;
};

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerFile file) : bpe(file), added(std::move(file.added)) {
    offsets.push_back(0);
    for (const std::string& token : file.tokens) {
      bytes += token;
      offsets.push_back(static_cast<std::uint32_t>(bytes.size()));
    }
    special.assign(file.tokens.size(), false);
    for (const AddedToken& token : added) special[static_cast<std::size_t>(token.id)] = token.special;
    // Longest first, so that the first that fits is the one to take.
    std::ranges::stable_sort(added, std::greater<>(),
                             [](const AddedToken& token) { return token.content.size(); });
    for (const AddedToken& token : added) {
      const auto first = static_cast<unsigned char>(token.content[0]);
      by_first_byte[first].push_back(&token);
      if (first_bytes.find(token.content[0]) == first_bytes.npos) first_bytes.push_back(token.content[0]);
      for (std::size_t second = 0; second < 256; ++second) {
        const bool fits = token.content.size() == 1 || second == static_cast<unsigned char>(token.content[1]);
        if (fits) begins[first << 8 | second] = true;
      }
    }
  }

  /// Where the next added token may begin at or after `position`; text.size() when nowhere.
  std::size_t next_candidate(std::string_view text, std::size_t position) const {
    const std::size_t found = first_bytes.size() == 1 ? text.find(first_bytes[0], position)
                                                      : text.find_first_of(first_bytes, position);
    return std::min(found, text.size());
  }

  /// The longest added token at `position` that ends by `end`.
  const AddedToken* added_at(std::string_view text, std::size_t position, std::size_t end) const {
    const auto byte = [&](std::size_t i) { return std::size_t{static_cast<unsigned char>(text[i])}; };
    const std::size_t second =
        position + 1 < end ? byte(position + 1) : 0;  // 0: only a token of one byte fits
    if (!begins[byte(position) << 8 | second]) return nullptr;
    for (const AddedToken* token : by_first_byte[byte(position)]) {
      const std::size_t size = token->content.size();
      if (size <= end - position && text.compare(position, size, token->content) == 0) return token;
    }
    return nullptr;
  }

  /// A stretch of text between added tokens.
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& out, BpeScratch& scratch,
                    std::string& normal) const {
    const std::string_view text = to_nfc(piece, normal);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = pretoken_end(text, begin);
      bpe.encode(text.substr(begin, end - begin), out, scratch);
      begin = end;
    }
  }

  Bpe bpe;
  std::vector<AddedToken> added;
  std::array<std::vector<const AddedToken*>, 256> by_first_byte;
  std::string first_bytes;
  std::vector<bool> begins = std::vector<bool>(65536);  // by the first two bytes: an added token begins so
  std::string bytes;                                    // of all tokens in a row
  std::vector<std::uint32_t> offsets;                   // of each id in `bytes`, and the end
  std::vector<bool> special;
  mutable ScratchPool pool;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::unique_ptr<Tokenizer> Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  const std::filesystem::path config = tokenizer_json.parent_path() / "tokenizer_config.json";
  const std::string config_json = base::is_there(config) ? base::read_text(config, kFileLimit) : "";
  return parse(base::read_text(tokenizer_json, kFileLimit), tokenizer_json.string(), config_json);
}

std::unique_ptr<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json, std::string_view where,
                                            std::string_view config_json) {
  auto impl = std::make_unique<Impl>(read_tokenizer_file(tokenizer_json, where, config_json));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view utf8, bool recognise_added_tokens) const {
  const ByteRange whole{0, utf8.size()};
  return encode(utf8, std::span(&whole, recognise_added_tokens ? 1 : 0));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view utf8, std::span<const ByteRange> trusted) const {
  if (utf8.size() > kTextLimit) {
    base::throw_usage({.what = "a text of " + std::to_string(utf8.size()) + " bytes is too long to tokenise",
                       .why = "the limit is " + std::to_string(kTextLimit) + " bytes"});
  }
  std::vector<std::int32_t> out;
  out.reserve(utf8.size() / 4 + 8);
  std::unique_ptr<BpeScratch> scratch = impl_->pool.take();
  std::string normal;
  std::size_t done = 0;
  for (const ByteRange& range : trusted) {
    const std::size_t end = std::min(range.end, utf8.size());
    for (std::size_t i = range.begin; (i = impl_->next_candidate(utf8, i)) < end;) {
      const AddedToken* token = impl_->added_at(utf8, i, end);
      if (token == nullptr) {
        ++i;
        continue;
      }
      impl_->encode_piece(utf8.substr(done, i - done), out, *scratch, normal);
      out.push_back(token->id);
      done = i += token->content.size();
    }
  }
  impl_->encode_piece(utf8.substr(done), out, *scratch, normal);
  impl_->pool.give_back(std::move(scratch));
  return out;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const std::int32_t id : ids) {
    if (!skip_special || !is_special(id)) bytes += bytes_of(id);
  }
  std::string text;
  append_replacing(text, bytes);
  return text;
}

std::string_view Tokenizer::bytes_of(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const auto index = static_cast<std::size_t>(id);
  return std::string_view(impl_->bytes)
      .substr(impl_->offsets[index], impl_->offsets[index + 1] - impl_->offsets[index]);
}

std::int32_t Tokenizer::vocab_size() const { return static_cast<std::int32_t>(impl_->special.size()); }

std::optional<std::int32_t> Tokenizer::added_token(std::string_view content) const {
  const auto found = std::ranges::find(impl_->added, content, &AddedToken::content);
  return found == impl_->added.end() ? std::nullopt : std::optional(found->id);
}

bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->special[static_cast<std::size_t>(id)];
}

std::string StreamDecoder::push(std::int32_t id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  tail_ += tokenizer_->bytes_of(id);
  const std::size_t open = open_tail(tail_);
  std::string text;
  append_replacing(text, std::string_view(tail_).substr(0, tail_.size() - open));
  tail_.erase(0, tail_.size() - open);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  append_replacing(text, tail_);
  tail_.clear();
  return text;
}

}  // namespace aima::text
