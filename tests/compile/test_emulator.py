"""gfx1151 objects of the Triton templates on an emulator, against numpy.

Runs when TINYGRAD_DIR names a tinygrad checkout and AIMA_HSACO_RUNNER a runner for it (scripts/emulate.py
says what that is); its C compiler is named by CC.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_triton_aot import GEMM, NORM, rendered, run_step

from aimabuild.toolchain import Toolchain

ROOT = Path(__file__).resolve().parents[2]
RUNNER = os.environ.get("AIMA_HSACO_RUNNER", "")

pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.emulator,
    pytest.mark.skipif(not (RUNNER and os.environ.get("TINYGRAD_DIR")), reason="no emulator is named"),
]


def test_triton_objects_compute_their_functions(tmp_path: Path, toolchain: Toolchain) -> None:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    for kind in (NORM, GEMM):
        path = rendered(tmp_path / kind[0].replace("/", "-"), kind)
        value = json.loads(path.read_text())
        # The grid that the plan gives: emulate.py runs the first workgroup of it.
        one = {"var": "one", "mul": 1, "add": 0, "div": 1}
        value["grid"] = [{**one, "var": "tokens", "div": 16}, one, one]
        path.write_text(json.dumps(value))
        assert run_step(path, toolchain).exit_code == 0
        path.parent.rename(kernels / path.parent.name)
    report = tmp_path / "report.json"
    script = [sys.executable, str(ROOT / "scripts/emulate.py"), str(kernels), "--runner", RUNNER]
    done = subprocess.run(
        [*script, "--json", str(report)], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(report.read_text())["kernels"]
    assert len(rows) == 2
    assert all(0 < row["of_tolerance"] <= 1 for row in rows)
