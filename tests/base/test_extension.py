"""Finding the module that the build made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aimabuild.base import extension


def test_the_command_is_named_when_nothing_is_built(tmp_path: Path) -> None:
    with pytest.raises(ImportError) as caught:
        extension.load("_native", "aimabuild._native", tmp_path)
    assert "aimabuild._native is not built for this Python" in str(caught.value)
    assert "aimabuild build recipes/host-cpu.yaml bindings" in str(caught.value)


def test_the_one_built_last_for_this_python_is_taken(tmp_path: Path) -> None:
    for age, recipe in ((100, "old"), (10, "new"), (0, "other")):
        folder = tmp_path / "build" / recipe / "python"
        folder.mkdir(parents=True)
        end = ".cpython-30-x.so" if recipe == "other" else extension.suffix()
        file = folder / f"_native{end}"
        file.write_bytes(b"no module")
        os.utime(file, (1e9 - age, 1e9 - age))
    assert extension.find("_native", tmp_path).parent.parent.name == "new"
    with pytest.raises(ImportError, match="new"):
        extension.load("_native", "aimabuild._native", tmp_path)
