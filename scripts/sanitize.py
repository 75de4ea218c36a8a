"""`make sanitize`: the engine's unit tests under AddressSanitizer and UndefinedBehaviorSanitizer.

The locked compiler has no ASan runtime, so this takes clang 19 and its libc++ from the host; on Debian:
clang-19, libc++-19-dev, libc++abi-19-dev, libclang-rt-19-dev. Without them it says so and exits 0: the check
is skipped, not passed. Any finding of a sanitizer or a failing test exits 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from aimabuild.base.errors import AimaError
from aimabuild.base.files import write_if_changed
from aimabuild.base.reporter import Reporter
from aimabuild.toolchain import Toolchain, open_toolchain

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "sanitize"
COMPILER = "clang++-19"
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
# The sanitizers' own checks are slow enough; the tests need no optimisation beyond inlining.
FLAGS = f"-std=c++20 -stdlib=libc++ -O1 -g {SANITIZERS} -Inative/src -Inative/include"
ISA_FLAGS = {
    "_avx2": "-mavx2 -mfma -mf16c",
    "_avx512": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma",
    "_avx512bf16": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mfma",
    "_amx": "-mavx512f -mavx512bw -mavx512vl -mavx512bf16 -mamx-tile -mamx-bf16",
}


def has_compiler() -> bool:
    """True when clang 19 can build and link a sanitized program with libc++ here."""
    if shutil.which(COMPILER) is None:
        return False
    command = [COMPILER, "-stdlib=libc++", *SANITIZERS.split(), "-x", "c++", "-", "-o", os.devnull]
    program = '#include <format>\nint main() { return std::format("{}", 1).size() != 1; }\n'
    result = subprocess.run(
        [*command, "-std=c++20"], input=program, text=True, capture_output=True, check=False
    )
    return result.returncode == 0


def sources() -> list[Path]:
    """Everything that the test program links: the engine without its `main`, and the tests."""
    engine = [path for path in (ROOT / "native" / "src").rglob("*.cpp") if path.name != "main.cpp"]
    return sorted(path.relative_to(ROOT) for path in [*engine, *(ROOT / "native" / "tests").glob("*.cpp")])


def isa_flags(source: Path) -> str:
    """Extra flags of a file that is written for one instruction set, by the end of its name."""
    return next((flags for suffix, flags in ISA_FLAGS.items() if source.stem.endswith(suffix)), "")


def ninja_file(toolchain: Toolchain, generated: list[Path]) -> str:
    """The build file: one object a source, one test program."""
    includes = f"-isystem {toolchain.boost_include} -isystem {toolchain.native_sysroot}/usr/include"
    libraries = f"{toolchain.native_sysroot}/usr/lib/x86_64-linux-gnu/libutf8proc.a -ldl -lpthread"
    lines = [
        "rule cxx",
        f"  command = {COMPILER} {FLAGS} $isa {includes} -MD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "rule link",
        f"  command = {COMPILER} -stdlib=libc++ {SANITIZERS} $in {libraries} -o $out",
    ]
    objects = []
    for source in [*sources(), *generated]:
        target = f"build/sanitize/{source.as_posix().replace('/', '_')}.o"
        lines += [f"build {target}: cxx {source.as_posix()}", f"  isa = {isa_flags(source)}"]
        objects.append(target)
    lines.append(f"build build/sanitize/native-tests: link {' '.join(objects)}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Build and run; 0 when the tests pass without a finding, or when the compiler is not installed."""
    reporter = Reporter()
    if not has_compiler():
        reporter.warn(f"sanitizer build skipped: {COMPILER} with libc++ and its runtime is not installed")
        return 0
    try:
        toolchain = open_toolchain(ROOT, reporter=reporter)
    except AimaError as error:
        reporter.error(error)
        return error.exit_code
    build_info = ROOT / "build" / "host-cpu" / "native" / "build_info.cpp"
    if not build_info.is_file():
        subprocess.run(
            [sys.executable, "-m", "aimabuild", "build", "recipes/host-cpu.yaml"], cwd=ROOT, check=True
        )
    write_if_changed(BUILD / "build.ninja", ninja_file(toolchain, [build_info.relative_to(ROOT)]).encode())
    with reporter.step("build with sanitizers"):
        command = [sys.executable, "-m", "ninja", "-f", "build/sanitize/build.ninja"]
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            return 1
    environment = {
        **os.environ,
        "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    with reporter.step("tests under ASan and UBSan"):
        return subprocess.run([BUILD / "native-tests"], cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
