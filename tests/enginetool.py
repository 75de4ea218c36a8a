"""The engine that tests run, and JSON from it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


def find_engine() -> Path:
    """$AIMA_ENGINE, or the engine built last in this tree (`make test` builds one); else the test fails."""
    if named := os.environ.get("AIMA_ENGINE"):
        return Path(named)
    built = sorted((ROOT / "build").glob("*/libexec/aima-engine.real"), key=lambda path: path.stat().st_mtime)
    if not built:
        pytest.fail("no engine is built: run `aimabuild build`, or name one in AIMA_ENGINE")
    return built[-1]


def run_engine(*arguments: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """The engine with `text` on standard input."""
    command = [find_engine(), *arguments]
    return subprocess.run(command, check=False, capture_output=True, encoding="utf-8", input=text)


def engine_lines(*arguments: str | Path, text: str = "") -> list[dict[str, Any]]:
    """Its output, one JSON object a line; the test fails when the engine does."""
    done = run_engine(*arguments, text=text)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n") if line]
