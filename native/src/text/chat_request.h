// From the chat requests that OpenAI clients send to what the model's chat template accepts.
#pragma once

#include "text/chat_json.h"

namespace aima::text {

/// Rewrites an OpenAI-shaped request so that render_chat does what its sender meant. In short:
/// - system and developer messages are joined, in order and a blank line apart, into one system message in
/// front;
/// - text parts of every kind (text, input_text, output_text, refusal) become text parts; pictures, audio and
/// files
///   are refused, since the engine has no vision tower;
/// - `reasoning` is read as `reasoning_content`, and both may be null;
/// - tool call arguments in a string are parsed, key order kept; an empty string, null or none means no
/// arguments;
/// - `chat_template_kwargs` come to the top level and win; `reasoning_effort` "none" turns thinking off
/// unless
///   `enable_thinking` says otherwise; the template's switches must be booleans (null is as good as absent);
/// - tools must be objects; `tool_choice` "none" takes them out of the prompt.
/// Throws base::Error (exit code 2) with the place in the request ("messages[1].content[0].type").
Json normalise_chat(Json request);

}  // namespace aima::text
