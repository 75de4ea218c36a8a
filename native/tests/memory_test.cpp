/// Limits of memory as /proc and /sys state them, and the plan made against them.
#include "base/memory.h"

#include <doctest/doctest.h>

#include "engine/loaded_model.h"
#include "engine/memory_plan.h"
#include "support.h"

using namespace aima;
using base::MemoryLimit;

namespace {

namespace fs = std::filesystem;

void put(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  test::write_file(path, text);
}

std::uint64_t available(const std::vector<MemoryLimit>& limits, std::string_view source) {
  for (const MemoryLimit& limit : limits) {
    if (limit.source == source) return limit.available;
  }
  return 0;
}

}  // namespace

TEST_CASE("limits come from meminfo and from every control group around the process") {
  const test::TemporaryFolder folder;
  const fs::path& root = folder.path();
  CHECK(base::memory_limits(root).empty());
  put(root / "proc/meminfo", "MemTotal: 9 kB\nMemAvailable:     1000 kB\nSwapFree: 5 kB\n");
  CHECK(base::memory_limits(root).size() == 1);
  CHECK(base::memory_limits(root)[0].available == 1024000);

  put(root / "proc/self/cgroup", "0::/outer/inner\n");
  put(root / "sys/fs/cgroup/outer/inner/memory.max", "max\n");
  put(root / "sys/fs/cgroup/outer/memory.max", "500000\n");
  put(root / "sys/fs/cgroup/outer/memory.current", "300000\n");
  put(root / "sys/fs/cgroup/outer/memory.stat", "anon 100\nfile 7\ninactive_file 40000\nactive_file 10000\n");
  CHECK(base::memory_limits(root).size() == 2);
  CHECK(available(base::memory_limits(root), "cgroup memory.max") == 250000);  // 500000 - (300000 - 50000)
  put(root / "sys/fs/cgroup/outer/memory.current", "900000\n");
  CHECK(available(base::memory_limits(root), "cgroup memory.max") == 0);

  // In a container the path is the host's, and the mount shows the group itself.
  put(root / "proc/self/cgroup", "0::/somewhere/else\n");
  put(root / "sys/fs/cgroup/memory.max", "600\n");
  CHECK(available(base::memory_limits(root), "cgroup memory.max") == 600);

  put(root / "proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a/b\n");
  put(root / "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");  // none
  put(root / "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "7000\n");
  put(root / "sys/fs/cgroup/memory/a/memory.usage_in_bytes", "2000\n");
  put(root / "sys/fs/cgroup/memory/a/memory.stat",
      "inactive_file 1\ntotal_inactive_file 400\ntotal_active_file 100\n");
  CHECK(base::memory_limits(root).size() == 2);
  CHECK(available(base::memory_limits(root), "cgroup memory.limit_in_bytes") == 5500);
}

TEST_CASE("this process") {
  const base::ProcessMemory now = base::process_memory();
  CHECK(now.resident_peak > now.anonymous / 2);
  CHECK(now.anonymous > 0);
  CHECK(now.code > 0);
  CHECK(now.address_space >= now.anonymous);
  CHECK(available(base::memory_limits(), "MemAvailable") > 0);
  CHECK(base::format_bytes(0) == "0 bytes");
  CHECK(base::format_bytes(999) == "999 bytes");
  CHECK(base::format_bytes(69321221376) == "69.32 GB");
}

TEST_CASE("the plan: what fits, what is refused, and with which figures") {
  const test::SmallModel small;
  const test::TemporaryFolder folder;
  small.write(folder.path());
  const auto model = engine::load_model(folder.path(), Math::bf16);
  std::size_t written = 0;
  for (const auto& [name, tensor] : small.tensors()) {
    const bool widened = tensor.shape.size() == 1 || name.ends_with("conv1d.weight");
    written += tensor.values.size() * (widened ? 4 : 2);
  }
  CHECK(engine::weights_bytes(model->weights) == written);

  const device::cpu::CpuDevice device(model->config, model->weights,
                                      {.math = Math::bf16, .threads = 1, .isa = nullptr});
  engine::MemoryRequest request{.weights = 1000000,
                                .weights_mapped = 900000,
                                .vocab = 101,
                                .context_tokens = 1024,
                                .cache_bytes = 5000,
                                .capacity = 128,
                                .most_capacity = 4096};
  const base::ProcessMemory process{.resident_peak = 0, .anonymous = 300000, .code = 50, .address_space = 0};
  const auto plan = [&](std::uint64_t available, bool counts_mapped = false) {
    const MemoryLimit limit{.source = "MemAvailable", .available = available, .counts_mapped = counts_mapped};
    return engine::plan_memory(device, request, process, std::span(&limit, 1));
  };
  const engine::MemoryPlan all = engine::plan_memory(device, request, process, {});
  CHECK(all.capacity == 128);
  CHECK(all.process == 200050);  // less the weights that lie in the heap
  CHECK(all.state == device.state_bytes(128));
  CHECK(all.workspace > device.workspace_bytes(1024));
  CHECK(all.cache == 5000 + device.state_bytes(0));
  CHECK(all.peak() == all.process + 1000000 + all.state + all.workspace + all.cache);
  const std::size_t rest = all.state + all.workspace + all.cache;
  CHECK(all.needed(false) == 900000 + rest);
  CHECK(all.needed(true) == rest);

  CHECK(plan(900000 + rest).capacity == 128);
  const base::Error error = test::error_of([&] { plan(900000 + rest - 1); });
  CHECK(error.text().what == "a window of 128 tokens does not fit into memory");
  CHECK(error.text().why.find("weights 1.00 MB") != std::string::npos);
  CHECK(error.text().why.find("available (MemAvailable)") != std::string::npos);
  CHECK(error.exit() == base::Exit::failed);
  CHECK(plan(rest, true).capacity == 128);  // mapped weights are in the address space already
  CHECK_THROWS_AS(plan(rest - 1, true), base::Error);

  request.capacity.reset();
  CHECK(engine::plan_memory(device, request, process, {}).capacity == 4096);
  const std::size_t block = device.state_bytes(64) - device.state_bytes(0);
  const std::size_t base_need = 900000 + all.workspace + all.cache + device.state_bytes(0);
  const auto room = static_cast<std::uint64_t>(static_cast<double>(base_need + 10 * block) / 0.9);
  CHECK(plan(room + 2).capacity == 640);  // and a tenth stays free
  CHECK(plan(room - 2).capacity == 576);
  const base::Error none = test::error_of([&] { plan(base_need); });
  CHECK(none.text().what == "a window of 64 tokens does not fit into memory");
  request.capacity = 4096;
  CHECK(test::error_of([&] { plan(room + 2); }).text().hint == "--cache-capacity 640 fits");
  request.capacity.reset();
  request.most_capacity = 100;  // positions of the model, no multiple of 64
  CHECK(engine::plan_memory(device, request, process, {}).capacity == 100);
}
