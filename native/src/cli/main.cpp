/// aima-engine. Leaves by `_exit` after flushing: libraries opened at run time must not run their
/// destructors.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string_view>
#include <vector>

#include "cli/commands.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of the write, not the end of the process
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  const int code = aima::cli::run(words);
  std::fflush(nullptr);
  _exit(code);
}
