#include "text/tokenizer_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <boost/json/monotonic_resource.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/stream_parser.hpp>
#include <boost/json/value.hpp>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "text/pretokenize.h"
#include "text/utf8.h"

namespace aima::text {
namespace {

namespace json = boost::json;

constexpr std::int64_t kIdLimit = 1 << 22;  // keeps a hostile id from sizing our tables
constexpr std::size_t kAddedLimit = 4096;   // they are compared one by one

/// Parses without base::json's memory of keys, which would double the time for a quarter of a million of
/// them; of a key given twice the last counts, as in the reference.
json::value parse_json(std::string_view text, std::string_view where, json::storage_ptr storage) {
  boost::system::error_code error;
  json::stream_parser parser(std::move(storage));
  const std::size_t used = parser.write_some(text.data(), text.size(), error);
  if (!error && used < text.size()) error = json::error::extra_data;
  if (!error) parser.finish(error);
  if (!error) return parser.release();
  base::throw_usage({.what = "not valid JSON",
                     .where = std::string(where),
                     .why = "at byte " + std::to_string(used) + ": " + error.message()});
}

/// Throws base::Error about the file at hand.
class Refusal {
 public:
  explicit Refusal(std::string_view where) : where_(where) {}
  [[noreturn]] void operator()(std::string what, std::string why = {}) const {
    base::throw_usage({.what = std::move(what), .where = std::string(where_), .why = std::move(why)});
  }
  std::string_view where() const { return where_; }

 private:
  std::string_view where_;
};

/// At most 120 bytes of a text, for a message.
std::string clipped(std::string_view text) {
  if (text.size() <= 120) return std::string(text);
  text = text.substr(0, 117);
  return std::string(text.substr(0, text.size() - open_tail(text))) + "...";
}

std::string shown(const json::value& value) { return clipped(json::serialize(value)); }

/// Null, false and "" all mean that a setting is off; leaving it out does too.
bool is_off(const json::value* value) {
  if (value == nullptr || value->is_null()) return true;
  if (const bool* flag = value->if_bool()) return !*flag;
  const json::string* text = value->if_string();
  return text != nullptr && text->empty();
}

/// Compares settings with the ones implemented here; throws at the first that differs. Keys that `expected`
/// lacks are refused too, since they could mean anything, except those in `ignored`.
void check_settings(const json::value* found, const json::value& expected, const std::string& path,
                    const Refusal& refuse, std::initializer_list<std::string_view> ignored = {}) {
  const auto differs = [&] {
    refuse("`" + path + "` is " + (found == nullptr ? "missing" : shown(*found)) +
           ", and this engine implements " + shown(expected) + " only");
  };
  if (is_off(&expected)) {
    if (!is_off(found)) differs();
    return;
  }
  if (found == nullptr || found->kind() != expected.kind()) differs();
  if (const json::array* list = expected.if_array()) {
    if (found->get_array().size() != list->size()) differs();
    for (std::size_t i = 0; i < list->size(); ++i) {
      check_settings(&found->get_array()[i], (*list)[i], path + "[" + std::to_string(i) + "]", refuse,
                     ignored);
    }
  } else if (const json::object* object = expected.if_object()) {
    for (const auto& [key, value] : *object) {
      check_settings(found->get_object().if_contains(key), value, path + "." + std::string(key), refuse,
                     ignored);
    }
    for (const auto& [key, value] : found->get_object()) {
      const bool known =
          object->contains(key) || std::ranges::find(ignored, std::string_view(key)) != ignored.end();
      if (!known && !is_off(&value))
        refuse("`" + path + "." + clipped(key) + "` is a setting that this engine does not know");
    }
  } else if (*found != expected) {
    differs();
  }
}

const json::object& object_at(const json::object& parent, std::string_view key, const Refusal& refuse) {
  const json::value* value = parent.if_contains(key);
  if (value == nullptr || !value->is_object())
    refuse("`" + std::string(key) + "` is missing or not an object");
  return value->get_object();
}

/// The pipeline around the model: normaliser, pre-tokenizer, decoder and what else could add or drop tokens.
void check_pipeline(const json::object& root, const Refusal& refuse) {
  if (const json::value* version = root.if_contains("version"))
    check_settings(version, "1.0", "version", refuse);
  check_settings(root.if_contains("truncation"), nullptr, "truncation", refuse);
  check_settings(root.if_contains("padding"), nullptr, "padding", refuse);
  check_settings(root.if_contains("normalizer"), json::object{{"type", "NFC"}}, "normalizer", refuse);
  const json::value split = {{"type", "Split"},
                             {"pattern", {{"Regex", kPretokenRegex}}},
                             {"behavior", "Isolated"},
                             {"invert", false}};
  const json::value bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const json::value sequence = {{"type", "Sequence"}, {"pretokenizers", json::array{split, bytes}}};
  check_settings(root.if_contains("pre_tokenizer"), sequence, "pre_tokenizer", refuse, {"trim_offsets"});
  const json::value byte_level = json::object{{"type", "ByteLevel"}};
  const auto unused = {std::string_view("add_prefix_space"), std::string_view("trim_offsets"),
                       std::string_view("use_regex")};
  check_settings(root.if_contains("decoder"), byte_level, "decoder", refuse, unused);
  const json::value* post = root.if_contains("post_processor");
  if (!is_off(post)) check_settings(post, byte_level, "post_processor", refuse, unused);
}

void check_model(const json::object& model, const Refusal& refuse) {
  const json::value expected = {{"type", "BPE"},
                                {"dropout", nullptr},
                                {"unk_token", nullptr},
                                {"continuing_subword_prefix", nullptr},
                                {"end_of_word_suffix", nullptr},
                                {"fuse_unk", false},
                                {"byte_fallback", false},
                                {"ignore_merges", false}};
  json::object settings;
  for (const auto& [key, value] : model) {
    if (key != "vocab" && key != "merges") settings[key] = value;
  }
  const json::value found = std::move(settings);
  check_settings(&found, expected, "model", refuse);
}

/// Bytes by stand-in character: printable Latin-1 bytes stand for themselves, the others, in order, for
/// U+0100 on.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    byte_.fill(-1);
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      byte_[static_cast<std::size_t>(printable ? b : next++)] = b;
    }
  }

  /// The bytes that `text` stands for; nothing when a character is none of the 256.
  std::optional<std::string> bytes(std::string_view text) const {
    std::string out;
    unsigned length = 0;
    for (std::size_t i = 0; i < text.size(); i += length) {
      const char32_t c = utf8_at(text, i, length);
      if (c >= byte_.size() || byte_[c] < 0) return std::nullopt;
      out.push_back(static_cast<char>(byte_[c]));
    }
    return out;
  }

 private:
  std::array<int, 324> byte_{};
};

std::int32_t checked_id(const json::value& value, const std::string& what, const Refusal& refuse) {
  const std::int64_t* id = value.if_int64();
  if (id == nullptr || *id < 0 || *id >= kIdLimit) {
    refuse(what + " has no usable id",
           shown(value) + " is not a whole number from 0 to " + std::to_string(kIdLimit - 1));
  }
  return static_cast<std::int32_t>(*id);
}

/// Ids by the token's text as the file spells it. Half a million look-ups make up most of the time that a
/// tokenizer takes to load, hence no std::unordered_map.
class Ids {
 public:
  explicit Ids(std::size_t count) : slots_(std::bit_ceil(count * 2 + 2)) {}

  /// `text` must outlive this.
  void add(std::string_view text, std::int32_t id) { slots_[place(text)] = {text, id}; }

  /// The id, or -1.
  std::int32_t find(std::string_view text) const { return slots_[place(text)].id; }

 private:
  struct Slot {
    std::string_view text{};
    std::int32_t id = -1;
  };

  std::size_t place(std::string_view text) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = std::hash<std::string_view>()(text) & mask;
    while (slots_[i].id >= 0 && slots_[i].text != text) i = (i + 1) & mask;
    return i;
  }

  std::vector<Slot> slots_;
};

void set_token(TokenizerFile& file, std::int32_t id, std::string bytes, const std::string& what,
               const Refusal& refuse) {
  if (static_cast<std::size_t>(id) >= file.tokens.size())
    file.tokens.resize(static_cast<std::size_t>(id) + 1);
  std::string& slot = file.tokens[static_cast<std::size_t>(id)];
  if (!slot.empty())
    refuse(what + " has an id that is taken", "id " + std::to_string(id) + " names another token already");
  slot = std::move(bytes);
}

Ids read_vocab(TokenizerFile& file, const json::object& vocab, const Refusal& refuse) {
  const ByteAlphabet alphabet;
  Ids ids(vocab.size());
  file.byte_tokens.assign(256, -1);
  for (const auto& [key, value] : vocab) {
    const std::string what = "token `" + clipped(key) + "`";
    const std::int32_t id = checked_id(value, what, refuse);
    std::optional<std::string> bytes = alphabet.bytes(key);
    if (!bytes || bytes->empty()) refuse(what + " is not written in the byte-level alphabet");
    if (bytes->size() == 1) file.byte_tokens[static_cast<unsigned char>((*bytes)[0])] = id;
    set_token(file, id, std::move(*bytes), what, refuse);
    ids.add(key, id);
  }
  const auto gap = std::ranges::find(file.byte_tokens, -1);
  if (gap != file.byte_tokens.end())
    refuse("has no token for byte " + std::to_string(gap - file.byte_tokens.begin()));
  return ids;
}

/// Both forms of one merge: ["a", "b"] and "a b".
std::pair<std::string_view, std::string_view> merge_sides(const json::value& entry, const auto& what,
                                                          const Refusal& refuse) {
  if (const json::array* pair = entry.if_array(); pair != nullptr && pair->size() == 2) {
    const json::string *left = (*pair)[0].if_string(), *right = (*pair)[1].if_string();
    if (left != nullptr && right != nullptr) return {*left, *right};
  } else if (const json::string* line = entry.if_string()) {
    const std::string_view text = *line;
    const std::size_t space = text.find(' ');
    if (space != text.npos) return {text.substr(0, space), text.substr(space + 1)};
  }
  refuse(what() + " is neither a pair of strings nor one string with a space", shown(entry));
}

void read_merges(TokenizerFile& file, const json::array& merges, const Ids& ids, const Refusal& refuse) {
  file.merges.reserve(merges.size());
  std::string joined;
  for (const json::value& entry : merges) {
    const auto what = [&] { return "merge " + std::to_string(file.merges.size()); };
    const auto [left, right] = merge_sides(entry, what, refuse);
    joined.assign(left).append(right);
    const Merge merge{ids.find(left), ids.find(right), ids.find(joined)};
    if (merge.left < 0 || merge.right < 0 || merge.result < 0) {
      const std::string missing(merge.left < 0 ? left : merge.right < 0 ? right : joined);
      refuse(what() + " needs a token that the vocabulary lacks", "`" + clipped(missing) + "`");
    }
    file.merges.push_back(merge);
  }
}

void add_token(TokenizerFile& file, std::int32_t id, const json::value& value, const std::string& what,
               const Refusal& refuse) {
  const json::object* entry = value.if_object();
  const json::string* content =
      entry ? entry->if_contains("content") ? entry->at("content").if_string() : nullptr : nullptr;
  if (content == nullptr || content->empty()) refuse(what + " has no content");
  for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) {
    check_settings(entry->if_contains(flag), false, what + "." + flag, refuse);
  }
  const json::value* special = entry->if_contains("special");
  const bool is_special = special != nullptr && special->is_bool() && special->get_bool();
  const std::string_view text = *content;
  for (const AddedToken& known : file.added) {
    if (known.id == id && known.content == text) return;
    if (known.content == text) refuse(what + " repeats `" + clipped(text) + "` under another id");
  }
  if (file.added.size() == kAddedLimit)
    refuse("has more than " + std::to_string(kAddedLimit) + " added tokens");
  set_token(file, id, std::string(text), what, refuse);
  file.added.push_back({id, std::string(text), is_special});
}

void read_added_tokens(TokenizerFile& file, const json::object& root, const Refusal& refuse) {
  const json::value* list = root.if_contains("added_tokens");
  if (is_off(list)) return;
  if (!list->is_array()) refuse("`added_tokens` is not a list");
  for (const json::value& entry : list->get_array()) {
    const std::string what = "added_tokens[" + std::to_string(file.added.size()) + "]";
    const json::object* object = entry.if_object();
    if (object == nullptr || !object->contains("id")) refuse(what + " has no id");
    add_token(file, checked_id(object->at("id"), what, refuse), entry, what, refuse);
  }
}

/// Tokens that the published tokenizer.json leaves to the configuration beside it.
void read_config(TokenizerFile& file, std::string_view config, const Refusal& refuse) {
  const json::value value = base::json::parse(config, refuse.where());
  const json::object* root = value.if_object();
  const json::value* list = root == nullptr ? nullptr : root->if_contains("added_tokens_decoder");
  if (is_off(list)) return;
  if (!list->is_object()) refuse("`added_tokens_decoder` is not an object");
  for (const auto& [key, entry] : list->get_object()) {
    const std::string what = "added_tokens_decoder." + clipped(key);
    const bool number = !key.empty() && key.size() < 10 &&
                        std::ranges::all_of(key, [](char c) { return c >= '0' && c <= '9'; });
    if (!number) refuse(what + " is not an id");
    add_token(file, checked_id(std::stoll(std::string(key)), what, refuse), entry, what, refuse);
  }
}

}  // namespace

TokenizerFile read_tokenizer_file(std::string_view tokenizer_json, std::string_view where,
                                  std::string_view config_json) {
  const Refusal refuse(where);
  json::monotonic_resource memory(std::min<std::size_t>(tokenizer_json.size() + 4096, 64 << 20));
  const json::value value = parse_json(tokenizer_json, where, &memory);
  if (!value.is_object()) refuse("is not a tokenizer: the JSON is not an object");
  const json::object& root = value.get_object();
  check_pipeline(root, refuse);
  const json::object& model = object_at(root, "model", refuse);
  check_model(model, refuse);
  TokenizerFile file;
  const Ids ids = read_vocab(file, object_at(model, "vocab", refuse), refuse);
  const json::value* merges = model.if_contains("merges");
  if (merges == nullptr || !merges->is_array()) refuse("`model.merges` is missing or not a list");
  read_merges(file, merges->get_array(), ids, refuse);
  read_added_tokens(file, root, refuse);
  if (!config_json.empty()) {
    const std::string config_where =
        std::filesystem::path(where).replace_filename("tokenizer_config.json").string();
    read_config(file, config_json, Refusal(config_where));
  }
  return file;
}

}  // namespace aima::text
