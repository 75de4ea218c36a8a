/// What every file of the module needs of Python: the one place that includes pybind11.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>

namespace aima::bindings {

namespace py = pybind11;

/// Runs `work` without the interpreter's lock and waits for it. While it runs, signals are looked at: when a
/// handler raises (Ctrl-C does), the flag handed to `work` goes up, and when the work has ended what the
/// handler raised is thrown.
void compute(const std::function<void(const std::atomic<bool>& stop)>& work);

/// Makes base::Error arrive in Python as aimabuild.base.errors: UsageError, CheckFailedError or AimaError.
void translate_errors();

/// Token ids from a list or an integer array; an int32 array is used where it lies.
class Ids {
 public:
  /// Throws base::Error (usage) for anything but one dimension of integers that fit an int32.
  explicit Ids(const py::object& ids);
  std::span<const std::int32_t> span() const {
    return {array_.data(), static_cast<std::size_t>(array_.size())};
  }

 private:
  py::array_t<std::int32_t, py::array::c_style> array_;
};

using FloatArray = py::array_t<float>;
using IntArray = py::array_t<std::int32_t>;

void add_text(py::module_& module);
void add_model(py::module_& module);
void add_operations(py::module_& module);

}  // namespace aima::bindings
