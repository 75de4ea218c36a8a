/// The Python module `aimabuild._native`: the engine in process, with numpy arrays. Its Python side, types
/// included, is described in aimabuild/_native.pyi.
#include "python.h"

namespace aima::bindings {

// NOLINTNEXTLINE: the macro is pybind11's
PYBIND11_MODULE(_native, module) {
  module.doc() = "The native engine in process; see docs/bindings.md";
  translate_errors();
  add_text(module);
  add_model(module);
  add_operations(module);
}

}  // namespace aima::bindings
