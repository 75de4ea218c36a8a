"""Options and fixtures for all tests. Its presence also lets tests import `mini` from this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from mini import Mini


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """True when golden files are to be rewritten."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def mini(tmp_path: Path) -> Mini:
    """A small project with one Triton template, one that shares objects, a shapes file and a recipe."""
    return Mini.create(tmp_path / "project")
