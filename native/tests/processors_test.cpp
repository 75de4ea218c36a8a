/// Threads on their processors, what the control group allows, and the choice of instruction set.
#include <doctest/doctest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/cpu.h"
#include "base/threads.h"
#include "support.h"

using namespace aima;

namespace {

std::vector<int> allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
  std::vector<int> numbers;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (CPU_ISSET(number, &set)) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

TEST_CASE("processors are those of the affinity mask, each once") {
  std::vector<int> found = base::usable_processors();
  std::ranges::sort(found);
  CHECK(found == allowed());
  CHECK(base::usable_cores() >= 1);
  CHECK(base::usable_cores() <= static_cast<int>(found.size()));
  CHECK(base::choose_processors(1).empty());
  CHECK(base::choose_processors(static_cast<int>(found.size()) + 1).empty());
  const auto all = static_cast<int>(found.size());
  if (all < 2) return;
  std::vector<int> chosen = base::choose_processors(all);
  std::ranges::sort(chosen);
  CHECK(chosen == found);
  CHECK(base::choose_processors(2).size() == 2);
  CHECK(base::choose_processors(2).front() != base::choose_processors(2).back());
}

TEST_CASE("workers run where they are pinned; the caller does while it is held, and is free again after") {
  const std::vector<int> before = allowed();
  if (before.size() < 2) return;
  const std::vector<int> chosen = base::choose_processors(2);
  base::ThreadPool pool(2, chosen);
  CHECK(pool.processors() == chosen);
  pool.hold();
  std::array<std::atomic<int>, 2> seen = {-1, -1};
  // Two tasks that wait for each other: each worker takes one.
  std::atomic<int> started = 0;
  pool.run(2, [&](std::int64_t, int worker) {
    ++started;
    while (started < 2) ::sched_yield();
    seen[static_cast<std::size_t>(worker)] = ::sched_getcpu();
  });
  CHECK(seen[0] == chosen[0]);
  CHECK(seen[1] == chosen[1]);
  CHECK(allowed() == std::vector<int>{chosen[0]});
  pool.release();
  CHECK(allowed() == before);

  pool.hold();
  CHECK_THROWS_AS(pool.run(1, [](std::int64_t, int) { throw base::Error({.what = "no"}); }), base::Error);
  CHECK(allowed() == before);
}

TEST_CASE("the control group's share of processor time is the least of its own and those above") {
  const test::TemporaryFolder folder;
  const auto root = folder.path() / "cgroup";
  std::filesystem::create_directories(root / "slice/job");
  const auto file = folder.path() / "self";
  test::write_file(file, "4:memory:/x\n0::/slice/job\n");
  CHECK(base::cpu_quota(file, root) == 0);
  test::write_file(root / "slice/job/cpu.max", "max 100000\n");
  CHECK(base::cpu_quota(file, root) == 0);
  test::write_file(root / "slice/cpu.max", "250000 100000\n");
  CHECK(base::cpu_quota(file, root) == 3);
  test::write_file(root / "slice/job/cpu.max", "50000 100000\n");
  CHECK(base::cpu_quota(file, root) == 1);
  test::write_file(root / "cpu.max", "20000 100000\n");
  test::write_file(file, "0::/\n");
  CHECK(base::cpu_quota(file, root) == 1);
}

TEST_CASE("instruction sets: those that the processor has, by name") {
  using namespace device::cpu;
  const base::CpuFeatures& features = base::cpu_features();
  std::set<std::string> names;
  for (const Isa* isa : usable_isas()) {
    CHECK(&isa_named(isa->name) == isa);
    CHECK(std::ranges::find(isa_names, isa->name) != std::end(isa_names));
    names.insert(isa->name);
    for (const PanelKernels* panels : {&isa->panels, &isa->rounded_panels}) {
      CHECK(panel_cols % panels->n_step == 0);
      CHECK(panels->k_block % panels->k_step == 0);
      CHECK(panels->k_block * panels->element == 1024);  // what ops/panels.cpp takes memory for
    }
  }
  CHECK(names.size() == usable_isas().size());
  CHECK(names.contains("sse2"));
  CHECK(names.contains("avx2") == features.avx2);
  CHECK(names.contains("avx512") == features.avx512);
  CHECK(names.contains("avx512-bf16") == features.avx512_bf16);
  CHECK(names.contains("amx-bf16") == (features.amx_bf16 && base::permit_amx()));
  const base::Error error = test::error_of([] { isa_named("avx9"); });
  CHECK(std::string(error.what()).find("no instruction set 'avx9'") != std::string::npos);
}
