"""How fast weights are read from a cold page cache, beside a plain sequential read of the same files.

Rounds alternate between the two. Before each the files are dropped from the page cache (posix_fadvise), and
mincore says what share of them stayed, because another mapping holds them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = 1 << 20


def shards(model: Path) -> list[Path]:
    """The folder's weight files."""
    return sorted(model.glob("*.safetensors"))


def cached_share(paths: list[Path]) -> float:
    """How much of the files lies in the page cache, 0..1."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    pages = present = 0
    for path in paths:
        size = path.stat().st_size
        with (
            path.open("rb") as file,
            mmap.mmap(
                file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
            ) as view,
        ):
            count = -(-size // mmap.PAGESIZE)
            vector = ctypes.create_string_buffer(count)
            anchor = ctypes.c_char.from_buffer(view)
            if libc.mincore(ctypes.addressof(anchor), size, vector) != 0:
                raise OSError(ctypes.get_errno(), f"mincore: {path}")
            del anchor
            pages += count
            present += sum(byte & 1 for byte in vector.raw[:count])
    return present / max(pages, 1)


def drop(paths: list[Path]) -> float:
    """Drop the files from the page cache; the share that stayed."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return cached_share(paths)


def plain_read(paths: list[Path]) -> float:
    """Bytes per second of one thread that reads the files one after another, in blocks of 1 MiB."""
    buffer = bytearray(_BLOCK)
    total = 0
    start = time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while got := file.readinto(buffer):
                total += got
    return total / (time.perf_counter() - start)


def engine_read(engine: Path, model: Path, workers: int | None) -> dict[str, Any]:
    """The "load" object of a run that loads everything and computes one token."""
    command: list[str | Path] = [
        engine,
        "generate",
        "--model-dir",
        model,
        "--prompt-ids",
        "1",
        "--max-tokens",
        "1",
        "--json",
    ]
    command += ["--load-threads", str(workers)] if workers else []
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    load: dict[str, Any] = json.loads(done.stdout)["load"]
    return load


def measure(engine: Path, model: Path, rounds: int, workers: int | None) -> dict[str, Any]:
    """Medians and every round, in GB/s."""
    paths = shards(model)
    plain: list[float] = []
    ours: list[float] = []
    cached = 0.0
    load: dict[str, Any] = {}
    for index in range(rounds):
        for kind in ("plain", "engine") if index % 2 == 0 else ("engine", "plain"):
            cached = max(cached, drop(paths))
            if kind == "plain":
                plain.append(plain_read(paths) / 1e9)
            else:
                load = engine_read(engine, model, workers)
                ours.append(float(load["gb_per_second"]))
    return {
        "schema": "aima/load-rate/v1",
        "files": len(paths),
        "file_bytes": sum(path.stat().st_size for path in paths),
        "read_bytes": load["read_bytes"],
        "workers": load["workers"],
        "cached_share_before": cached,
        "plain_gb_per_second": statistics.median(plain),
        "engine_gb_per_second": statistics.median(ours),
        "share": statistics.median(ours) / statistics.median(plain),
        "rounds": {"plain": plain, "engine": ours},
    }


def main() -> int:
    """Measure and print; 3 when --require is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model-dir", type=Path, required=True, help="a model folder on the disk in question"
    )
    parser.add_argument("--engine", type=Path, help="the engine (default: the one built last)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--load-threads", type=int, help="workers (default: the engine's own choice)")
    parser.add_argument("--require", type=float, metavar="SHARE", help="exit with 3 when the share is lower")
    parser.add_argument("--json", action="store_true", help="print aima/load-rate/v1")
    asked = parser.parse_args()
    built = sorted(ROOT.glob("build/*/libexec/aima-engine.real"), key=lambda path: path.stat().st_mtime)
    if asked.engine is None and not built:
        parser.error("no engine is built; name one with --engine")
    if not shards(asked.model_dir):
        parser.error(f"{asked.model_dir} has no .safetensors file")
    report = measure(asked.engine or built[-1], asked.model_dir, asked.rounds, asked.load_threads)
    if asked.json:
        print(json.dumps(report))
    else:
        print(f"{report['files']} files, {report['file_bytes'] / 1e9:.2f} GB", end="")
        print(f"; at most {report['cached_share_before']:.1%} was cached before a round")
        print(f"plain sequential read  {report['plain_gb_per_second']:.2f} GB/s")
        print(f"engine, {report['workers']} workers      {report['engine_gb_per_second']:.2f} GB/s")
        print(f"share                  {report['share']:.2f}")
    return 3 if asked.require is not None and report["share"] < asked.require else 0


if __name__ == "__main__":
    sys.exit(main())
