/// The pre-token split, written by hand for one regular expression:
///
///   (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+ | \p{N} | ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*
///   | \s*[\r\n]+ | \s+(?!\S) | \s+
///
/// (spaces around the bars are only for reading; the fourth alternative begins with an optional space).
#pragma once

#include <cstddef>
#include <string_view>

namespace aima::text {

/// The expression as a tokenizer.json must state it.
inline constexpr std::string_view kPretokenRegex =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)re"
    R"re(|\s*[\r\n]+|\s+(?!\S)|\s+)re";

/// End of the pre-token that begins at `begin` < text.size(). `text` is well-formed UTF-8. The expression
/// matches everywhere, so that the pre-tokens cover the text. Calls in a row take time linear in the text.
std::size_t pretoken_end(std::string_view text, std::size_t begin);

}  // namespace aima::text
