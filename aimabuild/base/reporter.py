"""The one object that prints. Progress with an ETA on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from aimabuild.base.errors import AimaError, printable

# What JSON allows inside texts and a terminal or an encoder may not: DEL, C1 controls, lone surrogates,
# format characters that reorder a line.
_UNSAFE_JSON = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")


class Task:
    """One piece of long work with a known size. `advance` may be called from any thread."""

    def __init__(self, reporter: Reporter, title: str, total: int, *, unit: str) -> None:
        self._reporter = reporter
        self._title = title
        self._total = max(total, 1)
        self._unit = unit
        self._done = 0
        self._next_line = 0.25
        self._progress: Progress | None = None
        self._task = None
        if reporter.live:
            count = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
            columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
            self._progress = Progress(*columns, console=reporter.err, transient=True)
            self._task = self._progress.add_task(title, total=total)
            self._progress.start()

    def advance(self, amount: int = 1, *, title: str | None = None) -> None:
        """`amount` more units are done; `title` replaces the text shown."""
        self._done += amount
        if self._progress is not None and self._task is not None:
            self._progress.update(
                self._task, advance=amount, description=printable(title or self._title, keep="")
            )
        elif self._done / self._total >= self._next_line:
            self._reporter.line(f"  {self._title}: {100 * self._done // self._total}%")
            self._next_line = self._done / self._total + 0.25

    def close(self) -> None:
        """Stop drawing."""
        if self._progress is not None:
            self._progress.stop()


class Reporter:
    """Results go to stdout, everything about the work itself to stderr."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.out = Console(file=sys.stdout, highlight=False, soft_wrap=True, markup=False, emoji=False)
        self.err = Console(file=sys.stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)
        self.quiet = quiet

    @property
    def live(self) -> bool:
        """True when stderr is a terminal that can redraw."""
        return self.err.is_terminal and not self.quiet

    def line(self, text: str) -> None:
        """One line about the work, on stderr."""
        if not self.quiet:
            self.err.print(printable(text))

    def warn(self, text: str) -> None:
        """A line that stays even when quiet."""
        self.err.print(printable(f"warning: {text}"))

    def error(self, error: AimaError) -> None:
        """The error as its reader sees it."""
        self.err.print(printable(f"error: {error}"))

    def result(self, text: str) -> None:
        """What was asked for, on stdout."""
        self.out.print(printable(text))

    def json(self, value: Any) -> None:
        """What was asked for, as JSON on stdout."""
        text = json.dumps(value, indent=2, ensure_ascii=False)
        sys.stdout.write(_UNSAFE_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")

    def table(self, header: list[str], rows: list[list[str]], *, right: frozenset[str] = frozenset()) -> None:
        """A table on stdout; columns named in `right` align right."""
        table = Table(box=None, pad_edge=False)
        for name in header:
            table.add_column(name, justify="right" if name in right else "left", no_wrap=True)
        for row in rows:
            table.add_row(*(printable(cell, keep="") for cell in row))
        # Wide enough for every cell (a terminal wraps, nothing is cut), and no blanks at line ends.
        wide = Console(file=io.StringIO(), width=10_000, highlight=False, markup=False, emoji=False)
        wide.print(table)
        header_line, *lines = wide.file.getvalue().splitlines()  # type: ignore[attr-defined]
        self.out.print(header_line.rstrip(), style="bold")
        for line in lines:
            self.out.print(line.rstrip())

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Announce a stage, and say how long it took."""
        self.line(f"{title} ...")
        start = time.monotonic()
        yield
        self.line(f"{title}: {time.monotonic() - start:.1f} s")

    @contextmanager
    def task(self, title: str, total: int, *, unit: str = "items") -> Iterator[Task]:
        """Progress over `total` units ("bytes" prints sizes)."""
        task = Task(self, title, total, unit=unit)
        try:
            yield task
        finally:
            task.close()
