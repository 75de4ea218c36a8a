"""`make lint`: ruff and mypy on the Python, clang-format and clang-tidy (of the lock) on the C and C++.

`--fix` rewrites what can be rewritten instead of reporting it. Exit code 1 when any tool complains.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tidy import run_tidy

from aimabuild.base.errors import AimaError
from aimabuild.base.reporter import Reporter
from aimabuild.toolchain import open_toolchain

ROOT = Path(__file__).resolve().parent.parent


def native_sources(*suffixes: str) -> list[Path]:
    """Our C and C++ files with one of the suffixes, in a stable order."""
    return sorted(path for path in (ROOT / "native").rglob("*") if path.suffix in suffixes)


def run(reporter: Reporter, name: str, command: list[str | Path]) -> bool:
    """Run one tool from the project root; True when it is content."""
    with reporter.step(name):
        return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def main() -> int:
    """Run all tools; 0 when every one is content."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="rewrite instead of reporting")
    parser.add_argument("--no-tidy", action="store_true", help="leave out clang-tidy, slow the first time")
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
        results.append(run_tidy(reporter, toolchain, native_sources(".c", ".cpp")))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
