"""Errors read as what, where, why, hint, and carry the documented exit codes."""

from __future__ import annotations

import pytest

from aimabuild.base.errors import AimaError, CheckFailedError, UsageError


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
