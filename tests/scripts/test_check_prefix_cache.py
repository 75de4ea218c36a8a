"""The proof of the prefix cache: it holds on the small checkpoint, and it can fail."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import check_prefix_cache as proof
import pytest
from enginetool import find_engine

DATA = Path(__file__).resolve().parents[1] / "data" / "tiny"
SIZES = proof.Sizes(short=(70, 500), long=(1030, 1300), more=(1, 150))


@pytest.mark.parametrize("math", ["bf16", "f32"])
def test_random_histories_give_the_bits_of_cold_runs(math: str) -> None:
    asks = proof.Histories(seed=7, vocab=512, sizes=SIZES).all(16)
    report = proof.check(find_engine(), ["--model-dir", str(DATA), "--math", math], asks, cache_mib=3)
    assert report["equal"], report["problems"]
    assert report["problems"] == []
    assert sum(kind["longer_than_1024"] for kind in report["kinds"].values()) >= 8


def report_of(**fields: Any) -> dict[str, Any]:
    cache = {"bytes": 5, "budget_bytes": 10, "evictions": 1}
    base = {"cached_tokens": 64, "finish_reason": "length", "token_ids": [1, 2], "logits_hash": "a"}
    return {**base, "prefill_tokens": 9, "cache": cache, **fields}


def test_what_differs_is_reported() -> None:
    asks = [proof.Ask("repeat", [1] * 70)] * 3
    cold = [report_of(cached_tokens=0) for _ in asks]
    warm = [report_of(), report_of(finish_reason="cancel", token_ids=[1]), report_of()]
    assert proof.compare(asks, cold, warm) == []
    for change in ({"logits_hash": "b"}, {"token_ids": [1, 3]}):
        worse = copy.deepcopy(warm)
        worse[2] |= change
        (problem,) = proof.compare(asks, cold, worse)
        assert problem.startswith("request 2 (repeat, 70 tokens, 64 cached)")
    worse = copy.deepcopy(warm)
    worse[1]["token_ids"] = [7]
    assert "before the cancellation" in proof.compare(asks, cold, worse)[0]
    assert "was not cold" in proof.compare(asks, warm, warm)[0]


def test_a_run_that_shows_nothing_is_reported() -> None:
    asks = [proof.Ask("repeat", [1] * 70)]
    problems = proof.missing(
        asks, [report_of(cached_tokens=0, cache={"bytes": 9, "budget_bytes": 8, "evictions": 0})]
    )
    assert len(problems) == 5
    asks = asks * 3
    good = [report_of(), report_of(finish_reason="cancel"), report_of(finish_reason="cancel", token_ids=[])]
    assert proof.missing(asks, good) == []


def test_the_same_seed_makes_the_same_histories() -> None:
    def made(seed: int) -> list[proof.Ask]:
        return proof.Histories(seed, 100, SIZES).all(8)

    assert made(1) == made(1)
    assert made(1) != made(2)
    assert {ask.kind for ask in made(1)} == {
        *("repeat", "extension", "branch", "shorter", "a/b/a", "chat"),
        *("cancel in prefill", "cancel in decode"),
    }
