/// What every fuzzer needs: the input as text, properties that must hold, and the one way to refuse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace aima::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Ends the process, which libFuzzer reports together with the input, when a property does not hold.
inline void require(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "property does not hold: %s\n", property);
  std::abort();
}

/// Cuts `text` at the first `separator` byte; the second part is empty without one.
inline std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view first = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return first;
}

/// Runs `work`; false when it refused its input. A refusal is a base::Error of exit 2 that says where, in
/// lines that a terminal shows as they are; any other exception ends the process.
template <typename Work>
bool accepts(const Work& work) {
  try {
    work();
    return true;
  } catch (const base::Error& error) {
    require(error.exit() == base::Exit::usage, "a bad input is the input's fault");
    require(!error.text().what.empty() && !error.text().where.empty(), "a refusal says what and where");
    const std::string_view shown = error.what();
    require(shown.size() < 16384, "a refusal is short");
    std::size_t lines = 1;
    for (const char c : shown) {
      lines += c == '\n' ? 1 : 0;
      require(c == '\n' || (static_cast<unsigned char>(c) >= 32 && c != 127), "a refusal can be printed");
    }
    require(lines <= 3, "a refusal is one line each for what, why and hint");
    return false;
  }
}

}  // namespace aima::fuzz

/// libFuzzer's entry point; returns 0 for an input that may enter the corpus.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
