#include "base/threads.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>
#include <utility>

#include "base/cpu.h"
#include "base/error.h"

namespace aima::base {
namespace {

// A decode step is a few hundred short loops, with up to some tens of microseconds of one thread's work
// between them: sleeping there would cost more than the work.
constexpr std::chrono::microseconds spin_time(200);

/// True as soon as `ready` is, false after spin_time.
template <typename F>
bool spin_until(const F& ready) {
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      __builtin_ia32_pause();
    }
  } while (std::chrono::steady_clock::now() - start < spin_time);
  return false;
}

/// The calling thread runs on `processor` alone, where the kernel lets it.
void pin_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

std::vector<int> choose_processors(int threads) {
  std::vector<int> all = usable_processors();
  const auto count = static_cast<std::size_t>(threads);
  if (threads < 2 || count > all.size()) return {};
  const auto here = std::ranges::find(all, ::sched_getcpu());
  if (count < all.size() && here != all.end()) std::ranges::rotate(all, here);
  all.resize(count);
  return all;
}

ThreadPool::ThreadPool(int threads, std::vector<int> processors) : processors_(std::move(processors)) {
  threads_.reserve(static_cast<std::size_t>(std::max(threads, 1)) - 1);
  try {
    for (int worker = 1; worker < threads; ++worker) {
      threads_.emplace_back([this, worker] {
        if (!processors_.empty()) pin_to(processors_[static_cast<std::size_t>(worker)]);
        work(worker);
      });
    }
  } catch (const std::system_error& error) {
    const std::size_t started = threads_.size() + 1;
    quit_ = true;
    loop_.fetch_add(1);
    loop_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    throw Error({.what = "cannot start " + std::to_string(threads) + " threads",
                 .why = error.code().message() + " after " + std::to_string(started),
                 .hint = "choose fewer with --threads, or raise the limits of processes and of memory"});
  }
}

ThreadPool::~ThreadPool() {
  quit_ = true;
  loop_.fetch_add(1);
  loop_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(std::int64_t count, TaskRef task) {
  task_ = &task;
  count_ = count;
  next_ = 0;
  failed_ = false;
  const bool shared = count > 1 && !threads_.empty();
  if (shared) {
    busy_ = static_cast<int>(threads_.size());
    loop_.fetch_add(1);
    loop_.notify_all();
  }
  take_tasks(0);
  if (shared && !spin_until([this] { return busy_.load(std::memory_order_acquire) == 0; })) {
    for (int left = busy_.load(); left != 0; left = busy_.load()) busy_.wait(left);
  }
  finish_loop();
}

void ThreadPool::finish_loop() {
  task_ = nullptr;
  const bool stopped = stop_ != nullptr && stop_->load();
  if (error_ || stopped) release();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  if (stopped) throw Cancelled();
}

void ThreadPool::hold() {
  if (processors_.empty() || released_mask_) return;
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return;
  released_mask_ = mask;
  pin_to(processors_.front());
}

void ThreadPool::release() {
  if (!released_mask_) return;
  ::sched_setaffinity(0, sizeof *released_mask_, &*released_mask_);
  released_mask_.reset();
}

void ThreadPool::take_tasks(int worker) noexcept {
  while (!failed_.load(std::memory_order_relaxed) && !stopping()) {
    const std::int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
    if (task >= count_) return;
    try {
      (*task_)(task, worker);
    } catch (...) {
      const std::scoped_lock lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
  }
}

void ThreadPool::wait_for_loop(std::uint32_t seen) const {
  if (spin_until([this, seen] { return loop_.load(std::memory_order_acquire) != seen; })) return;
  loop_.wait(seen);
}

void ThreadPool::work(int worker) {
  std::uint32_t seen = 0;
  for (;;) {
    wait_for_loop(seen);
    seen = loop_.load();
    if (quit_) return;
    take_tasks(worker);
    if (busy_.fetch_sub(1) == 1) busy_.notify_one();
  }
}

}  // namespace aima::base
