"""Compare the engine's token ids and texts with Hugging Face `tokenizers`.

    python scripts/compare_tokenizer.py MODEL/tokenizer.json --engine build/host-cpu/libexec/aima-engine.real

Golden texts, random texts, real texts and code that lie on this machine, and random ids to decode. For each
kind it counts texts, bytes, ids and what differs: the ids, the decoded text, or the pieces that a stream of
the tokens gives (each whole characters, together the decoded text). Needs `pip install tokenizers==0.23.3`,
the reference. Exit code 3 when anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from text_sources import ROOTS, RandomTexts, real_texts
from tokenizers import Tokenizer

from aimabuild.base.errors import AimaError
from aimabuild.base.reporter import Reporter

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "data" / "tokenizer_cases.json"
BATCH = 4 << 20  # bytes of text for one process
SHOWN = 3
FIGURES = ("texts", "bytes", "ids", "ids_differ", "text_differs", "stream_differs")


class Engine:
    """The engine's answers, by one process for each batch."""

    def __init__(self, program: Path, tokenizer: Path) -> None:
        self.program = program
        self.tokenizer = tokenizer

    def ask(self, source: str, lines: Sequence[object]) -> list[dict[str, Any]]:
        """One answer for each text (source "texts-jsonl") or list of ids ("ids-jsonl")."""
        command = [
            self.program,
            "tokenizer-probe",
            "--tokenizer",
            self.tokenizer,
            "--parts",
            "--added-tokens",
        ]
        done = subprocess.run(
            [*command, f"--{source}", "-"],
            input="".join(json.dumps(line) + "\n" for line in lines).encode(),
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            raise AimaError("the engine failed", where=str(self.program), why=done.stderr.decode().strip())
        try:
            # A piece with half a character would not be UTF-8.
            answers = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
        except UnicodeDecodeError as error:
            raise AimaError("the engine printed half a character", why=str(error)) from error
        if len(answers) != len(lines):
            raise AimaError(f"{len(lines)} lines got {len(answers)} answers", where=str(self.program))
        return answers


def batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in lists of about BATCH bytes."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text.encode())
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class Comparison:
    """Counts by kind, and the first differences of each."""

    def __init__(self, engine: Engine, reference: Tokenizer, reporter: Reporter) -> None:
        self.engine = engine
        self.reference = reference
        self.reporter = reporter
        self.counts: dict[str, Counter[str]] = {}

    def differs(self, kind: str, what: str, item: object, ours: object, theirs: object) -> None:
        """Count a difference; show it when it is among the first."""
        counts = self.counts[kind]
        counts[what] += 1
        if counts[what] <= SHOWN:
            shown = "\n".join(
                f"  {name}: {ascii(value)[:400]}"
                for name, value in (("input", item), ("engine", ours), ("reference", theirs))
            )
            self.reporter.line(f"{kind}: {what}\n{shown}")

    def decoded(self, kind: str, item: object, answer: dict[str, Any], ids: Sequence[int]) -> None:
        """Compare the decoded text, and its pieces with it."""
        text = self.reference.decode(ids, skip_special_tokens=False)
        if answer["decoded"] != text:
            self.differs(kind, "text_differs", item, answer["decoded"], text)
        if "".join(answer["parts"]) != answer["decoded"]:
            self.differs(kind, "stream_differs", item, answer["parts"], answer["decoded"])

    def texts(self, kind: str, texts: Iterable[str]) -> None:
        """Compare what texts become."""
        counts = self.counts.setdefault(kind, Counter())
        for batch in batches(texts):
            for text, answer in zip(batch, self.engine.ask("texts-jsonl", batch), strict=True):
                ids = self.reference.encode(text, add_special_tokens=False).ids
                counts.update(texts=1, bytes=len(text.encode()), ids=len(ids))
                if answer["ids"] != ids:
                    self.differs(kind, "ids_differ", text, answer["ids"], ids)
                self.decoded(kind, text, answer, ids)

    def ids(self, kind: str, lists: Sequence[list[int]]) -> None:
        """Compare what ids decode to."""
        counts = self.counts.setdefault(kind, Counter())
        for ids, answer in zip(lists, self.engine.ask("ids-jsonl", lists), strict=True):
            counts.update(texts=1, bytes=len(answer["decoded"].encode()), ids=len(ids))
            self.decoded(kind, ids, answer, ids)


def random_ids(seed: int, count: int, reference: Tokenizer) -> list[list[int]]:
    """Lists of ids: half of them among those that are parts of characters."""
    source = random.Random(seed)  # noqa: S311
    size = reference.get_vocab_size()
    lists = []
    for _ in range(count):
        length = source.randrange(1, 60)
        lists.append(
            [
                source.randrange(256) if source.random() < 0.5 else source.randrange(size)
                for _ in range(length)
            ]
        )
    return lists


def main() -> int:
    """Compare and report; 0 when everything agrees."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizer", type=Path, help="the model's tokenizer.json")
    parser.add_argument("--engine", type=Path, required=True, help="the aima-engine to ask")
    parser.add_argument("--count", type=int, default=20_000, help="random texts")
    parser.add_argument("--megabytes", type=float, default=2, help="of real text of each kind")
    parser.add_argument(
        "--texts", type=Path, action="append", help="folder with real texts (default: the system's)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    reporter = Reporter()
    reference = Tokenizer.from_file(str(args.tokenizer))
    added = [token.content for token in reference.get_added_tokens_decoder().values()]
    comparison = Comparison(Engine(args.engine, args.tokenizer), reference, reporter)
    try:
        with reporter.step("golden and random texts"):
            comparison.texts(
                "golden", (case["text"] for case in json.loads(GOLDEN.read_text(encoding="utf-8")))
            )
            source = RandomTexts(args.seed, added)
            comparison.texts("random", (source.text() for _ in range(args.count)))
            comparison.ids("random ids", random_ids(args.seed, args.count // 10, reference))
        with reporter.step("real texts"):
            real = real_texts(args.texts or ROOTS, int(args.megabytes * 1e6), args.seed)
            for kind, texts in real.items():
                comparison.texts(kind, texts)
    except AimaError as error:
        reporter.error(error)
        return error.exit_code
    report(comparison.counts, reporter, as_json=args.json)
    return 3 if any(counts[what] for counts in comparison.counts.values() for what in FIGURES[3:]) else 0


def report(counts: dict[str, Counter[str]], reporter: Reporter, *, as_json: bool) -> None:
    """The counts by kind and in all."""
    total: Counter[str] = Counter()
    for of_kind in counts.values():
        total.update(of_kind)
    rows = {
        kind: {name: of_kind[name] for name in FIGURES} for kind, of_kind in [*counts.items(), ("all", total)]
    }
    if as_json:
        reporter.json({"schema": "aimabuild/tokenizer-comparison/v1", "kinds": rows})
        return
    table = [[kind, *(f"{value:,}" for value in row.values())] for kind, row in rows.items()]
    reporter.table(["kind", *FIGURES], table, right=frozenset(FIGURES))


if __name__ == "__main__":
    sys.exit(main())
