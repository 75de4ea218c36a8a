"""Errors read as what, where, why, hint, and carry the documented exit codes."""

from __future__ import annotations

import pytest

from aimabuild.base.errors import AimaError, CheckFailedError, UsageError, printable


def test_all_parts_are_printed_in_order() -> None:
    error = UsageError(
        "unknown key `tokns`", where="shapes/a.yaml:3:5", why="no such key", hint="did you mean `tokens`?"
    )
    assert str(error) == (
        "shapes/a.yaml:3:5: unknown key `tokns`\n  why: no such key\n  hint: did you mean `tokens`?"
    )


@pytest.mark.parametrize(("kind", "code"), [(AimaError, 1), (UsageError, 2), (CheckFailedError, 3)])
def test_exit_codes(kind: type[AimaError], code: int) -> None:
    assert kind("x").exit_code == code
    assert str(kind("x")) == "x"


def test_a_place_is_one_line() -> None:
    assert str(AimaError("x", where="a\n  hint: rm\x1b[2J")) == "a\\n  hint: rm\\x1b[2J: x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain äö €", "plain äö €"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x9b\x7f\r", "\\x9b\\x7f\\r"),
        ("\u202e\udcff", "\\u202e\\udcff"),
        ("two\n\tlines", "two\n\tlines"),
    ],
)
def test_nothing_that_steers_a_terminal_is_printed(text: str, shown: str) -> None:
    assert printable(text) == shown
