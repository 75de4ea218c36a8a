"""What ends a run from outside: signals, files that change, limits, and outputs that cannot be written."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from enginetool import find_engine, run_engine

DATA = Path(__file__).resolve().parents[1] / "data" / "tiny"
LONG = ["--prompt-ids", "5,17,300", "--ignore-eos", "--max-tokens", "4000", "--threads", "1"]
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def start(*arguments: str | Path, before: Callable[[], object] | None = None) -> subprocess.Popen[bytes]:
    def prepare() -> None:
        for number in SIGNALS:  # a background job has SIGINT ignored, and so would its children
            signal.signal(number, signal.SIG_DFL)
        if before is not None:
            before()

    command = [find_engine(), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=prepare)


def await_handler(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Wait until the process handles a signal."""
    deadline = time.monotonic() + 60
    while not signal_mask(process, "SigCgt") >> (number - 1) & 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def signal_mask(process: subprocess.Popen[bytes], field: str) -> int:
    """SigCgt or SigIgn of a process."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(field)), 16)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_during_a_reply_ends_it_in_order(number: signal.Signals, tmp_path: Path) -> None:
    asked = ["generate", "--model-dir", DATA, *LONG, "--logits-out", tmp_path / "l.npy"]
    process = start(*asked)
    assert process.stdout is not None
    assert process.stdout.read(1)
    assert len(list(tmp_path.iterdir())) == 1
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == -number
    assert f"\nerror: stopped by {number.name}\n".encode() in err
    assert out.count(b",") < 3998
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_outside_a_reply_ends_the_process_at_once(number: signal.Signals) -> None:
    process = start("chat-template-probe", "--requests-jsonl", "-")
    await_handler(process, number)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -number
    assert err == f"\nerror: stopped by {number.name}\n".encode()


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    process = start(
        "chat-template-probe",
        "--requests-jsonl",
        "-",
        before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    await_handler(process, signal.SIGTERM)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM


def test_a_model_file_cut_short_in_use_is_an_error(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(DATA / name, tmp_path / name)
    mapped = ["--mmap"] if "--mmap" in run_engine("generate", "--help").stdout else []
    process = start("generate", "--model-dir", tmp_path, *LONG, *mapped)
    assert process.stdout is not None
    assert process.stdout.read(1)
    os.truncate(tmp_path / "model.safetensors", 0)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.endswith(b"\nerror: a model file was cut short or cannot be read while in use\n")


def test_a_file_over_the_limit_is_an_error(tmp_path: Path) -> None:
    process = start(
        *["generate", "--model-dir", DATA, "--prompt-ids", "5,17,300", "--ignore-eos", "--max-tokens", "64"],
        *["--logits-out", tmp_path / "l.npy"],
        before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)),
    )
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"the file cannot be written\n  why: File too large" in err
    assert list(tmp_path.iterdir()) == []


def test_threads_that_cannot_start_are_an_error() -> None:
    limit = 2 << 30
    process = start(
        *["generate", "--model-dir", DATA, "--prompt-ids", "1", "--max-tokens", "1", "--threads", "1024"],
        before=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, b"")
    assert b"error: cannot start 1024 threads\n  why: Resource temporarily unavailable after " in err
    assert b"--threads" in err


# --- outputs ------------------------------------------------------------------------------------------------


def make_target(kind: str, folder: Path) -> Path:
    target = folder / kind
    if kind == "device":
        try:
            os.mknod(target, stat.S_IFCHR | 0o600, os.makedev(1, 7))
        except PermissionError:
            pytest.skip("device files cannot be made here")
    elif kind == "fifo":
        os.mkfifo(target)
    else:
        target.mkdir()
    return target


@pytest.mark.parametrize("kind", ["device", "fifo", "folder"])
def test_what_is_no_regular_file_is_not_replaced(kind: str, tmp_path: Path) -> None:
    target = make_target(kind, tmp_path)
    before = target.lstat()
    # The model is not there: the target is refused before anybody looks for it.
    asked = ["--model-dir", tmp_path / "none", "--prompt-ids", "1", "--logits-out", target]
    done = run_engine("generate", *asked)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"error: --logits-out `{target}`: no file can be written there\n  why: it is a"
    )
    after = target.lstat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("target", ["", "missing/", "."])
def test_a_path_that_names_no_file_is_refused(target: str) -> None:
    done = run_engine("generate", "--model-dir", DATA, "--prompt-ids", "1", "--logits-out", target)
    assert done.returncode == 2
    assert f"--logits-out `{target}`: no file can be written there" in done.stderr


@pytest.mark.parametrize("arguments", [["doctor"], ["doctor", "--json"], ["--version"]])
def test_output_that_nobody_can_take_is_an_error(arguments: list[str]) -> None:
    closed = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" >&-', find_engine(), *arguments], capture_output=True, check=False
    )
    reading, writing = os.pipe()
    os.close(reading)
    broken = subprocess.run([find_engine(), *arguments], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    for done in (closed, broken):
        assert done.returncode == 1
        assert done.stderr.startswith(b"error: stdout: the output cannot be written\n  why: ")


def test_a_file_never_becomes_standard_output(tmp_path: Path) -> None:
    asked = ["generate", "--model-dir", DATA, "--prompt-ids", "1", "--max-tokens", "2"]
    out = tmp_path / "l.npy"
    script = 'exec "$0" "$@" >&- 2>&-'
    done = subprocess.run(["sh", "-c", script, find_engine(), *asked, "--logits-out", out], check=False)
    assert done.returncode == 1
    assert list(tmp_path.iterdir()) == []
