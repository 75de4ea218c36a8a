#include "text/tokenizer_probe.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace aima::text {
namespace {

namespace json = boost::json;

constexpr std::string_view kSchema = "aima/tokenizer-probe/v1";
constexpr std::size_t kFileLimit = std::size_t{256} << 20;

using Ids = std::vector<std::int32_t>;

std::string read_source(const std::string& source) {
  if (source != "-") return base::read_text(source, kFileLimit);
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

/// Does `work` as often as asked, at least once; the least seconds that it took.
template <typename Work>
double least_seconds(int times, const Work& work) {
  using Clock = std::chrono::steady_clock;
  double least = 0;
  for (int i = 0; i < std::max(times, 1); ++i) {
    const auto start = Clock::now();
    work();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    least = i == 0 ? seconds : std::min(least, seconds);
  }
  return least;
}

class Probe {
 public:
  Probe(const TokenizerProbeOptions& options, std::ostream& out)
      : options_(options), tokenizer_(Tokenizer::load(options.tokenizer)), out_(out) {}

  void text(std::string_view text) const {
    json::object line{{"schema", kSchema}, {"bytes", text.size()}};
    Ids ids;
    const double seconds =
        least_seconds(options_.repeat, [&] { ids = tokenizer_->encode(text, options_.added_tokens); });
    if (options_.repeat > 0) line["encode_seconds"] = seconds;
    finish(std::move(line), ids);
  }

  void ids(const Ids& ids) const { finish({{"schema", kSchema}}, ids); }

 private:
  void finish(json::object line, const Ids& ids) const {
    line["count"] = ids.size();
    line["ids"] = json::array(ids.begin(), ids.end());
    std::string decoded;
    const double seconds =
        least_seconds(options_.repeat, [&] { decoded = tokenizer_->decode(ids, options_.skip_special); });
    line["decoded"] = decoded;
    if (options_.repeat > 0) line["decode_seconds"] = seconds;
    if (options_.parts) line["parts"] = parts(ids);
    out_ << json::serialize(line) << '\n';
  }

  json::array parts(const Ids& ids) const {
    json::array parts;
    const auto add = [&](const std::string& part) {
      if (!part.empty()) parts.emplace_back(part);
    };
    StreamDecoder decoder(*tokenizer_, options_.skip_special);
    for (const std::int32_t id : ids) add(decoder.push(id));
    add(decoder.finish());
    return parts;
  }

  const TokenizerProbeOptions& options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::ostream& out_;
};

Ids read_ids(const json::value& line, const std::string& where) {
  const json::array* list = line.if_array();
  if (list == nullptr) base::throw_usage({.what = "a JSON list of ids is expected here", .where = where});
  Ids ids;
  for (const json::value& item : *list) {
    const std::int64_t* id = item.if_int64();
    if (id == nullptr || *id != static_cast<std::int32_t>(*id))
      base::throw_usage({.what = "an id is a whole number of 32 bits", .where = where});
    ids.push_back(static_cast<std::int32_t>(*id));
  }
  return ids;
}

/// Calls `take` with each line of a file, parsed, and its place.
template <typename Take>
void each_line(const std::string& source, const Take& take) {
  const std::string text = read_source(source);
  std::size_t number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string where = source + ":" + std::to_string(number);
    take(base::json::parse(std::string_view(text).substr(begin, end - begin), where), where);
    begin = end + 1;
  }
}

void probe_all(const Probe& probe, const TokenizerProbeOptions& options) {
  if (options.text) return probe.text(*options.text);
  if (options.text_file) return probe.text(base::read_text(*options.text_file, kFileLimit));
  if (options.id_lines) {
    return each_line(*options.id_lines, [&](const json::value& line, const std::string& where) {
      probe.ids(read_ids(line, where));
    });
  }
  each_line(options.text_lines.value(), [&](const json::value& line, const std::string& where) {
    if (!line.is_string()) base::throw_usage({.what = "a JSON string is expected here", .where = where});
    probe.text(line.get_string());
  });
}

}  // namespace

int run_tokenizer_probe(const TokenizerProbeOptions& options, std::ostream& out) {
  probe_all(Probe(options, out), options);
  out.flush();
  if (!out) throw base::Error({.what = "the output cannot be written", .where = "stdout"});
  return static_cast<int>(base::Exit::done);
}

}  // namespace aima::text
