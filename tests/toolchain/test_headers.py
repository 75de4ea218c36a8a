"""Where Python.h comes from: the interpreter, else the locked packages, else one error."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from aimabuild.base.errors import AimaError
from aimabuild.toolchain import headers
from aimabuild.toolchain.parts import BY_NAME, DebianRequest


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An interpreter without headers, of a version that is locked."""
    paths = SimpleNamespace(get_path=lambda name: str(tmp_path / name))
    monkeypatch.setattr(headers, "sysconfig", paths)
    monkeypatch.setattr(headers, "RUNNING", (3, 14))
    return monkeypatch


def test_the_interpreters_own_come_first(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert headers.own_headers() == ()
    for name, file in (("include", "Python.h"), ("platinclude", "pyconfig.h")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
    assert headers.parts() == ("pybind11",)
    assert headers.headers(tmp_path / "tree") == (tmp_path / "include", tmp_path / "platinclude")


def test_else_the_locked_ones_of_its_version(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert headers.parts() == ("pybind11", "python-headers")
    with pytest.raises(AimaError):
        headers.headers(tmp_path / "tree")
    folder = tmp_path / "tree/usr/include/python3.14"
    folder.mkdir(parents=True)
    (folder / "Python.h").touch()
    assert headers.headers(tmp_path / "tree") == (folder, folder.parent)


def test_else_one_error(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setattr(headers, "RUNNING", (3, 12))
    assert headers.parts() == ("pybind11",)
    with pytest.raises(AimaError, match=r"there is no Python\.h for Python 3\.12") as caught:
        headers.headers(tmp_path)
    assert "3.13, 3.14" in (caught.value.why or "")
    assert "python3.12-dev" in (caught.value.hint or "")


def test_what_is_locked_is_what_is_asked_for() -> None:
    spec = BY_NAME[headers.PART]
    assert isinstance(spec.request, DebianRequest)
    assert spec.on_demand
    assert spec.request.roots == tuple(f"libpython{major}.{minor}-dev" for major, minor in headers.LOCKED)
