"""Running compilers: clean environment, time limit, and errors that show what happened."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from aimabuild.base.errors import AimaError
from aimabuild.compile.process import base_environment, run


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_output_is_returned() -> None:
    done = run(python("import sys; print('out'); print('err', file=sys.stderr)"), timeout=30)
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


def test_nothing_of_this_environment_is_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROCM_PATH", "/opt/rocm")
    monkeypatch.setenv("TRITON_DEBUG", "1")
    show = python("import os; print('\\n'.join(sorted(os.environ)))")
    assert {"ROCM_PATH", "TRITON_DEBUG", "HOME"}.isdisjoint(run(show, timeout=30).stdout.split())
    names = run(show, timeout=30, env=base_environment(tmp_path)).stdout.split()
    assert set(names) - {"LC_CTYPE"} == {"HOME", "TMPDIR", "PATH", "LC_ALL", "TZ"}


def test_failure_shows_the_end_of_the_output_and_the_command() -> None:
    with pytest.raises(AimaError) as caught:
        run(
            python("import sys; [print(i, file=sys.stderr) for i in range(100)]; sys.exit(7)"),
            timeout=30,
            where="k",
        )
    text = str(caught.value)
    assert "exit status 7" in text
    assert "    99\n" in text
    assert "    69\n" not in text
    assert "command:" in text
    assert text.startswith("k: ")


def test_a_signal_is_named() -> None:
    with pytest.raises(AimaError, match="ended by SIGSEGV"):
        run(python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"), timeout=30)


def test_a_time_limit_ends_children_too(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    text = (
        "import subprocess, sys, pathlib, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(mark)!r}).write_text(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(AimaError, match="did not end within 3 s"):
        run(python(text), timeout=3)
    pid = int(mark.read_text())
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.1)
    os.kill(pid, 9)
    pytest.fail("the child outlived the time limit")


def test_a_missing_program_is_one_error() -> None:
    with pytest.raises(AimaError, match="cannot be started"):
        run(["/nowhere/compiler"], timeout=5)
