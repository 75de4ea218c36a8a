/// A fixed set of threads that share out the tasks of one loop at a time.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

namespace aima::base {

/// Thrown out of a loop whose stop flag was seen; the loop's results are incomplete.
struct Cancelled : std::exception {
  const char* what() const noexcept override { return "cancelled"; }
};

/// A reference to a callable `void(std::int64_t task, int worker)`; cheap, and valid only while that lives.
class TaskRef {
 public:
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, TaskRef>)
  TaskRef(const F& f)  // NOLINT(google-explicit-constructor): made from a lambda at the call
      : object_(&f), call_([](const void* object, std::int64_t task, int worker) {
          (*static_cast<const F*>(object))(task, worker);
        }) {}
  void operator()(std::int64_t task, int worker) const { call_(object_, task, worker); }

 private:
  const void* object_;
  void (*call_)(const void*, std::int64_t, int);
};

/// Tasks are taken one by one by whoever is free, so a task's result must not depend on which worker runs it
/// or when: each writes its own outputs. Not re-entrant: a task must not start another loop.
///
/// Between loops the workers spin for a while, since the next loop mostly follows at once, then they sleep.
class ThreadPool {
 public:
  /// `threads` >= 1 in all, the caller of `run` included. `processors` (as many as threads, or none): worker
  /// i runs on processors[i] alone; worker 0 does while it is held. Throws Error (failed) when the system
  /// starts no more threads.
  explicit ThreadPool(int threads, std::vector<int> processors = {});
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int size() const { return static_cast<int>(threads_.size()) + 1; }
  /// Where the workers are pinned; empty: nowhere.
  const std::vector<int>& processors() const { return processors_; }

  /// Pins the calling thread to worker 0's processor, until `release` or until a loop throws. A thread that
  /// it starts meanwhile would inherit that.
  void hold();
  void release();

  /// Runs tasks 0..count-1, and returns when all are done. `worker` is 0..size()-1. The first exception of a
  /// task is thrown here after the others have stopped.
  void run(std::int64_t count, TaskRef task);

  /// A flag looked at before each task: once true, the rest is skipped and `run` throws Cancelled. It stays
  /// up until `run` has returned. May be null.
  void set_stop(const std::atomic<bool>* stop) { stop_ = stop; }
  /// True once the flag is up: a long task may end early, since `run` will throw.
  bool stopping() const { return stop_ != nullptr && stop_->load(std::memory_order_relaxed); }

 private:
  void work(int worker);
  void take_tasks(int worker) noexcept;
  void wait_for_loop(std::uint32_t seen) const;
  void finish_loop();

  std::vector<int> processors_;
  std::optional<cpu_set_t> released_mask_;  ///< of the thread that is held
  std::vector<std::thread> threads_;
  const TaskRef* task_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::atomic<std::uint32_t> loop_{0};  ///< counts loops; workers wait for it to change
  std::atomic<int> busy_{0};            ///< workers that have not finished this loop
  std::atomic<bool> quit_{false};
  std::atomic<bool> failed_{false};
  const std::atomic<bool>* stop_ = nullptr;
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

/// Processors for `threads` threads, from the one that the caller runs on onward, so that programs beside
/// each other rarely choose the same; none when there are too few processors, or only one thread.
std::vector<int> choose_processors(int threads);

}  // namespace aima::base
