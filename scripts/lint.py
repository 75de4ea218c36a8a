"""`make lint`: ruff and mypy on the Python, clang-format and clang-tidy (of the lock) on the C and C++.

`--fix` rewrites what can be rewritten instead of reporting it. Exit code 1 when any tool complains.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aimabuild.base.errors import AimaError
from aimabuild.base.reporter import Reporter
from aimabuild.graph.native import isa_flags
from aimabuild.toolchain import Toolchain, open_toolchain

ROOT = Path(__file__).resolve().parent.parent


def native_sources(*suffixes: str) -> list[Path]:
    """Our C and C++ files with one of the suffixes, in a stable order."""
    return sorted(path for path in (ROOT / "native").rglob("*") if path.suffix in suffixes)


def run(reporter: Reporter, name: str, command: list[str | Path]) -> bool:
    """Run one tool from the project root; True when it is content."""
    with reporter.step(name):
        return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def compiler_flags(toolchain: Toolchain, language: str) -> list[str]:
    """Definitions and header folders that the locked compiler itself passes for "c" or "c++".

    No header of the host is among them.
    """
    target = {"c": "x86_64-linux-musl", "c++": "x86_64-linux-gnu.2.28"}[language]
    program = {"c": "cc", "c++": "c++"}[language]
    with tempfile.TemporaryDirectory() as folder:
        command = [toolchain.zig, program, "-target", target, "-v", "-E", "-x", language, os.devnull]
        # An empty local cache: with a result at hand the compiler would not run, and not tell.
        caches = {"ZIG_GLOBAL_CACHE_DIR": str(toolchain.zig_cache), "ZIG_LOCAL_CACHE_DIR": f"{folder}/cache"}
        environment = {**os.environ, **caches}
        told = subprocess.run(
            [*command, "-o", f"{folder}/out.o"], capture_output=True, text=True, check=True, env=environment
        )
    words = next(
        shlex.split(line) for line in told.stderr.splitlines() if '"-cc1"' in line or " -cc1 " in line
    )
    flags = ["-nostdinc", *(["-nostdinc++"] if language == "c++" else [])]
    for word, following in itertools.pairwise(words):
        if word == "-isystem":
            flags += [word, following]
        elif word == "-D":
            flags.append(f"-D{following}")
        elif word.startswith("-D"):
            flags.append(word)
    return flags


def tidy_command(toolchain: Toolchain, source: Path, flags: dict[str, list[str]]) -> list[str | Path]:
    """clang-tidy on one file, with the includes that the build graph uses."""
    cpp = source.suffix == ".cpp"
    arguments: list[str | Path] = ["-std=c++20" if cpp else "-std=c17", "-Inative/src", "-Inative/include"]
    arguments += flags["c++" if cpp else "c"]
    for folder in (toolchain.boost_include, toolchain.native_sysroot / "usr/include"):
        arguments += ["-isystem", folder]
    checks = []
    if source.stem.startswith("isa_"):
        # These files include no C++ library header (docs/architecture.md), so <stdint.h> is right there.
        checks = ["--checks=-modernize-deprecated-headers"]
        arguments += isa_flags(str(source)).split()
    return [toolchain.clang_tidy, "--quiet", "--warnings-as-errors=*", *checks, source, "--", *arguments]


def run_tidy(reporter: Reporter, toolchain: Toolchain) -> bool:
    """clang-tidy on every translation unit, as many at once as there are cores."""

    def one(source: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
        command = tidy_command(toolchain, source, flags)
        return source, subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)

    flags = {language: compiler_flags(toolchain, language) for language in ("c", "c++")}
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
    parser.add_argument("--no-tidy", action="store_true", help="leave out clang-tidy, the slow one")
    options = parser.parse_args()
    fix = options.fix
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
    if not fix and not options.no_tidy:
        results.append(run_tidy(reporter, toolchain))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
