"""Lets these tests import the modules of benchmarks/ and scripts/ by name, as benchmarks do."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
