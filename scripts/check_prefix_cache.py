"""Greedy output after any cache hit has the bits of a cold run: random histories on a real checkpoint.

Each history is a few prompts of one kind: exact repeat, extension, branch, shorter prompt, A/B/A, chat turns,
cancelled in prefill, cancelled in decode. All histories are interleaved and run by one
`aima-engine resident-session-probe`, whose cache is too small for all of them, so that they evict each other.
Every request runs in a second process without a cache too. Compared are the hashes of the logits that tokens
were chosen from, and the tokens.

Exit codes: 0 all equal, 1 the engine failed, 3 something differs or the run did not show what it should have.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = "aima/prefix-cache-check/v1"
Ids = list[int]


@dataclass
class Ask:
    """One request; it may end after a share of the cold prefill's time or a number of tokens."""

    kind: str
    ids: Ids
    boundaries: list[int] = field(default_factory=list)
    generation: int | None = None
    cancel_share: float | None = None
    cancel_tokens: int | None = None
    max_tokens: int = 4


@dataclass(frozen=True)
class Sizes:
    """Lengths of prompts in tokens: short ones, long ones (half of all histories), and what is added."""

    short: tuple[int, int] = (70, 700)
    long: tuple[int, int] = (1030, 1700)
    more: tuple[int, int] = (1, 200)


class Histories:
    """Makes histories from one seed."""

    def __init__(self, seed: int, vocab: int, sizes: Sizes) -> None:
        """`vocab`: ids are below it."""
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.vocab = vocab
        self.sizes = sizes

    def ids(self, bounds: tuple[int, int]) -> Ids:
        return [self.random.randrange(self.vocab) for _ in range(self.random.randint(*bounds))]

    def prompt(self, long: bool) -> Ids:
        return self.ids(self.sizes.long if long else self.sizes.short)

    def repeat(self, long: bool) -> list[Ask]:
        a = self.prompt(long)
        return [Ask("repeat", a), Ask("repeat", a)]

    def extension(self, long: bool) -> list[Ask]:
        a = self.prompt(long)
        b = a + self.ids(self.sizes.more)
        return [Ask("extension", a), Ask("extension", b), Ask("extension", b + self.ids(self.sizes.more))]

    def branch(self, long: bool) -> list[Ask]:
        a = self.prompt(long)
        at = self.random.randint(len(a) // 2, len(a) - 1)
        return [Ask("branch", a), *(Ask("branch", a[:at] + self.ids(self.sizes.more)) for _ in range(2))]

    def shorter(self, long: bool) -> list[Ask]:
        a = self.prompt(long)
        cuts = sorted((self.random.randint(65, len(a) - 1) for _ in range(2)), reverse=True)
        return [Ask("shorter", a), *(Ask("shorter", a[:cut]) for cut in cuts)]

    def a_b_a(self, long: bool) -> list[Ask]:
        a, b = self.prompt(long), self.prompt(not long)
        return [Ask("a/b/a", a), Ask("a/b/a", b), Ask("a/b/a", a)]

    def chat(self, long: bool) -> list[Ask]:
        """Turns whose history leaves the generation prompt out; replies are what a client sends back."""
        history = self.prompt(long)
        boundaries = [0, len(history)]
        asks = []
        for _ in range(3):
            history = history + self.ids(self.sizes.more)
            end = len(history)
            asks.append(Ask("chat", history + self.ids((3, 9)), [*boundaries, end], end))
            history = history + self.ids((5, 60))
            boundaries = [*boundaries, end, len(history)]
        return asks

    def cancel_in_prefill(self, _: bool) -> list[Ask]:
        a = self.prompt(True)
        share = self.random.uniform(0.05, 0.95)
        return [Ask("cancel in prefill", a, cancel_share=share), Ask("cancel in prefill", a)]

    def cancel_in_decode(self, long: bool) -> list[Ask]:
        a = self.prompt(long)
        first = Ask("cancel in decode", a, cancel_tokens=self.random.randint(1, 6), max_tokens=8)
        return [
            first,
            Ask("cancel in decode", a, max_tokens=8),
            Ask("cancel in decode", a + self.ids(self.sizes.more)),
        ]

    def all(self, count: int) -> list[Ask]:
        """`count` histories, every kind in turn, interleaved."""
        makers: list[Callable[[bool], list[Ask]]] = [
            *(self.repeat, self.extension, self.branch, self.shorter, self.a_b_a),
            *(self.chat, self.cancel_in_prefill, self.cancel_in_decode),
        ]
        waiting = [makers[i % len(makers)](i // len(makers) % 2 == 0) for i in range(count)]
        # Up to four conversations at a time, in any order; each keeps its own.
        asks = []
        while waiting:
            turn = self.random.randrange(min(4, len(waiting)))
            asks.append(waiting[turn].pop(0))
            if not waiting[turn]:
                waiting.pop(turn)
        return asks


def request_of(ask: Ask, cold_prefill_ms: float | None) -> dict[str, Any]:
    """The request as the probe reads it; without a time of the cold prefill a cold one, not cancelled."""
    request: dict[str, Any] = {"ids": ask.ids, "max_tokens": ask.max_tokens, "ignore_eos": True}
    if cold_prefill_ms is None:
        return request | {"cache": False}
    if ask.boundaries:
        request["boundaries"] = ask.boundaries
    if ask.generation is not None:
        request["generation"] = ask.generation
    if ask.cancel_share is not None:
        request["cancel"] = {"after_ms": ask.cancel_share * cold_prefill_ms}
    if ask.cancel_tokens is not None:
        request["cancel"] = {"after_tokens": ask.cancel_tokens}
    return request


def run_probe(engine: Path, options: list[str], requests: list[dict[str, Any]]) -> dict[str, Any]:
    """The probe's report; exits with 1 when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requests.json"
        file.write_text(json.dumps({"schema": "aima/session-requests/v1", "requests": requests}))
        command = [engine, "resident-session-probe", *options, "--requests", file, "--json"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr, end="")
        sys.exit(1)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def compare(asks: list[Ask], cold: list[dict[str, Any]], warm: list[dict[str, Any]]) -> list[str]:
    """What differs, one line each."""
    problems = []
    for number, (ask, a, b) in enumerate(zip(asks, cold, warm, strict=True)):
        name = f"request {number} ({ask.kind}, {len(ask.ids)} tokens, {b['cached_tokens']} cached)"
        if a["cached_tokens"] != 0 or a["finish_reason"] == "cancel":
            problems.append(f"{name}: the cold run was not cold")
        if b["finish_reason"] == "cancel":
            if b["token_ids"] != a["token_ids"][: len(b["token_ids"])]:
                problems.append(f"{name}: the tokens before the cancellation differ")
        elif (a["logits_hash"], a["token_ids"]) != (b["logits_hash"], b["token_ids"]):
            problems.append(f"{name}: logits {a['logits_hash']} cold, {b['logits_hash']} after the hit")
    return problems


def missing(asks: list[Ask], warm: list[dict[str, Any]]) -> list[str]:
    """What the run should have shown and did not."""
    problems = []
    cached: Counter[str] = Counter()
    for ask, report in zip(asks, warm, strict=True):
        if report["finish_reason"] != "cancel":
            cached[ask.kind] += report["cached_tokens"]
    problems += [
        f"no hit in histories of kind `{kind}`" for kind in {a.kind for a in asks} if not cached[kind]
    ]
    cancelled = [r for r in warm if r["finish_reason"] == "cancel"]
    if not any(r["token_ids"] for r in cancelled):
        problems.append("nothing was cancelled in decode")
    if not any(not r["token_ids"] and r["prefill_tokens"] > 0 for r in cancelled):
        problems.append("nothing was cancelled in the middle of a prefill")
    if warm[-1]["cache"]["evictions"] == 0:
        problems.append("nothing was evicted")
    if warm[-1]["cache"]["bytes"] > warm[-1]["cache"]["budget_bytes"]:
        problems.append("the cache exceeds its budget")
    return problems


def summary(asks: list[Ask], warm: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures by kind."""
    kinds: dict[str, dict[str, int]] = defaultdict(Counter)
    for ask, report in zip(asks, warm, strict=True):
        counts = kinds[ask.kind]
        counts["requests"] += 1
        counts["longer_than_1024"] += len(ask.ids) > 1024
        counts["hits"] += report["cached_tokens"] > 0
        counts["cancelled"] += report["finish_reason"] == "cancel"
        counts["prompt_tokens"] += len(ask.ids)
        counts["cached_tokens"] += report["cached_tokens"]
    freed = [r["timings"]["cancel_to_free_ms"] for r in warm if "cancel_to_free_ms" in r["timings"]]
    return {
        "kinds": {kind: dict(counts) for kind, counts in sorted(kinds.items())},
        "cache": warm[-1]["cache"],
        "slowest_cancel_to_free_ms": max(freed, default=None),
    }


def check(engine: Path, options: list[str], asks: list[Ask], cache_mib: int) -> dict[str, Any]:
    """Run all requests cold, then interleaved with the cache, and compare."""
    cold = run_probe(engine, [*options, "--prefix-cache", "0"], [request_of(ask, None) for ask in asks])
    timed = [request_of(a, r["timings"]["prefill_ms"]) for a, r in zip(asks, cold["requests"], strict=True)]
    # Passes of 256 tokens: many ends of passes, and another split than the cold run's.
    warm_options = [*options, "--prefix-cache", str(cache_mib), "--context-tokens", "256"]
    warm = run_probe(engine, warm_options, timed)
    differing = compare(asks, cold["requests"], warm["requests"])
    return {
        "schema": SCHEMA,
        "requests": len(asks),
        "equal": not differing,
        "problems": differing + missing(asks, warm["requests"]),
        **summary(asks, warm["requests"]),
        "memory": {"cold": cold["memory"], "warm": warm["memory"]},
    }


def print_report(report: dict[str, Any]) -> None:
    columns = ("requests", "longer_than_1024", "hits", "cancelled", "prompt_tokens", "cached_tokens")
    print(f"{'kind':18}" + "".join(f"{name:>18}" for name in columns))
    for kind, counts in report["kinds"].items():
        print(f"{kind:18}" + "".join(f"{counts[name]:>18}" for name in columns))
    cache = report["cache"]
    print(f"cache: {cache['bytes']} of {cache['budget_bytes']} bytes, {cache['evictions']} evictions")
    print(f"slowest cancellation: free after {report['slowest_cancel_to_free_ms']:.1f} ms")
    for problem in report["problems"]:
        print(f"PROBLEM {problem}")
    print(f"{report['requests']} requests: {'all equal' if report['equal'] else 'NOT EQUAL'}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", type=Path, required=True, help="the engine's program")
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--histories", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--math", choices=("bf16", "f32"), default="bf16")
    parser.add_argument("--cache-mib", type=int, default=64, help="budget of the prefix cache")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    config = json.loads((options.model_dir / "config.json").read_text())
    vocab = config.get("text_config", config)["vocab_size"]
    asks = Histories(options.seed, vocab, Sizes()).all(options.histories)
    engine_options = ["--model-dir", str(options.model_dir), "--math", options.math]
    report = check(options.engine, engine_options, asks, options.cache_mib)
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        print_report(report)
    return 3 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
