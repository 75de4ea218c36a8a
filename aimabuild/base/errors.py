"""The one error family. Library code raises these; only the command line prints them and exits."""

from __future__ import annotations


def printable(text: str, *, keep: str = "\n\t") -> str:
    """`text` with every character that could steer a terminal, or hide, written as an escape.

    Line ends and tabs stay (`keep`): messages have several lines. Bytes that are no text become `\\udcXX`.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


class AimaError(Exception):
    """Something failed: what, where, why, and what to do about it.

    what: one sentence without a final period. where: a file, `file:line:column`, a URL or a command.
    why: the cause, when it is not plain from `what`. hint: what the reader can do.
    The process exits with `exit_code` when nobody handles the error.
    """

    exit_code = 1

    def __init__(
        self, what: str, *, where: str | None = None, why: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        # A place is one line: a line end in a file's name must not look like the next part of the message.
        head = f"{printable(self.where, keep='')}: {self.what}" if self.where else self.what
        lines = [head]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class UsageError(AimaError):
    """Wrong usage, or an input file that cannot be accepted as it is."""

    exit_code = 2


class CheckFailedError(AimaError):
    """Everything ran, and a check did not hold (a budget, a digest, a verification)."""

    exit_code = 3
