"""Runs compilers: no environment but what is given, a time limit that ends the whole process group."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aimabuild.base.errors import AimaError

_TAIL_LINES = 30


@dataclass(frozen=True)
class Output:
    """What a process wrote."""

    stdout: str
    stderr: str


def tail(text: str, lines: int = _TAIL_LINES) -> str:
    """The end of a compiler's output, indented."""
    kept = text.rstrip().splitlines()[-lines:]
    return "\n".join(f"    {line}" for line in kept)


def base_environment(home: Path) -> dict[str, str]:
    """An environment that says nothing of this user or machine; tools may write under `home`."""
    return {"HOME": str(home), "TMPDIR": str(home), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    what: str | None = None,
    where: str | None = None,
) -> Output:
    """Run a command to its end. Raises `AimaError` with the end of its output and the command.

    env: the whole environment, None: a minimal one. timeout: seconds. what, where: what failed, for whom.
    """
    what = what or f"`{Path(argv[0]).name}` failed"
    command = f"    command: {shlex.join(argv)}"
    environment = dict(env) if env is not None else {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    try:
        process = subprocess.Popen(
            list(argv),
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        why = f"it cannot be started: {error.strerror}\n{command}"
        raise AimaError(what, where=where, why=why) from None
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _end(process)
        why = f"it did not end within {timeout:g} s\n{command}"
        raise AimaError(what, where=where, why=why) from None
    except BaseException:
        _end(process)
        raise
    if process.returncode:
        how = f"exit status {process.returncode}"
        if process.returncode < 0:
            how = f"ended by {signal.Signals(-process.returncode).name}"
        raise AimaError(what, where=where, why=f"{how}\n{tail(stderr or stdout)}\n{command}")
    return Output(stdout, stderr)


def _end(process: subprocess.Popen[str]) -> None:
    """End the process and everything that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
