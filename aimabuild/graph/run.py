"""Runs ninja: its status becomes progress, its explanations lines, a failed command one error."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from aimabuild.base.errors import AimaError, CheckFailedError
from aimabuild.base.files import write_text
from aimabuild.base.reporter import Reporter, Task

_MARK = "\x1e"  # a record separator: no command prints one by accident
_STATUS = re.compile(f"{_MARK}([0-9]+)/([0-9]+){_MARK}(.*)")
_FAILED = re.compile(r"FAILED: (?:\[code=([0-9]+)\] )?(.*)")
_EXPLAIN = "ninja explain: "
_TAIL = 25


@dataclass
class Step:
    """One finished command: what it did, why it ran, what it printed."""

    title: str
    reasons: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    code: int = 0
    command: str = ""


@dataclass(frozen=True)
class Finished:
    """What ninja did: every command in the order of their ends, and its own last words."""

    steps: tuple[Step, ...]
    messages: tuple[str, ...]
    code: int


def ninja_program() -> Path:
    """The ninja of the Python package."""
    import ninja

    program = Path(ninja.BIN_DIR) / "ninja"
    if not program.is_file():
        raise AimaError(
            "ninja is not installed", where=str(program), hint="install the Python package `ninja`"
        )
    return program


def read_steps(lines: Iterator[str]) -> Iterator[Step | str]:
    """Ninja's output as steps (each when the next one starts) and messages of ninja itself."""
    step: Step | None = None
    reasons: list[str] = []
    for raw in lines:
        line = raw.rstrip("\n")
        if line.startswith(_EXPLAIN):
            reasons.append(line.removeprefix(_EXPLAIN))
        elif status := _STATUS.match(line):
            if step is not None:
                yield step
            step, reasons = Step(status[3], reasons), []
        elif line.startswith("ninja: "):
            yield line.removeprefix("ninja: ")
        elif step is not None and not step.code and (failed := _FAILED.match(line)):
            step.code = int(failed[1] or 1)
        elif step is not None and step.code and not step.command:
            step.command = line
        elif step is not None:
            step.output.append(line)
        elif line.strip():
            yield line
    if step is not None:
        yield step


def plain_reason(reason: str, base: str) -> str | None:
    """One of ninja's explanations in a reader's words; None when it says no more than another."""

    def short(path: str) -> str:
        return path.removeprefix(f"{base}/")

    if match := re.match(r"output (.*) doesn't exist", reason):
        return f"{short(match[1])} is not there"
    if match := re.match(r".*older than most recent input (.*?) \(", reason):
        return f"{short(match[1])} changed"
    if re.match(r"command line (not found|changed)", reason):
        return "its command changed" if "changed" in reason else "it was not built before"
    if match := re.match(r"(.*) is dirty", reason):
        return f"{short(match[1])} is made anew"
    if match := re.match(r"deps for '(.*)' are missing", reason):
        return "it was not built before"
    return reason


def explain(step: Step, base: str) -> str:
    """A line that says why a command ran."""
    reasons = dict.fromkeys(text for reason in step.reasons if (text := plain_reason(reason, base)))
    return f"  {step.title}: {', '.join(list(reasons)[:3]) or 'asked for'}" + (
        " ..." if len(reasons) > 3 else ""
    )


def run_ninja(
    command: Sequence[str],
    root: Path,
    environment: Mapping[str, str],
    reporter: Reporter,
    *,
    base: str,
    why: bool,
) -> Finished:
    """Run ninja to its end. An interrupt is passed on, and waited for, before it is raised."""
    process = subprocess.Popen(
        [*command, *(["-d", "explain"] if why else [])],
        cwd=root,
        env={**environment, "NINJA_STATUS": f"{_MARK}%f/%t{_MARK}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        close_fds=False,  # commands hold the build folder's lock as long as one of them lives
    )
    steps: list[Step] = []
    messages: list[str] = []
    with process, ExitStack() as stack:
        assert process.stdout is not None  # noqa: S101 - asked for above
        try:
            for item in read_steps(_Progress(reporter, stack).watch(process.stdout)):
                if isinstance(item, str):
                    messages.append(item)
                    continue
                steps.append(item)
                if why:
                    reporter.line(explain(item, base))
                if item.output and not item.code:
                    reporter.line("\n".join([f"{item.title}:", *item.output]))
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.communicate()
            raise
    return Finished(tuple(steps), tuple(messages), process.returncode)


class _Progress:
    """A reporter's task that starts when ninja says how much there is to do."""

    def __init__(self, reporter: Reporter, stack: ExitStack) -> None:
        self._reporter = reporter
        self._stack = stack
        self._task: Task | None = None
        self._done = 0

    def watch(self, lines: Iterator[str]) -> Iterator[str]:
        """Pass lines on, and advance at each status."""
        for line in lines:
            if status := _STATUS.match(line):
                self._advance(int(status[1]), int(status[2]), status[3].rstrip("\n"))
            yield line

    def _advance(self, done: int, total: int, title: str) -> None:
        if self._task is None:
            self._task = self._stack.enter_context(self._reporter.task("build", total))
        self._task.advance(done - self._done, title=title)
        self._done = done


def raise_failure(finished: Finished, log: Path, shown: str) -> None:
    """Raise the error of a run that failed; the whole command and output go to the file `log`."""
    failed = [step for step in finished.steps if step.code]
    if not failed:
        raise AimaError("ninja failed", why="\n".join(finished.messages) or f"exit status {finished.code}")
    whole = [f"{step.title}\n{step.command}\n" + "\n".join(step.output) + "\n" for step in failed]
    write_text(log, "\n".join(whole))
    # A command that found its own inputs wrong exits 2; to the user of a build that is failed work.
    kind = CheckFailedError if all(step.code == CheckFailedError.exit_code for step in failed) else AimaError
    step = failed[0]
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    output = [line.removeprefix("error: ") for line in step.output if line.strip()][-_TAIL:]
    raise kind(
        f"{step.title} failed{more}",
        why="\n    ".join(output) or f"exit status {step.code}",
        hint=f"command and whole output: {shown}",
    )


def environment(root: Path, base: str, zig_cache: Path, packages: Path) -> dict[str, str]:
    """The whole environment of every command: nothing of the user's reaches a compiler, but for TMPDIR."""
    folder = root / base
    fixed = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "LC_ALL": "C",
        "TZ": "UTC",
        "SOURCE_DATE_EPOCH": "0",
        "PYTHONPATH": str(packages),
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "ZIG_GLOBAL_CACHE_DIR": str(zig_cache),
        "ZIG_LOCAL_CACHE_DIR": str(folder / "zig"),
    }
    temporary = os.environ.get("TMPDIR")
    return {**fixed, "TMPDIR": temporary} if temporary else fixed
