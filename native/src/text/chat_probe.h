// `aima-engine chat-template-probe`: the prompt that a chat request becomes, as text and as tokens.
#pragma once

#include <iosfwd>
#include <span>
#include <string>

namespace aima::text {

/// Usage text of the command.
extern const char* const kChatProbeUsage;

/// Runs the command with the arguments after its name and prints JSON (schema aima/chat-template-probe/v1).
/// Returns the exit code; throws base::Error (exit code 2) for wrong usage and for a request that the
/// template refuses. With
/// --requests-jsonl every line of the file is a request of its own and gets a line of output, errors
/// included.
int run_chat_probe(std::span<const std::string> args, std::ostream& out);

}  // namespace aima::text
