"""Sampled replies against an independent rewrite in numpy: the same tokens from the same logits and seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from enginetool import run_engine

DATA = Path(__file__).resolve().parents[1] / "data" / "tiny"
PROMPT = [5, 17, 300, 5, 5]

Row = npt.NDArray[np.float64]


def philox_uniform(seed: int, step: int) -> float:
    """Philox4x32-10 with the step as counter and the seed as key; 53 bits of it as a number in [0, 1)."""
    c = [step & 0xFFFFFFFF, step >> 32, 0, 0]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return float(((c[1] << 32) | c[0]) >> 11) / 2.0**53


def adjusted(row: Row, reply: Sequence[int], s: dict[str, Any]) -> Row:
    """Penalties, then bias."""
    out = row.copy()
    r = s.get("repetition_penalty", 1.0)
    for token in set(PROMPT) | set(reply) if r != 1.0 else set(reply):
        value = out[token] / r if out[token] > 0 else out[token] * r
        count = list(reply).count(token)
        value -= s.get("frequency_penalty", 0.0) * count + s.get("presence_penalty", 0.0) * (count > 0)
        out[token] = np.float32(value)
    for token, bias in s.get("logit_bias", {}).items():
        out[token] = np.float32(out[token] + bias)
    return out


def choose(row: Row, reply: Sequence[int], s: dict[str, Any]) -> int:
    """The next token."""
    logits = adjusted(row, reply, s)
    if s.get("temperature", 0) == 0:
        return int(np.argmax(logits))
    weights = np.exp((logits - logits.max()) / s["temperature"])
    order = np.argsort(-logits, kind="stable")
    cut = False
    if 0 < s.get("top_k", 0) < len(order):
        order, cut = order[: s["top_k"]], True
    if s.get("top_p", 1) < 1:
        mass = np.cumsum(weights[order])
        order, cut = order[: int(np.argmax(mass >= s["top_p"] * mass[-1])) + 1], True
    kept = order if cut else np.arange(len(logits))
    kept = kept[weights[kept] >= s.get("min_p", 0)]
    mass = np.cumsum(weights[kept])
    return int(kept[int(np.argmax(mass > philox_uniform(s.get("seed", 0), len(reply)) * mass[-1]))])


CASES: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.7, "seed": 9223372036854775807},
    {"temperature": 1.5, "top_k": 5, "seed": 4},
    {"temperature": 2.0, "top_p": 0.6, "seed": 5},
    {"temperature": 1.0, "min_p": 0.3, "seed": 6},
    {"temperature": 2.5, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "seed": 7},
    {"repetition_penalty": 1.8},
    {"presence_penalty": 1.5},
    {"frequency_penalty": 0.7, "temperature": 0.9, "seed": 8},
    {"logit_bias": {17: 4.5, 300: -100.0}, "repetition_penalty": 1.3},
    {
        "temperature": 1.2,
        "top_k": 100,
        "top_p": 0.95,
        "seed": 10,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.4,
        "repetition_penalty": 1.1,
        "logit_bias": {3: 2.0},
    },
]


def options_of(settings: dict[str, Any]) -> list[str]:
    words = []
    for name, value in settings.items():
        shown = ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
        words += ["--" + name.replace("_", "-"), shown]
    return words


@pytest.mark.parametrize("settings", CASES, ids=lambda s: "+".join(s))
def test_every_token_is_the_one_that_numpy_draws(settings: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "logits.npy"
    prompt = ",".join(map(str, PROMPT))
    done = run_engine(
        *("generate", "--model-dir", DATA, "--prompt-ids", prompt, "--max-tokens", "40", "--ignore-eos"),
        *("--logits-out", file, "--json"),
        *options_of(settings),
    )
    assert done.returncode == 0, done.stderr
    tokens = json.loads(done.stdout)["token_ids"]
    rows = np.load(file).astype(np.float64)[len(PROMPT) - 1 :]
    assert len(rows) == len(tokens) == 40
    expected = [choose(row, tokens[:step], settings) for step, row in enumerate(rows)]
    assert tokens == expected
    if settings.get("temperature", 0) > 0:
        assert len(set(tokens)) > 5  # it does draw


def reply(*options: str) -> list[int]:
    base = ["generate", "--model-dir", DATA, "--prompt-ids", "1,2,3", "--max-tokens", "30", "--ignore-eos"]
    done = run_engine(*base, "--json", *options)
    assert done.returncode == 0, done.stderr
    tokens: list[int] = json.loads(done.stdout)["token_ids"]
    return tokens


def test_a_seed_decides_whatever_the_threads() -> None:
    one = reply("--temperature", "1.5", "--seed", "11", "--threads", "1")
    assert reply("--temperature", "1.5", "--seed", "11", "--threads", "3") == one
    assert reply("--temperature", "1.5", "--seed", "12") != one


def test_without_options_the_reply_is_greedy() -> None:
    assert reply() == reply("--temperature", "0") == reply("--temperature", "5", "--top-k", "1")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--temperature", "hot"], "--temperature cannot be `hot`"),
        (["--temperature", "101"], "--temperature: the value 101 is out of range"),
        (["--temperature", "1", "--top-p", "0"], "--top-p: the value 0 is out of range"),
        (["--temperature", "1", "--top-k", "-1"], "--top-k cannot be `-1`"),
        (["--top-p", "0.9"], "--top-p means nothing while the likeliest token is taken"),
        (["--logit-bias", "5:1"], "--logit-bias: `5:1` is not a token id and its bias"),
        (["--logit-bias", "512=1"], "--logit-bias: the token id 512 is not in the vocabulary"),
        (["--presence-penalty", "3"], "--presence-penalty: the value 3 is out of range"),
    ],
)
def test_wrong_settings_are_refused(options: list[str], says: str) -> None:
    done = run_engine("generate", "--model-dir", DATA, "--prompt-ids", "1", *options)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {says}")
