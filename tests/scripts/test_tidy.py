"""What clang-tidy's results depend on, and which of them are remembered."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tidy

from aimabuild.base.reporter import Reporter

TOOL = """#!/bin/sh
for word in "$@"; do case "$word" in *.cpp) file=$word;; esac; done
echo "$file" >> "$0.log"
if grep -q bad "$file" native/src/base/a.h; then echo "$file is bad"; exit 1; fi
"""


class Project:
    """Two sources, one of which includes a header that includes another, and a linter that logs its files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tool = root / "tool"
        self.tool.write_text(TOOL)
        self.tool.chmod(0o755)
        self.write(".clang-tidy", "Checks: x\n")
        self.write("native/src/base/a.h", "#pragma once\n")
        self.write("native/src/base/b.h", '#  include "base/a.h"\n#include <vector>\n')
        self.write("native/src/one.cpp", "#include <base/b.h>\n")
        self.write("native/src/two.cpp", "int two;\n")
        self.toolchain: Any = SimpleNamespace(
            digest="t1", clang_tidy=self.tool, boost_include=root / "boost", native_sysroot=root / "sysroot"
        )

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self) -> tuple[bool, list[str]]:
        """Whether all is well, and the names of the files that were looked at."""
        log = Path(f"{self.tool}.log")
        log.write_text("")
        sources = sorted((self.root / "native").rglob("*.cpp"))
        content = tidy.run_tidy(Reporter(quiet=True), self.toolchain, sources)
        return content, sorted(Path(line).stem for line in log.read_text().splitlines())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(tidy, "ROOT", tmp_path)
    monkeypatch.setattr(tidy, "CACHE", tmp_path / "build" / "tidy")
    monkeypatch.setattr(tidy, "compiler_flags", lambda _, language: [f"-D{language}"])
    return Project(tmp_path)


def test_what_passed_is_not_looked_at_again(project: Project) -> None:
    assert project.run() == (True, ["one", "two"])
    assert project.run() == (True, [])


@pytest.mark.parametrize(
    ("name", "text", "looked_at"),
    [
        ("native/src/two.cpp", "int three;\n", ["two"]),
        ("native/src/base/a.h", "#pragma once\nint a;\n", ["one"]),
        ("native/src/base/c.h", "int c;\n", []),
        (".clang-tidy", "Checks: y\n", ["one", "two"]),
    ],
)
def test_a_change_is_looked_at_where_it_matters(
    project: Project, name: str, text: str, looked_at: list[str]
) -> None:
    project.run()
    project.write(name, text)
    assert project.run() == (True, looked_at)


def test_another_toolchain_looks_at_everything(project: Project) -> None:
    project.run()
    project.toolchain.digest = "t2"
    assert project.run() == (True, ["one", "two"])


def test_a_complaint_stays_until_it_is_mended(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.write("native/src/two.cpp", "int bad;\n")
    assert project.run() == (False, ["one", "two"])
    assert project.run() == (False, ["two"])
    project.write("native/src/two.cpp", "int good;\n")
    assert project.run() == (True, ["two"])
