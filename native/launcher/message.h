/// What the launcher says when it cannot go on: what, where, why, hint, as the engine and aimabuild do.
#ifndef AIMA_LAUNCHER_MESSAGE_H
#define AIMA_LAUNCHER_MESSAGE_H

enum { EXIT_WORK_FAILED = 1, EXIT_WRONG_USE = 2, EXIT_CHECK_FAILED = 3 };

/// Print the message to stderr and exit with `code`. `where`, `why` and `hint` may be null.
_Noreturn void fail(int code, const char* what, const char* where, const char* why, const char* hint);

/// `text` (a name of a file, say) with control characters as \xNN; a new string.
const char* printable(const char* text);

/// malloc, or exit.
void* take(unsigned long size);

/// A new string of `first` and `second`.
char* join(const char* first, const char* second);

#endif
