/// NFC, as the reference tokenizer's normaliser does it.
#pragma once

#include <string>
#include <string_view>

namespace aima::text {

/// `text` with ill-formed parts replaced by U+FFFD and in NFC. Returns `text` itself when it is so already,
/// else a view of `scratch`. Code points that the reference's NFC does not know keep their place (unicode.h,
/// kNfcActive). Linear in the length but for one sort of each run of combining marks.
std::string_view to_nfc(std::string_view text, std::string& scratch);

}  // namespace aima::text
