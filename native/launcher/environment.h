/// The environment that the engine starts with: a table of what is taken out and what is put in.
#ifndef AIMA_LAUNCHER_ENVIRONMENT_H
#define AIMA_LAUNCHER_ENVIRONMENT_H

/// A new environment made from `old`. `root` is the bundle as values may name it (no ':' in it).
/// The names of what was taken out or replaced stand in AIMA_DROPPED_ENV, separated by commas, for
/// `aima-engine doctor`. Names listed in AIMA_KEEP_ENV are left alone.
char** engine_environment(char* const* old, const char* root);

#endif
