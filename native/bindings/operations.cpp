/// Single operations of the CPU device, to hold them against a reference outside the model.
#include <string>
#include <vector>

#include "base/error.h"
#include "device/cpu/ops/attention.h"
#include "device/cpu/ops/gdn.h"
#include "device/cpu/tables.h"
#include "python.h"

namespace aima::bindings {
namespace {

namespace cpu = device::cpu;
using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

/// An operation's context in f32.
struct Bench {
  explicit Bench(int threads, const std::string& isa = {})
      : pool(threads),
        scratch(threads),
        context{isa.empty() ? *cpu::usable_isas().front() : cpu::isa_named(isa), pool, scratch, Math::f32} {}

  base::ThreadPool pool;
  cpu::Scratch scratch;
  cpu::Context context;
};

void expect(const char* name, const Floats& array, const std::vector<std::int64_t>& shape) {
  const std::vector<std::int64_t> got(array.shape(), array.shape() + array.ndim());
  if (got != shape) base::throw_usage({.what = std::string("the array `") + name + "` has another shape"});
}

/// Rows q | k | v of every token, as the projections leave them.
std::vector<float> side_by_side(const Floats& q, const Floats& k, const Floats& v) {
  const std::int64_t tokens = v.shape(0);
  std::vector<float> rows;
  rows.reserve(static_cast<std::size_t>(q.size() + k.size() + v.size()));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (const Floats* part : {&q, &k, &v}) {
      const std::int64_t width = part->size() / tokens;
      rows.insert(rows.end(), part->data() + t * width, part->data() + (t + 1) * width);
    }
  }
  return rows;
}

py::tuple delta_rule(const Floats& q, const Floats& k, const Floats& v, const Floats& g, const Floats& beta,
                     const Floats& state, bool chunks, int threads, const std::string& isa) {
  if (q.ndim() != 3 || v.ndim() != 3 || v.shape(0) < 1 || q.shape(1) < 1 || v.shape(1) % q.shape(1) != 0) {
    base::throw_usage({.what = "q must be [T, key heads, dim] and v [T, value heads, dim]"});
  }
  if (threads < 1 || threads > 1024) base::throw_usage({.what = "threads must be 1 to 1024"});
  const cpu::DeltaShape s{
      .key_heads = q.shape(1), .value_heads = v.shape(1), .key_dim = q.shape(2), .value_dim = v.shape(2)};
  const std::int64_t tokens = v.shape(0);
  expect("q", q, {tokens, s.key_heads, s.key_dim});
  expect("k", k, {tokens, s.key_heads, s.key_dim});
  expect("g", g, {tokens, s.value_heads});
  expect("beta", beta, {tokens, s.value_heads});
  expect("state", state, {s.value_heads, s.key_dim, s.value_dim});
  const std::vector<float> rows = side_by_side(q, k, v);
  const std::int64_t width = 2 * s.key_width() + s.value_heads * s.value_dim;
  FloatArray out({tokens, s.value_heads, s.value_dim});
  FloatArray end({s.value_heads, s.key_dim, s.value_dim});
  std::copy_n(state.data(), state.size(), end.mutable_data());
  const cpu::Delta delta{.shape = s,
                         .qkv = {rows.data(), tokens, width, width},
                         .g = {g.data(), tokens, s.value_heads, s.value_heads},
                         .beta = {beta.data(), tokens, s.value_heads, s.value_heads},
                         .state = end.mutable_data(),
                         .o = cpu::packed(out.mutable_data(), tokens, s.value_heads * s.value_dim)};
  compute([&](const std::atomic<bool>& stop) {
    Bench bench(threads, isa);
    bench.pool.set_stop(&stop);
    (chunks ? cpu::delta_chunks : cpu::delta_steps)(bench.context, delta);
  });
  return py::make_tuple(out, end);
}

py::tuple rope_tables(double theta, std::int64_t rotary, std::int64_t start, std::int64_t count) {
  if (rotary < 2 || rotary % 2 != 0 || start < 0 || count < 1) {
    base::throw_usage({.what = "rope_tables needs an even number of dimensions and at least one position"});
  }
  FloatArray cos({count, rotary / 2});
  FloatArray sin({count, rotary / 2});
  const cpu::Mat cos_rows = cpu::packed(cos.mutable_data(), count, rotary / 2);
  const cpu::Mat sin_rows = cpu::packed(sin.mutable_data(), count, rotary / 2);
  compute([&](const std::atomic<bool>& stop) {
    Bench bench(1);
    bench.pool.set_stop(&stop);
    cpu::rope_tables(bench.context, theta, rotary, start, cos_rows, sin_rows);
  });
  return py::make_tuple(cos, sin);
}

std::vector<std::string> usable_isas() {
  std::vector<std::string> names;
  for (const cpu::Isa* isa : cpu::usable_isas()) names.emplace_back(isa->name);
  return names;
}

}  // namespace

void add_operations(py::module_& module) {
  module.def("usable_isas", usable_isas);
  module.def("delta_rule", delta_rule, py::arg("q"), py::arg("k"), py::arg("v"), py::arg("g"),
             py::arg("beta"), py::arg("state"), py::kw_only(), py::arg("chunks"), py::arg("threads") = 1,
             py::arg("isa") = "");
  module.def("rope_tables", rope_tables, py::arg("theta"), py::arg("rotary"), py::arg("start"),
             py::arg("count"));
}

}  // namespace aima::bindings
