"""What a reader of figures has to know about the machine: processor, instruction sets, bandwidth, load."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from pathlib import Path
from typing import Any

ISA = (
    "avx2",
    "fma",
    "f16c",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
)
_REGION = 512 << 20  # bytes each thread reads: far beyond any last-level cache of a client or a small server
_PASSES = 4


def processor() -> dict[str, Any]:
    """Name, usable cores, and which of ISA the processor has."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = set(fields.get("flags", "").split())
    return {
        "name": fields.get("model name", "unknown"),
        "cores": len(os.sched_getaffinity(0)),
        "isa": [name for name in ISA if name in flags],
    }


def read_bandwidth(threads: int) -> float:
    """Bytes per second that `threads` pinned threads read together from memory, the best of several passes.

    libc's memchr looks for a byte that is not there: it reads every cache line once, with vector loads, and
    ctypes releases the interpreter's lock meanwhile.
    """
    libc = ctypes.CDLL(None)
    libc.memchr.restype = ctypes.c_void_p
    libc.memchr.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    cores = sorted(os.sched_getaffinity(0))
    barrier = threading.Barrier(threads + 1)

    def read(core: int) -> None:
        os.sched_setaffinity(0, {core})  # of this thread
        with mmap.mmap(-1, _REGION) as region:
            region.madvise(mmap.MADV_HUGEPAGE)
            view = ctypes.c_char.from_buffer(region)
            address = ctypes.addressof(view)
            libc.memset(address, 1, _REGION)
            for _ in range(_PASSES):
                barrier.wait()
                libc.memchr(address, 0, _REGION)
                barrier.wait()
            del view

    readers = [
        threading.Thread(target=read, args=(cores[index % len(cores)],), daemon=True)
        for index in range(threads)
    ]
    for reader in readers:
        reader.start()
    best = 0.0
    for _ in range(_PASSES):
        barrier.wait()
        start = time.perf_counter()
        barrier.wait()
        best = max(best, threads * _REGION / (time.perf_counter() - start))
    for reader in readers:
        reader.join()
    return best


def load_average() -> float:
    """Runnable tasks over the last minute: what else the machine was doing."""
    return os.getloadavg()[0]


def libc_version() -> tuple[int, int]:
    """The host's glibc, for example (2, 36); (0, 0) when the host has another libc."""
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    if name != "glibc":
        return 0, 0
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
