/// aima-engine. Leaves by `_exit` after flushing: libraries opened at run time must not run their
/// destructors.
#include <unistd.h>

#include <cstdio>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/signals.h"

int main(int argc, char** argv) {
  aima::cli::set_up_process();
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  const int code = aima::cli::run(words);
  std::fflush(nullptr);
  _exit(code);
}
