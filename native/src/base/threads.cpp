#include "base/threads.h"

#include <utility>

namespace aima::base {
namespace {

// A decode step is a few hundred short loops: sleeping between them would cost more than the work. About 20
// us.
constexpr int spins = 1000;

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int worker = 1; worker < threads; ++worker) threads_.emplace_back([this, worker] { work(worker); });
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
  if (shared) {
    for (int spin = 0; spin < spins && busy_.load(std::memory_order_acquire) != 0; ++spin)
      __builtin_ia32_pause();
    for (int left = busy_.load(); left != 0; left = busy_.load()) busy_.wait(left);
  }
  task_ = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  if (stop_ != nullptr && stop_->load()) throw Cancelled();
}

void ThreadPool::take_tasks(int worker) noexcept {
  while (!failed_.load(std::memory_order_relaxed) &&
         (stop_ == nullptr || !stop_->load(std::memory_order_relaxed))) {
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
  for (int spin = 0; spin < spins && loop_.load(std::memory_order_acquire) == seen; ++spin)
    __builtin_ia32_pause();
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
