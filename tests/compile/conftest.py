"""The synced toolchain, for the tests that compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from aimabuild.base.reporter import Reporter
from aimabuild.toolchain import Toolchain, open_toolchain

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("ziglang", "triton", "clang-tidy", "hip-dev", "amd-aiter", "llvm-tools", "hip-runtime")


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """Everything that kernels are compiled with."""
    return open_toolchain(ROOT, reporter=Reporter(quiet=True), parts=PARTS)
