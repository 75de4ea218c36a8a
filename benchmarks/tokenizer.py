"""Encode and decode: the engine's tokenizer beside Hugging Face `tokenizers`, one thread each; hostile input.

    python benchmarks/tokenizer.py MODEL/tokenizer.json --engine build/host-cpu/libexec/aima-engine.real

Needs `pip install tokenizers==0.23.3`, the peer. benchmarks/README.md says what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
sys.path.append(str(Path(__file__).resolve().parent.parent))
sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))

from machine_facts import load_average, processor
from text_sources import ROOTS, RandomTexts, real_texts
from tokenizers import Tokenizer

from aimabuild.base.errors import AimaError
from aimabuild.base.files import write_text
from aimabuild.base.reporter import Reporter

MEGABYTE = 1_000_000
ROUNDS = 5
HOSTILE: dict[str, str] = {
    "one letter": "a",
    "one mark": "\u0301",
    "marks out of order": "\u0301\u0327\u05b9\u0323",
    "Hangul parts": "\u1100\u1161\u11a8",
    "spaces": " ",
    "newlines": "\n",
    "spaces, a newline last": " ",
    "digits": "7",
    "apostrophes": "'",
    "starts of added tokens": "<|im_star",
    "two letters in turn": "ab",
    "symbols": "=-",
    "ideograph": "\u5929",
    "all of these": "a\u0301 \u03277\n\u1100<|im\u5929==''  ",
}


@dataclass(frozen=True)
class Speed:
    """Megabytes of UTF-8 a second, and the engine's divided by the peer's."""

    text: str
    bytes: int
    encode: float
    peer_encode: float
    decode: float
    peer_decode: float

    @property
    def encode_ratio(self) -> float:
        """Above 1 the engine encodes faster."""
        return self.encode / self.peer_encode


@dataclass(frozen=True)
class Hostile:
    """Seconds for a quarter of a megabyte, and for a whole one; 4 times as long is linear."""

    text: str
    quarter_seconds: float
    whole_seconds: float
    ids: int

    @property
    def growth(self) -> float:
        """Time for the whole by time for the quarter."""
        return self.whole_seconds / self.quarter_seconds


class Engine:
    """The engine's own clock, one process for each text."""

    def __init__(self, program: Path, tokenizer: Path, folder: Path) -> None:
        self.command = [str(program), "tokenizer-probe", "--tokenizer", str(tokenizer)]
        self.file = folder / "text"

    def measure(self, text: str, repeat: int) -> dict[str, Any]:
        """What the probe says of a text; the least seconds of `repeat` times."""
        self.file.write_text(text, encoding="utf-8", newline="")
        command = [*self.command, "--text-file", str(self.file), "--repeat", str(repeat)]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode != 0:
            raise AimaError("the engine failed", where=command[0], why=done.stderr.decode().strip())
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def seconds_of(work: Callable[[], object]) -> float:
    """Seconds of processor time that one call takes in this thread.

    Not by the wall clock: the peer's calls are long, and on a busy machine would pay for what others do.
    """
    start = time.thread_time()
    work()
    return time.thread_time() - start


def speed(name: str, text: str, engine: Engine, peer: Tokenizer) -> Speed:
    """Five rounds in turn; the least time of each counts, and of the peer's two ways to encode the faster."""
    ids = peer.encode(text, add_special_tokens=False).ids
    times: dict[str, list[float]] = {"encode": [], "decode": [], "peer_encode": [], "peer_decode": []}
    for _ in range(ROUNDS):
        # Once in a fresh process: a second time the engine would remember every word of the text.
        answer = engine.measure(text, 1)
        times["encode"].append(answer["encode_seconds"])
        times["decode"].append(answer["decode_seconds"])
        plain = seconds_of(lambda: peer.encode(text, add_special_tokens=False))
        fast = seconds_of(lambda: peer.encode_batch_fast([text], add_special_tokens=False))
        times["peer_encode"].append(min(plain, fast))
        times["peer_decode"].append(seconds_of(lambda: peer.decode(ids, skip_special_tokens=False)))
    size = len(text.encode())
    rates = {name: size / min(values) / 1e6 for name, values in times.items()}
    return Speed(text=name, bytes=size, **rates)


def whole_texts(seed: int) -> dict[str, str]:
    """A megabyte of each kind of real text, and of random text."""
    texts = {kind: "\n".join(parts) for kind, parts in real_texts(ROOTS, MEGABYTE, seed).items()}
    source = RandomTexts(seed, ["<|im_start|>", "<|im_end|>"])
    texts["random"] = "".join(source.text() for _ in range(6000))
    cut = {kind: text.encode()[:MEGABYTE].decode("utf-8", "ignore") for kind, text in texts.items()}
    return {kind: text for kind, text in cut.items() if len(text.encode()) > MEGABYTE // 4}


def hostile(name: str, unit: str, engine: Engine) -> Hostile:
    """A quarter of a megabyte and a whole one of the same."""
    tail = "\n" if name.endswith("newline last") else ""
    answers = []
    for size in (MEGABYTE // 4, MEGABYTE):
        text = unit * (size // len(unit.encode())) + tail
        answers.append(engine.measure(text, 3))
    quarter, whole = answers
    return Hostile(name, quarter["encode_seconds"], whole["encode_seconds"], whole["count"])


def report(speeds: list[Speed], tables: list[Hostile], reporter: Reporter) -> None:
    """Both tables, and the median of the ratios."""
    header = ["text", "bytes", "encode MB/s", "peer", "ratio", "decode MB/s", "peer", "ratio"]
    rows = [
        [
            s.text,
            f"{s.bytes:,}",
            f"{s.encode:.1f}",
            f"{s.peer_encode:.1f}",
            f"{s.encode_ratio:.2f}",
            f"{s.decode:.0f}",
            f"{s.peer_decode:.0f}",
            f"{s.decode / s.peer_decode:.2f}",
        ]
        for s in speeds
    ]
    reporter.table(header, rows, right=frozenset(header[1:]))
    if speeds:
        reporter.result(f"median encode ratio: {statistics.median(s.encode_ratio for s in speeds):.2f}\n")
    header = ["hostile text, 1 MB", "ids", "0.25 MB s", "1 MB s", "growth"]
    rows = [
        [h.text, f"{h.ids:,}", f"{h.quarter_seconds:.3f}", f"{h.whole_seconds:.3f}", f"{h.growth:.1f}"]
        for h in tables
    ]
    reporter.table(header, rows, right=frozenset(header[1:]))


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizer", type=Path, help="the model's tokenizer.json")
    parser.add_argument("--engine", type=Path, required=True, help="the aima-engine to measure")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hostile-only", action="store_true", help="leave out the comparison")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    args = parser.parse_args()
    reporter = Reporter()
    reporter.line(f"{processor()['name']}, load {load_average():.1f}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            engine = Engine(args.engine, args.tokenizer, Path(folder))
            peer = Tokenizer.from_file(str(args.tokenizer))
            texts = {} if args.hostile_only else whole_texts(args.seed)
            with reporter.task("texts", len(texts) + len(HOSTILE)) as task:
                speeds = []
                for name, text in texts.items():
                    speeds.append(speed(name, text, engine, peer))
                    task.advance()
                tables = []
                for name, unit in HOSTILE.items():
                    tables.append(hostile(name, unit, engine))
                    task.advance()
    except AimaError as error:
        reporter.error(error)
        return error.exit_code
    report(speeds, tables, reporter)
    if args.json:
        figures = {
            "schema": "aimabuild/tokenizer-benchmark/v1",
            "processor": processor(),
            "speeds": [asdict(s) | {"encode_ratio": s.encode_ratio} for s in speeds],
            "hostile": [asdict(h) | {"growth": h.growth} for h in tables],
        }
        write_text(args.json, json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
