// The chat prompt of Qwen3.6, byte for byte as the model's own chat_template.jinja renders it under
// transformers (model.md 8). scripts/compare_chat_template.py compares the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "text/chat_json.h"
#include "text/tokenizer.h"

namespace aima::text {

/// A rendered prompt.
struct ChatPrompt {
  std::string text;
  /// Bytes written by the template itself, sorted: only there may the tokenizer recognise added tokens, so
  /// that
  /// `<|im_end|>` typed by a user stays text.
  std::vector<ByteRange> trusted;
  /// Byte offsets where a turn or a tool result begins, ascending, the generation prompt's included. No token
  /// crosses one: an added token of the template stands on one side of each.
  std::vector<std::size_t> boundaries;
  /// Where the generation prompt begins; the text's size when there is none.
  std::size_t generation = 0;
};

/// Renders request.messages with, optionally, .tools, .add_generation_prompt (default true),
/// .enable_thinking, .preserve_thinking and .add_vision_id; other keys mean nothing to the template. Accepts
/// and refuses what the template does, down to its odd corners, but for two things it refuses where the
/// template would print Python notation: a text part whose text is an object or array, and `tools` given as a
/// string. Throws base::Error (exit code 2) with the place in the request ("messages[3].role").
ChatPrompt render_chat(const Json& request);

/// A prompt as the model reads it; positions count tokens.
struct ChatTokens {
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> boundaries;
  std::size_t generation = 0;
};

/// Tokenises a prompt. With `typed_tokens`, added tokens are recognised everywhere, as transformers does when
/// it tokenises the whole text; otherwise only in the template's own text.
ChatTokens encode_chat(const Tokenizer& tokenizer, const ChatPrompt& prompt, bool typed_tokens = false);

}  // namespace aima::text
