"""What the reporter prints: names of files and values of inputs cannot steer the reader's terminal."""

from __future__ import annotations

import json

import pytest

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
