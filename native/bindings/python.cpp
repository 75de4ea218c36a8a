#include "python.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/threads.h"

namespace aima::bindings {
namespace {

constexpr auto poll = std::chrono::milliseconds(50);

void raise(const base::Error& error) {
  const py::module_ errors = py::module_::import("aimabuild.base.errors");
  const char* name = error.exit() == base::Exit::usage          ? "UsageError"
                     : error.exit() == base::Exit::check_failed ? "CheckFailedError"
                                                                : "AimaError";
  const auto text = [](const std::string& value) {
    return value.empty() ? py::object(py::none()) : py::str(value);
  };
  const base::ErrorText& t = error.text();
  const py::object type = errors.attr(name);
  const py::object value = type(t.what, py::arg("where") = text(t.where), py::arg("why") = text(t.why),
                                py::arg("hint") = text(t.hint));
  PyErr_SetObject(type.ptr(), value.ptr());
}

/// A thread that runs the work, and a way to wait for it for a while.
class Worker {
 public:
  Worker(const std::function<void(const std::atomic<bool>&)>& work, const std::atomic<bool>& stop)
      : thread_([this, &work, &stop] {
          try {
            work(stop);
          } catch (...) {
            failure_ = std::current_exception();
          }
          const std::lock_guard lock(mutex_);
          done_ = true;
          changed_.notify_one();
        }) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { thread_.join(); }

  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, poll, [this] { return done_; });
  }
  /// After the work has ended.
  std::exception_ptr failure() const { return failure_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace

void compute(const std::function<void(const std::atomic<bool>&)>& work) {
  std::atomic<bool> stop = false;
  std::exception_ptr failure;
  std::optional<py::error_already_set> raised;
  {
    const py::gil_scoped_release released;
    Worker worker(work, stop);
    while (!worker.wait()) {
      const py::gil_scoped_acquire acquired;
      if (raised || PyErr_CheckSignals() == 0) continue;
      raised.emplace();
      stop = true;
    }
    failure = worker.failure();
  }
  if (raised) throw std::move(*raised);
  if (failure) std::rethrow_exception(failure);
}

void translate_errors() {
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the signature is pybind11's
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const base::Error& error) {
      raise(error);
    } catch (const base::Cancelled&) {
      PyErr_SetNone(PyExc_KeyboardInterrupt);
    }
  });
}

Ids::Ids(const py::object& ids) {
  const py::array any = py::array::ensure(ids);
  if (!any) PyErr_Clear();
  const bool empty = any && any.size() == 0;
  if (!any || any.ndim() != 1 || (!empty && any.dtype().kind() != 'i' && any.dtype().kind() != 'u')) {
    base::throw_usage({.what = "token ids must be a list or a one-dimensional array of integers"});
  }
  const py::array_t<std::int64_t, py::array::forcecast> wide(any);
  if (any.dtype().kind() == 'u' || any.dtype().itemsize() > 4) {
    for (py::ssize_t i = 0; i < wide.size(); ++i) {
      if (wide.at(i) < INT32_MIN || wide.at(i) > INT32_MAX) {
        base::throw_usage(
            {.what = "the token id " + std::to_string(wide.at(i)) + " is not in the vocabulary"});
      }
    }
  }
  array_ = py::array_t<std::int32_t, py::array::c_style | py::array::forcecast>(any);
}

}  // namespace aima::bindings
