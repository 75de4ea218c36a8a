"""`make lint`: ruff and mypy on the Python, clang-format and clang-tidy (of the lock) on the C and C++.

`--fix` rewrites what can be rewritten instead of reporting it. Exit code 1 when any tool complains.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aimabuild.base.errors import AimaError
from aimabuild.base.reporter import Reporter
from aimabuild.toolchain import Toolchain, open_toolchain

ROOT = Path(__file__).resolve().parent.parent


def native_sources(*suffixes: str) -> list[Path]:
    """Our C and C++ files with one of the suffixes, in a stable order."""
    return sorted(path for path in (ROOT / "native").rglob("*") if path.suffix in suffixes)


def run(reporter: Reporter, name: str, command: list[str | Path]) -> bool:
    """Run one tool from the project root; True when it is content."""
    with reporter.step(name):
        return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def tidy_command(toolchain: Toolchain, source: Path) -> list[str | Path]:
    """clang-tidy on one file, with the includes that the build graph uses."""
    language = ["-std=c++20", "-stdlib=libc++"] if source.suffix == ".cpp" else ["-std=c17"]
    libcxx = toolchain.zig.parent / "lib"
    includes: list[str | Path] = ["-Inative/src", "-Inative/include"]
    if source.suffix == ".cpp":
        includes += [
            "-nostdinc++",
            "-isystem",
            libcxx / "libcxx/include",
            "-isystem",
            libcxx / "libcxxabi/include",
        ]
        includes += ["-D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE", "-D_LIBCPP_ABI_VERSION=1"]
        includes += ["-D_LIBCPP_ABI_NAMESPACE=__1", "-D_LIBCPP_HAS_THREAD_API_PTHREAD"]
    for folder in (toolchain.boost_include, toolchain.native_sysroot / "usr/include"):
        includes += ["-isystem", folder]
    isa = [f"-m{flag}" for flag in ("avx2", "fma", "f16c")] if "avx2" in source.stem else []
    quiet = ["--quiet", "--warnings-as-errors=*"]
    return [toolchain.clang_tidy, *quiet, source, "--", *language, *isa, *includes]


def run_tidy(reporter: Reporter, toolchain: Toolchain) -> bool:
    """clang-tidy on every translation unit, as many at once as there are cores."""

    def one(source: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
        command = tidy_command(toolchain, source)
        return source, subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)

    sources = native_sources(".c", ".cpp")
    content = True
    with (
        reporter.step("clang-tidy"),
        reporter.task("clang-tidy", len(sources)) as task,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        for source, result in pool.map(one, sources):
            task.advance()
            if result.returncode != 0:
                content = False
                reporter.line(f"{source.relative_to(ROOT)}:\n{result.stdout}{result.stderr}")
    return content


def main() -> int:
    """Run all tools; 0 when every one is content."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="rewrite instead of reporting")
    fix = parser.parse_args().fix
    reporter = Reporter()
    try:
        toolchain = open_toolchain(ROOT, reporter=reporter)
    except AimaError as error:
        reporter.error(error)
        return error.exit_code
    python = sys.executable
    formatting = ["-i"] if fix else ["--dry-run", "--Werror"]
    results = [
        run(reporter, "ruff check", [python, "-m", "ruff", "check", *(["--fix"] if fix else []), "."]),
        run(reporter, "ruff format", [python, "-m", "ruff", "format", *([] if fix else ["--check"]), "."]),
        run(reporter, "mypy", [python, "-m", "mypy"]),
        run(
            reporter,
            "clang-format",
            [toolchain.clang_format, *formatting, *native_sources(".c", ".cpp", ".h")],
        ),
    ]
    if not fix:
        results.append(run_tidy(reporter, toolchain))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
