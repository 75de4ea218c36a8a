"""The engine's own unit tests (doctest, native/tests), one pytest test for each of their files."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path.name for path in (ROOT / "native" / "tests").glob("*_test.cpp"))


def find_program() -> Path:
    """The test program built last in this tree; `make test` builds one."""
    built = sorted((ROOT / "build").glob("*/native/native-tests"), key=lambda path: path.stat().st_mtime)
    if not built:
        pytest.fail("no unit tests are built: run `aimabuild build recipes/host-cpu.yaml native-tests`")
    return built[-1]


@pytest.mark.parametrize("name", FILES)
def test_file(name: str) -> None:
    done = subprocess.run(
        [find_program(), f"--source-file=*{name}", "--no-version"],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"test cases:\s*(\d+) \|\s*(\d+) passed", done.stdout)
    assert passed is not None, done.stdout
    assert int(passed[2]) >= 1, f"no test case of {name} is in the program"
