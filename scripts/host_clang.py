"""Instrumented builds of the engine with clang 19 and libc++ of the host.

The locked compiler has no runtime of the sanitizers, so `make sanitize` and `make fuzz` take them from the
host; on Debian: clang-19, libc++-19-dev, libc++abi-19-dev, libclang-rt-19-dev. Where these are missing the
checks are skipped, with a notice, not passed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from aimabuild.base.files import write_if_changed
from aimabuild.base.reporter import Reporter
from aimabuild.graph.native import isa_flags
from aimabuild.toolchain import Toolchain, open_toolchain

ROOT = Path(__file__).resolve().parent.parent
COMPILER = "clang++-19"
BUILD = "build/sanitize"
BUILD_INFO = f"{BUILD}/build_info.cpp"
PARTS = ("ziglang", "cmeel-boost", "native")

ADDRESS = "-fsanitize=address,undefined -fno-sanitize-recover=all"
THREAD = "-fsanitize=thread"
# Debian's libFuzzer is compiled against libstdc++; "-lstdc++" would mean libc++ here.
FUZZER = "-fsanitize=fuzzer -l:libstdc++.so.6"
# -O1 and line tables: the build takes longer than the tests, and frames keep their lines.
_COMPILE = "-std=c++20 -stdlib=libc++ -O1 -gline-tables-only -fno-omit-frame-pointer -Wall -Wextra -Werror"
# Folders that the fuzzers reach. Their objects carry libFuzzer's counters in the ASan tests too, so that
# `make sanitize` and `make fuzz` share them; the ASan runtime has empty stand-ins for the counters' hooks.
_COUNTED = ("native/src/base/", "native/src/model/", "native/src/text/", "native/fuzz/")
# A complete object of facts about a build, which a sanitized engine has no use for.
_BUILD_INFO = """// Written by scripts/host_clang.py.
#include "base/build_info.h"

namespace aima::base {

const BuildInfo& build_info() {
  static constexpr BuildInfo info = {
      .version = "sanitized", .commit = "unknown", .recipe = "", .compiler = "", .host_target = "",
      .kernels_target = "", .kernel_count = 0, .plan_digest = "", .toolchain_digest = "", .libraries = {}};
  return info;
}

}  // namespace aima::base
"""
_PROBE = """#include <format>
#ifdef FUZZER
extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long)
#else
int main()
#endif
{ return std::format("{}", 1).size() != 1; }
"""


@dataclass(frozen=True)
class Program:
    """A program to link: its sources from ROOT on, and flags for the link alone."""

    name: str
    sources: tuple[str, ...]
    link_flags: str = ""


@dataclass(frozen=True)
class Build:
    """Programs with one set of sanitizers; objects lie in build/sanitize/NAME."""

    name: str
    sanitizers: str
    programs: tuple[Program, ...]
    counted: bool = False

    @property
    def folder(self) -> str:
        """Where objects and programs lie, from ROOT on."""
        return f"{BUILD}/{self.name}"

    def program(self, name: str) -> Path:
        """The linked program."""
        return ROOT / self.folder / name

    def run(self, name: str, arguments: Iterable[str | Path] = ()) -> int:
        """Run a program from ROOT with the sanitizers' options; its exit code."""
        command = [self.program(name), *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode


def environment() -> dict[str, str]:
    """Ours, and what the sanitizers are to look for beside their defaults."""
    return {
        **os.environ,
        "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    }


def is_usable(sanitizers: str) -> bool:
    """True when the host's clang 19 compiles and links a program with libc++ and these sanitizers."""
    if shutil.which(COMPILER) is None:
        return False
    command = [COMPILER, "-std=c++20", "-stdlib=libc++", *sanitizers.split()]
    command += ["-DFUZZER"] if FUZZER in sanitizers else []
    done = subprocess.run(
        [*command, "-x", "c++", "-", "-o", os.devnull],
        input=_PROBE,
        text=True,
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def sources(*folders: str) -> tuple[str, ...]:
    """C++ files below folders of ROOT, but for the engine's `main`."""
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.cpp")]
    return tuple(sorted(path.relative_to(ROOT).as_posix() for path in found if path.name != "main.cpp"))


def _object(build: Build, source: str) -> str:
    return f"{build.folder}/{source.replace('/', '_')}.o"


def ninja_file(build: Build, toolchain: Toolchain) -> str:
    """The build file: one object for each source, however many programs link it."""
    sysroot = toolchain.native_sysroot / "usr"
    includes = f"-Inative/src -Inative/include -Inative -isystem {toolchain.boost_include}"
    includes += f" -isystem {sysroot}/include"
    libraries = " ".join(str(path) for path in sorted(sysroot.glob("lib/**/*.a")))
    compiler = f"{COMPILER} {_COMPILE} {build.sanitizers} $flags {includes}"
    linker = f"{COMPILER} -stdlib=libc++ {build.sanitizers} $flags"
    lines = [
        "ninja_required_version = 1.10",
        f"builddir = {build.folder}",
        "rule cxx",
        f"  command = {compiler} -MD -MF $out.d -c $in -o $out",
        "  description = c++ $in",
        "  depfile = $out.d",
        "  deps = gcc",
        "rule link",
        f"  command = {linker} $in {libraries} -ldl -lpthread -o $out",
        "  description = link $out",
    ]
    for source in sorted({source for program in build.programs for source in program.sources}):
        counters = build.counted and source.startswith(_COUNTED)
        flags = f"{'-fsanitize=fuzzer-no-link' if counters else ''} {isa_flags(source)}".strip()
        lines += [f"build {_object(build, source)}: cxx {source}", f"  flags = {flags}"]
    for program in build.programs:
        objects = " ".join(_object(build, source) for source in program.sources)
        lines += [
            f"build {build.folder}/{program.name}: link {objects}",
            f"  flags = {program.link_flags}",
        ]
    return "\n".join(lines) + "\n"


def make(build: Build, reporter: Reporter, *, jobs: int | None = None) -> bool:
    """Compile and link all programs; False when the compiler complained. Throws AimaError."""
    toolchain = open_toolchain(ROOT, reporter=reporter, parts=PARTS)
    ninja = ROOT / build.folder / f"{build.programs[0].name}.ninja"
    write_if_changed(ROOT / BUILD_INFO, _BUILD_INFO.encode())
    write_if_changed(ninja, ninja_file(build, toolchain).encode())
    command = [sys.executable, "-m", "ninja", "-f", ninja, "-j", str(jobs or os.cpu_count() or 1)]
    with reporter.step(f"build with {build.sanitizers.split()[0].partition('=')[2]} sanitizers"):
        return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def skipped(reporter: Reporter, what: str, sanitizers: str) -> bool:
    """True, and a notice printed, when the host has no compiler for this."""
    if is_usable(sanitizers):
        return False
    reporter.warn(
        f"{what} skipped, not passed: {COMPILER} with libc++ and the sanitizers' runtime is not installed "
        "(Debian: clang-19 libc++-19-dev libc++abi-19-dev libclang-rt-19-dev)"
    )
    return True
