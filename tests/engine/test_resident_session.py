"""resident-session-probe: requests from a file, hashes, hits, cancellation, and what it refuses."""

from __future__ import annotations

import json
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from enginetool import find_engine, run_engine

DATA = Path(__file__).resolve().parents[1] / "data" / "tiny"
LONG = [(7 * i + i // 11) % 512 for i in range(300)]


def write(folder: Path, requests: Any, schema: str = "aima/session-requests/v1") -> Path:
    file = folder / "requests.json"
    file.write_text(json.dumps({"schema": schema, "requests": requests}))
    return file


def probe(folder: Path, requests: list[dict[str, Any]], *options: str) -> dict[str, Any]:
    arguments = ("--model-dir", DATA, "--requests", write(folder, requests), "--json", *options)
    done = run_engine("resident-session-probe", *arguments)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["schema"] == "aima/resident-session-probe/v1"
    return report


def test_a_repeated_prompt_hits_and_gives_the_same_hashes(tmp_path: Path) -> None:
    ask = {"ids": LONG, "max_tokens": 9, "ignore_eos": True}
    report = probe(tmp_path, [{"name": "cold", **ask}, {"name": "hit", **ask}, {**ask, "cache": False}])
    cold, hit, bypass = report["requests"]
    assert [r["name"] for r in report["requests"]] == ["cold", "hit", "2"]
    assert [r["cached_tokens"] for r in report["requests"]] == [0, 256, 0]
    assert (cold["prefill_tokens"], hit["prefill_tokens"]) == (300, 44)
    assert cold["snapshots"] == [256]
    assert len({r["logits_hash"] for r in report["requests"]}) == 1
    assert len({r["token_hash"] for r in report["requests"]}) == 1
    assert hit["cache"]["hits"] == 1
    plain = run_engine(
        *("generate", "--model-dir", DATA, "--prompt-ids", ",".join(map(str, LONG))),
        *("--max-tokens", "9", "--ignore-eos", "--json"),
    )
    assert json.loads(plain.stdout)["token_ids"] == cold["token_ids"] == bypass["token_ids"]
    other = probe(tmp_path, [{**ask, "ids": LONG[1:]}])["requests"][0]
    assert other["logits_hash"] != cold["logits_hash"]


def test_sampling_cancel_and_logprobs(tmp_path: Path) -> None:
    sampled = {"temperature": 1.2, "top_p": 0.95, "seed": 5, "logit_bias": {"3": 1.5}, "logprobs": 2}
    ask = {"ids": LONG, "max_tokens": 20, "ignore_eos": True, "sampling": sampled}
    whole, cut, again = probe(tmp_path, [ask, {**ask, "cancel": {"after_tokens": 6}}, ask])["requests"]
    assert whole["finish_reason"] == "length"
    assert cut["finish_reason"] == "cancel"
    assert cut["token_ids"] == whole["token_ids"][:6]
    assert cut["timings"]["cancel_to_free_ms"] >= 0
    assert again["logits_hash"] == whole["logits_hash"]
    first = whole["logprobs"][0]
    assert first["id"] == whole["token_ids"][0]
    assert len(first["top"]) == 2
    assert first["top"][0]["logprob"] >= first["logprob"]


def test_a_chat_needs_a_tokenizer_and_text_too(tmp_path: Path) -> None:
    for prompt in ({"text": "hello"}, {"chat": {"messages": [{"role": "user", "content": "hello"}]}}):
        done = run_engine(
            "resident-session-probe", "--model-dir", DATA, "--requests", write(tmp_path, [prompt])
        )
        assert done.returncode == 2
        assert "tokenizer.json" in done.stderr


@pytest.mark.parametrize(
    ("requests", "says"),
    [
        ([{"ids": [1]}, {"ids": [1], "max_token": 4}], "requests[1].max_token: this field is not known"),
        ([{"ids": [1], "sampling": {"top_p": 2}}], "requests[0].sampling.top_p: the value 2 is out of range"),
        ([{"ids": [1], "sampling": {"temprature": 2}}], "did you mean `temperature`?"),
        ([{"ids": [512]}], "the token id 512 is not in the vocabulary"),
        ([{"ids": [1, "2"]}], "requests[0].ids"),
        ([{"ids": []}], "the prompt is empty"),
        ([{"ids": [1], "text": "a"}], "one of `ids`, `text` and `chat` is needed"),
        ([{}], "one of `ids`, `text` and `chat` is needed"),
        ([{"ids": [1], "max_tokens": 0}], "requests[0].max_tokens: the value is out of range"),
        ([{"ids": [1], "max_tokens": 262144}], "the maximum context length is 262144 tokens"),
        ([{"ids": [1], "cancel": {}}], "either `after_ms` or `after_tokens` is needed"),
        ([7], "requests[0]: a JSON object is expected here"),
        ({"ids": [1]}, "requests"),
    ],
)
def test_wrong_requests_are_refused_with_their_place(requests: Any, says: str, tmp_path: Path) -> None:
    done = run_engine("resident-session-probe", "--model-dir", DATA, "--requests", write(tmp_path, requests))
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr


def test_another_schema_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, [], schema="aima/session-requests/v2")
    done = run_engine("resident-session-probe", "--model-dir", DATA, "--requests", file)
    assert done.returncode == 2
    assert "`aima/session-requests/v1` is expected" in done.stderr


def test_the_peak_stays_below_the_plan(tmp_path: Path) -> None:
    asks = [{"ids": [(i * k) % 512 for i in range(1500)], "max_tokens": 4} for k in range(1, 6)]
    memory = probe(tmp_path, asks, "--prefix-cache", "1", "--cache-capacity", "2048")["memory"]
    assert memory["capacity_tokens"] == 2048
    parts = ("process", "weights", "state", "workspace", "cache")
    assert memory["planned_peak_bytes"] == sum(memory[f"{part}_bytes"] for part in parts)
    assert memory["peak_rss_bytes"] <= memory["planned_peak_bytes"] + (
        16 << 20
    )  # code and the allocator's own


def limited(limit: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def test_what_does_not_fit_is_refused_at_start_with_the_figures(tmp_path: Path) -> None:
    file = write(tmp_path, [{"ids": [1, 2]}])
    command = [find_engine(), "resident-session-probe", "--model-dir", DATA, "--requests", file]
    assert subprocess.run([*command, "--prefix-cache", "1"], check=False, capture_output=True).returncode == 0
    for options, limit in ((["--prefix-cache", "10000000"], None), (["--prefix-cache", "4096"], 2 << 30)):
        refused = subprocess.run(
            [*command, *options],
            check=False,
            capture_output=True,
            text=True,
            preexec_fn=limited(limit) if limit else None,
        )
        assert refused.returncode == 1
        assert refused.stdout == ""
        assert refused.stderr.startswith("error: a window of 64 tokens does not fit into memory")
        assert "weights 803.10 KB, keys, values and states " in refused.stderr
        assert ("RLIMIT_AS" if limit else "available (") in refused.stderr
        assert "--prefix-cache" in refused.stderr


@pytest.mark.parametrize("value", ["63", "262145", "x"])
def test_a_window_out_of_range_is_refused(value: str) -> None:
    done = run_engine("generate", "--model-dir", DATA, "--prompt-ids", "1", "--cache-capacity", value)
    assert done.returncode == 2
    assert "--cache-capacity" in done.stderr


def test_a_window_too_small_for_the_request_is_refused() -> None:
    done = run_engine(
        *("generate", "--model-dir", DATA, "--prompt-ids", "1,2", "--max-tokens", "63"),
        *("--cache-capacity", "64"),
    )
    assert done.returncode == 2
    assert "the maximum context length is 64 tokens" in done.stderr
    assert "raise --cache-capacity" in done.stderr
