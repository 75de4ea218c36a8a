#include "text/tokenizer_probe.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace aima::text {
namespace {

constexpr std::size_t kFileLimit = std::size_t{256} << 20;

void report(const Tokenizer& tokenizer, const TokenizerProbeOptions& options, std::string_view text,
            std::ostream& out) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text, options.added_tokens);
  out << boost::json::serialize(boost::json::object{{"schema", "aima/tokenizer-probe/v1"},
                                                    {"bytes", text.size()},
                                                    {"count", ids.size()},
                                                    {"ids", boost::json::array(ids.begin(), ids.end())},
                                                    {"decoded", tokenizer.decode(ids, options.skip_special)}})
      << '\n';
}

void report_lines(const Tokenizer& tokenizer, const TokenizerProbeOptions& options, std::ostream& out) {
  const std::string& source = *options.lines;
  const std::string text =
      source == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>())
                    : base::read_text(source, kFileLimit);
  std::size_t number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string where = source + ":" + std::to_string(number);
    const boost::json::value line =
        base::json::parse(std::string_view(text).substr(begin, end - begin), where);
    if (!line.is_string()) base::throw_usage({.what = "a JSON string is expected here", .where = where});
    report(tokenizer, options, line.get_string(), out);
    begin = end + 1;
  }
}

}  // namespace

int run_tokenizer_probe(const TokenizerProbeOptions& options, std::ostream& out) {
  const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::load(options.tokenizer);
  if (options.lines) {
    report_lines(*tokenizer, options, out);
  } else {
    report(*tokenizer, options, options.text.value(), out);
  }
  out.flush();
  if (!out) throw base::Error({.what = "the output cannot be written", .where = "stdout"});
  return static_cast<int>(base::Exit::done);
}

}  // namespace aima::text
