"""The locked Triton, for the tests that run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from aimabuild.base.reporter import Reporter
from aimabuild.toolchain import open_toolchain

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def triton_site() -> Path:
    """The folder that holds the locked Triton."""
    return open_toolchain(ROOT, reporter=Reporter(quiet=True), parts=["triton"]).triton_site
