/// What the process does when a signal would end it.
#pragma once

#include <atomic>

namespace aima::cli {

/// For the whole process, once, before anything else: SIGINT, SIGTERM and SIGHUP (where they are not ignored)
/// remove temporary files, say so, and end the process by the same signal; a page that a file no longer has
/// (SIGBUS) is an error, exit code 1. SIGPIPE and SIGXFSZ are ignored: the write fails instead. Descriptors
/// 0 to 2 that are closed get something that cannot be written, so that no file can become one of them.
void set_up_process();

/// While one lives, the first of those signals only raises a flag, and work that watches it can end in order;
/// a second one acts at once.
class SignalStop {
 public:
  SignalStop();
  SignalStop(const SignalStop&) = delete;
  SignalStop& operator=(const SignalStop&) = delete;
  ~SignalStop();

  const std::atomic<bool>* flag() const;
};

/// Ends the process by the signal that a SignalStop noted, if there was one.
void end_if_signalled();

}  // namespace aima::cli
