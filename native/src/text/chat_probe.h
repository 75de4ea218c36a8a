// `aima-engine chat-template-probe`: the prompt that a chat request becomes, as text and as tokens.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>

namespace aima::text {

/// Exactly one of `user`, `request` and `requests` is set.
struct ChatProbeOptions {
  std::optional<std::string> user{};                 ///< the text of one user message
  std::optional<std::string> request{};              ///< file with one request; "-" reads standard input
  std::optional<std::string> requests{};             ///< file with one request a line; "-" as above
  std::optional<std::filesystem::path> tokenizer{};  ///< tokenizer.json; without, no tokens are printed
  bool openai = false;                               ///< accept what OpenAI clients send (normalise_chat)
  bool typed_tokens = false;                         ///< recognise added tokens in the request's own text too
};

/// Prints one line of JSON (aima/chat-template-probe/v1). Returns 0; throws base::Error (exit code 2) for a
/// request that cannot be read or that the template refuses. With `requests` each gets a line of its own, and
/// a refused one a line with "error".
int run_chat_probe(const ChatProbeOptions& options, std::ostream& out);

}  // namespace aima::text
