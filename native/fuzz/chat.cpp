/// A chat request as JSON: read, printed, normalised, rendered and tokenised.
#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "fuzz/fuzz_tokenizer.h"
#include "text/chat_json.h"
#include "text/chat_request.h"
#include "text/chat_template.h"

namespace {

using namespace aima;

void check_prompt(const text::ChatPrompt& prompt) {
  std::size_t end = 0;
  for (const text::ByteRange& range : prompt.trusted) {
    fuzz::require(range.begin < range.end && range.begin >= end, "trusted ranges are in order and apart");
    end = range.end;
  }
  fuzz::require(end <= prompt.text.size(), "trusted ranges lie in the text");
  fuzz::require(std::ranges::is_sorted(prompt.boundaries), "boundaries are in order");
  fuzz::require(prompt.generation <= prompt.text.size(), "the generation prompt is in the text");
  const text::ChatTokens tokens = text::encode_chat(fuzz::tokenizer(), prompt);
  fuzz::require(tokens.boundaries.size() == prompt.boundaries.size(), "a position for each boundary");
  fuzz::require(std::ranges::is_sorted(tokens.boundaries), "positions are in order");
  fuzz::require(tokens.generation <= tokens.ids.size(), "the generation prompt is among the tokens");
  // Exactly the template's own control tokens are tokens.
  std::size_t own = 0;
  for (const text::ByteRange& range : prompt.trusted) {
    const std::string_view text = std::string_view(prompt.text).substr(range.begin, range.end - range.begin);
    for (std::size_t at = text.find("<|im_"); at != std::string_view::npos; at = text.find("<|im_", at + 1))
      ++own;
  }
  const auto is_turn = [](std::int32_t id) { return id == 1000 || id == 1001; };
  const auto found = static_cast<std::size_t>(std::ranges::count_if(tokens.ids, is_turn));
  fuzz::require(found == own, "a control token typed by a user stays text");
}

void check_request(const text::Json& request) {
  const std::string printed = text::dump_json(request);
  fuzz::require(text::dump_json(text::parse_json(printed, "printed")) == printed,
                "what is printed is read back");
  fuzz::accepts([&] { check_prompt(text::render_chat(request)); });
  fuzz::accepts([&] {
    const text::Json normal = text::normalise_chat(request);
    const std::string once = text::dump_json(normal);
    fuzz::require(text::dump_json(text::normalise_chat(normal)) == once, "a normal request stays as it is");
    fuzz::accepts([&] { check_prompt(text::render_chat(normal)); });
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::accepts([&] { check_request(text::parse_json(fuzz::text_of(data, size), "request")); });
  return 0;
}
