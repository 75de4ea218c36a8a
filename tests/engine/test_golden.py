"""The CPU engine against Hugging Face transformers on the tiny checkpoint.

tests/data/tiny: a random checkpoint of the architecture (4 layers, 0.5 M parameters; every weight is a
bf16 value) and what transformers' Qwen3_5MoeForCausalLM computed from it in f32, as
`scripts/make_golden.py --preset tiny --thin` writes it; its `--help` says what each array is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from enginetool import run_engine

DATA = Path(__file__).resolve().parents[1] / "data" / "tiny"
GOLDEN = np.load(DATA / "golden.npz")
PROMPTS = sorted({name.partition(".")[0] for name in GOLDEN.files})
NEW_TOKENS = 24


@dataclass(frozen=True)
class Run:
    """Greedy tokens, and f32 logits [prompt + 23, vocab]."""

    tokens: list[int]
    logits: np.ndarray


def golden(prompt: str, what: str) -> np.ndarray:
    return GOLDEN[f"{prompt}.{what}"]


def generate(folder: Path, prompt: str, *options: str) -> Run:
    ids = ",".join(str(token) for token in golden(prompt, "tokens"))
    out = folder / "logits.npy"
    arguments = ["--prompt-ids", ids, "--max-tokens", str(NEW_TOKENS), "--ignore-eos", "--json"]
    done = run_engine("generate", "--model-dir", DATA, *arguments, "--logits-out", out, *options)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["schema"] == "aima/generate/v1"
    assert answer["text"] is None, "there is no tokenizer in the folder"
    return Run(answer["token_ids"], np.load(out))


@pytest.mark.parametrize("prompt", PROMPTS)
def test_f32_agrees_with_transformers_at_every_position(prompt: str, tmp_path: Path) -> None:
    run = generate(tmp_path, prompt, "--math", "f32")
    length = len(golden(prompt, "tokens"))
    assert run.logits.shape == (length + NEW_TOKENS - 1, 512)
    assert run.logits.dtype == np.float32
    assert run.tokens == golden(prompt, "gen_tokens").tolist()
    np.testing.assert_allclose(
        run.logits[golden(prompt, "positions")], golden(prompt, "logits"), atol=1e-3, rtol=0
    )
    # Row length - 1 + i chose generated token i.
    steps = run.logits[length - 1 + golden(prompt, "gen_steps")]
    np.testing.assert_allclose(steps, golden(prompt, "gen_logits"), atol=1e-3, rtol=0)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_draft_head_agrees_with_transformers_modules(prompt: str, tmp_path: Path) -> None:
    out = tmp_path / "mtp.npy"
    run = generate(tmp_path, prompt, "--math", "f32", "--mtp-logits-out", str(out), "--context-tokens", "64")
    drafts = np.load(out)
    assert drafts.shape == (len(golden(prompt, "tokens")) - 1, 512)
    assert run.tokens == golden(prompt, "gen_tokens").tolist(), "drafts change nothing"
    if len(drafts):
        rows = golden(prompt, "mtp_positions")
        np.testing.assert_allclose(drafts[rows], golden(prompt, "mtp_logits"), atol=1e-3, rtol=0)


def test_bf16_is_closer_to_f32_than_transformers_bf16(tmp_path: Path) -> None:
    ours, theirs, margins = [], [], []
    for prompt in PROMPTS:
        run = generate(tmp_path, prompt, "--math", "bf16")
        error = run.logits[golden(prompt, "positions")] - golden(prompt, "logits")
        ours.append(np.sqrt(np.mean(error**2, axis=1)))
        theirs.append(golden(prompt, "bf16_row_rms"))
        margins.append(golden(prompt, "router_margin"))
    rms, reference, margin = (np.concatenate(rows) for rows in (ours, theirs, margins))
    assert rms.min() > 0, "bf16 math must differ from f32 math"
    assert np.median(rms) <= np.median(reference)
    # Where no router was nearly tied, no expert can flip and only roundings are left.
    decided = margin > 0.02
    assert decided.sum() >= 10
    assert rms[decided].max() < 0.05
    # A flipped expert moves all later rows, by less than a sixth of the logits' deviation of 3.
    assert rms.max() < 0.5


@pytest.mark.parametrize("math", ["f32", "bf16"])
def test_threads_and_pass_length_do_not_change_a_bit(math: str, tmp_path: Path) -> None:
    longest = max(PROMPTS, key=lambda prompt: len(golden(prompt, "tokens")))
    one = generate(tmp_path, longest, "--math", math, "--threads", "1")
    split = generate(tmp_path, longest, "--math", math, "--threads", "3", "--context-tokens", "64")
    assert one.tokens == split.tokens
    assert np.array_equal(one.logits.view(np.uint32), split.logits.view(np.uint32))
