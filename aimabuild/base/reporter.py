"""The one object that prints. Progress with an ETA on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from aimabuild.base.errors import AimaError, printable

# What JSON allows inside texts and a terminal or an encoder may not: DEL, C1 controls, lone surrogates,
# format characters that reorder a line.
_UNSAFE_JSON = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")


SILENCE = 30.0  # seconds without a line after which a reader without a terminal is told what goes on


class _Heartbeat:
    """Says what goes on after each `SILENCE` without a line; on a terminal the progress bar does."""

    def __init__(self, reporter: Reporter, say: Callable[[], str]) -> None:
        self._reporter = reporter
        self._say = say
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        if not reporter.live and not reporter.quiet:
            self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(SILENCE / 10):
            if time.monotonic() - self._reporter.last_line >= SILENCE:
                self._reporter.line(self._say())

    def close(self) -> None:
        """Say nothing more."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()


class Task:
    """One piece of long work with a known size. `advance` may be called from any thread."""

    def __init__(self, reporter: Reporter, title: str, total: int, *, unit: str) -> None:
        self._reporter = reporter
        self._title = title
        self._total = max(total, 1)
        self._unit = unit
        self._done = 0
        self._next_line = 0.25
        self._last = ""
        self._start = time.monotonic()
        self._heartbeat = _Heartbeat(reporter, self._state)
        self._progress: Progress | None = None
        self._task = None
        if reporter.live:
            # Items take seconds or minutes each: what is left of them cannot be told from the time so far.
            numbers = (
                (DownloadColumn(), TimeRemainingColumn())
                if unit == "bytes"
                else (MofNCompleteColumn(), TimeElapsedColumn())
            )
            columns = (BarColumn(bar_width=20), *numbers, TextColumn("{task.description}"))
            self._progress = Progress(*columns, console=reporter.err, transient=True)
            self._task = self._progress.add_task(title, total=total)
            self._progress.start()

    def advance(self, amount: int = 1, *, title: str | None = None) -> None:
        """`amount` more units are done; `title` is what was finished last."""
        self._done += amount
        self._last = title or self._last
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, advance=amount, description=self._description())
        elif self._done / self._total >= self._next_line:
            self._reporter.line(f"  {self._title}: {100 * self._done // self._total}%")
            self._next_line = self._done / self._total + 0.25

    def _description(self) -> str:
        return printable(f"{self._title}, last: {self._last}" if self._last else self._title, keep="")

    def _state(self) -> str:
        count = f"{self._done} of {self._total} {self._unit}"
        last = f", last: {self._last}" if self._last else ""
        return f"  {self._title}: {count} after {time.monotonic() - self._start:.0f} s{last}"

    def close(self) -> None:
        """Stop drawing."""
        self._heartbeat.close()
        if self._progress is not None:
            self._progress.stop()


class Reporter:
    """Results go to stdout, everything about the work itself to stderr."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.out = Console(file=sys.stdout, highlight=False, soft_wrap=True, markup=False, emoji=False)
        self.err = Console(file=sys.stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)
        self.quiet = quiet
        self.last_line = time.monotonic()

    @property
    def live(self) -> bool:
        """True when stderr is a terminal that can redraw."""
        return self.err.is_terminal and not self.quiet

    def line(self, text: str) -> None:
        """One line about the work, on stderr."""
        self.last_line = time.monotonic()
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
        heartbeat = _Heartbeat(self, lambda: f"  {title}: still at it after {time.monotonic() - start:.0f} s")
        try:
            yield
        finally:
            heartbeat.close()
        self.line(f"{title}: {time.monotonic() - start:.1f} s")

    @contextmanager
    def task(self, title: str, total: int, *, unit: str = "items") -> Iterator[Task]:
        """Progress over `total` units ("bytes" prints sizes)."""
        task = Task(self, title, total, unit=unit)
        try:
            yield task
        finally:
            task.close()
