/// The commands of aima-engine, each in its own file.
#pragma once

#include "cli/options.h"

namespace aima::cli {

extern const Command generate_command;
extern const Command weights_probe_command;
extern const Command tokenizer_probe_command;
extern const Command doctor_command;
extern const Command resident_session_probe_command;
extern const Command chat_template_probe_command;

/// `--build-info`: aima/build-info/v1 as JSON, on stdout.
void print_build_info();

/// Writes to stdout; throws when that fails (a closed pipe, a full disk).
void write_out(std::string_view text);

/// The whole program: parses, runs, prints errors to stderr. Returns the exit code.
int run(std::span<const std::string_view> words);

}  // namespace aima::cli
