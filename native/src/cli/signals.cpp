#include "cli/signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "base/files.h"

namespace aima::cli {
namespace {

struct Ending {
  int number;
  std::string_view message;
};

constexpr std::array<Ending, 3> endings = {{{SIGINT, "\nerror: stopped by SIGINT\n"},
                                            {SIGTERM, "\nerror: stopped by SIGTERM\n"},
                                            {SIGHUP, "\nerror: stopped by SIGHUP\n"}}};

std::atomic<int> watchers{0};
std::atomic<int> noted{0};
std::atomic<bool> stop{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void say(std::string_view text) {
  const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  static_cast<void>(written);  // nothing is left to be done about it
}

/// Safe in a signal handler.
[[noreturn]] void end_by(int number) {
  base::remove_temporary_files();
  for (const Ending& ending : endings) {
    if (ending.number == number) say(ending.message);
  }
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  ::sigaction(number, &standard, nullptr);
  sigset_t unblocked;
  sigemptyset(&unblocked);
  sigaddset(&unblocked, number);
  ::pthread_sigmask(SIG_UNBLOCK, &unblocked, nullptr);
  ::kill(::getpid(), number);
  ::_exit(128 + number);  // the first process of a container cannot be ended by a signal of its own
}

void on_ending(int number) {
  int none = 0;
  if (watchers.load() != 0 && noted.compare_exchange_strong(none, number)) {
    stop = true;
    return;
  }
  end_by(number);
}

void on_bus_error(int number, siginfo_t* info, void* /*context*/) {
  if (info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR) {
    base::remove_temporary_files();
    say("\nerror: a model file was cut short or cannot be read while in use\n");
    ::_exit(1);
  }
  struct sigaction standard{};  // anything else is a fault of the program: it happens again, and ends it
  standard.sa_handler = SIG_DFL;
  ::sigaction(number, &standard, nullptr);
}

/// Only for signals that whoever started the process does not want ignored (nohup).
void handle(int number) {
  struct sigaction action{};
  if (::sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = on_ending;
  action.sa_flags = SA_RESTART;
  ::sigaction(number, &action, nullptr);
}

}  // namespace

void set_up_process() {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    const int opened = ::open("/", O_PATH | O_DIRECTORY);  // takes the lowest free number: this one
    if (opened > STDERR_FILENO) ::close(opened);
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  for (const Ending& ending : endings) handle(ending.number);
  struct sigaction bus{};
  bus.sa_sigaction = on_bus_error;
  bus.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &bus, nullptr);
}

SignalStop::SignalStop() { ++watchers; }
SignalStop::~SignalStop() { --watchers; }

const std::atomic<bool>* SignalStop::flag() const { return &stop; }

void end_if_signalled() {
  if (const int number = noted.load()) end_by(number);
}

}  // namespace aima::cli
