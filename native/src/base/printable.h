/// Text of unknown origin, made fit for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace aima::base {

/// `text` as one line of bounded length that cannot do anything to a terminal, controls as \xNN: names out of
/// hostile files get into messages.
std::string printable(std::string_view text);

}  // namespace aima::base
