"""The module under test, and the tiny golden."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from nativetool import native

DATA = Path(__file__).resolve().parents[1] / "data" / "tiny"


@pytest.fixture(scope="session")
def module() -> ModuleType:
    """aimabuild._native"""
    return native()


@pytest.fixture(scope="session")
def folder() -> Path:
    """A model folder without a tokenizer."""
    return DATA


@pytest.fixture(scope="session")
def golden() -> dict[str, np.ndarray]:
    """What transformers computed for that model."""
    return dict(np.load(DATA / "golden.npz"))
