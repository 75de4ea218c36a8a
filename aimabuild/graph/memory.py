"""How many commands may run at once: bounded by processors, by memory, and by the user's `-j`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
# Peak resident memory of one command of each kind, measured on the kernels and sources of this repository.
PEAK_MIB = {"hip": 1000, "triton": 700, "cxx": 600}
# The rest is for the page cache and for whatever else the machine does.
_USABLE = 0.8


@dataclass(frozen=True)
class Jobs:
    """The number of commands at once, and the reason when memory lowered it."""

    count: int
    reason: str | None


def _read_int(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def available_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Memory that can be had now, by the kernel and by the control group; None if unknown."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
    except OSError:
        lines = []
    values = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    limit, used = _read_int(cgroup / "memory.max"), _read_int(cgroup / "memory.current")
    if limit is not None and used is not None:
        values.append(max(limit - used, 0))
    return min(values, default=None)


def choose_jobs(asked: int | None, kinds: frozenset[str], available: int | None, processors: int) -> Jobs:
    """Jobs for a graph with commands of these `kinds` (keys of PEAK_MIB)."""
    wanted = asked if asked is not None else processors
    peak = max((PEAK_MIB[kind] for kind in kinds), default=0) * MIB
    if available is None or peak == 0:
        return Jobs(wanted, None)
    room = max(int(available * _USABLE) // peak, 1)
    if room >= wanted:
        return Jobs(wanted, None)
    reason = f"{room} at once instead of {wanted}: {available // MIB} MiB free, {peak // MIB} MiB each"
    return Jobs(room, reason)


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))
