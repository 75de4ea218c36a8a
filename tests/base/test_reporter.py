"""What the reporter prints: names of files and values of inputs cannot steer the reader's terminal."""

from __future__ import annotations

import io
import json
import threading
import time

import pytest
from rich.console import Console

from aimabuild.base import reporter as module
from aimabuild.base.errors import AimaError
from aimabuild.base.reporter import Reporter

EVIL = "a\x1b[2J\x9b\u202e\udcff"
SHOWN = "a\\x1b[2J\\x9b\\u202e\\udcff"


def test_names_are_escaped_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter()
    reporter.result(EVIL)
    reporter.table(["name"], [[EVIL + "\nnext"]])
    reporter.line(EVIL)
    reporter.warn(EVIL)
    reporter.error(AimaError(EVIL, where=EVIL, why=EVIL, hint=EVIL))
    out, err = capsys.readouterr()
    assert out == f"{SHOWN}\nname\n{SHOWN}\\nnext\n"
    assert err.count(SHOWN) == 6
    assert EVIL not in err
    assert "\x1b" not in err


def test_json_is_safe_to_show_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    Reporter().json({"name": EVIL + "\x7fä"})
    out = capsys.readouterr().out
    assert all(char.isprintable() or char == "\n" for char in out)
    assert "ä" in out
    assert json.loads(out) == {"name": EVIL + "\x7fä"}


def wait_for(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Stderr up to a line with `text`, which must come."""
    said, end = "", time.monotonic() + 20
    while text not in said:
        assert time.monotonic() < end, said
        time.sleep(0.01)
        said += capsys.readouterr().err
    return said


def test_silence_is_broken_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENCE", 0.05)
    reporter = Reporter()
    with reporter.task("build", 10) as task:
        wait_for("  build: 0 of 10 items after ", capsys)
        task.advance(1, title="compile k")
        assert ", last: compile k\n" in wait_for("  build: 1 of 10 items after ", capsys)
    with reporter.step("fit"):
        wait_for("  fit: still at it after ", capsys)
    assert threading.active_count() == 1
    capsys.readouterr()
    quiet = Reporter(quiet=True)
    with quiet.task("build", 10), quiet.step("fit"):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_a_terminal_sees_what_was_finished_and_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    reporter = Reporter()
    monkeypatch.setattr(reporter, "err", Console(file=screen, force_terminal=True, width=120))
    assert reporter.live
    with reporter.task("build", 10) as task:
        task.advance(1, title="compile k")
    assert "build, last: compile k" in screen.getvalue()
    assert "0:00:00" in screen.getvalue()
