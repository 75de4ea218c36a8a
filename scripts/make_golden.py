"""Small random checkpoints of the architecture, and what Hugging Face transformers computes from them.

    python scripts/make_golden.py --preset tiny|medium|wide --out DIR [--thin]

writes DIR/<name>/:
    bf16/            config.json, model.safetensors: published tensor names, random values
    f32/             the same values widened (checkpoints below 50 M parameters)
    bf16_sharded/    the same in three shards with an index (checkpoints below 5 M parameters)
    rope.npz         positions i32[P], cos and sin f32[P,rotary dims], up to the published window's end
    golden.npz       the arrays below; `pNN` is a prompt of T tokens; all math in f32 unless said otherwise
    manifest.json    prompts, checks, arrays, versions, digests

    pNN.tokens i32[T]            pNN.logits f32[T,V]       one pass from an empty cache
    pNN.gen_tokens i32[N]        pNN.gen_logits f32[N,V]   greedy decoding; token i is the best of row i
    pNN.mtp_logits f32[T-1,V]    draft head: row t scores token t + 2
    pNN.bf16_logits f32[T,V]     the same model in bf16 math: the distance that bf16 rounding alone makes
    pNN.router_margin f32[L,T]   the last chosen expert's lead, in router logits
  and for traced prompts (lN is layer N):
    embed, lN.mixer_in, lN.mixer_out, lN.moe_in, lN.moe_out, lN.out, final_norm f32[T,H]
    lN.router_logits f32[T,E]    lN.topk_idx i32[T,k]      lN.topk_w f32[T,k]
    lN.gdn_state f32[Hv,Dk,Dv]   lN.conv_state f32[C,3]    after the prompt; conv inputs, oldest first
    lN.k_cache, lN.v_cache f32[Hkv,T,D]                    after the prompt; K after its norm and RoPE

With --thin the folder is fit for a repository: config.json and model.safetensors at its top, rope.npz, and
a golden.npz of few rows. `positions` and `mtp_positions` say which rows of the logits are there, `gen_steps`
which of gen_logits; of the layers, routing and recurrent states alone are kept; `bf16_row_rms` stands for
bf16_logits (rms of its difference, row by row), and router_margin [positions] is the least so far, over
layers and tokens. tests/data/tiny was made so: `--preset tiny --thin`.

Prompts are random and redrawn until no expert and no greedy token is decided by a near-tie, so that an f32
engine has to choose the same ones. Needs torch and transformers 5 (CPU builds do); tests use stored results.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Read when torch and transformers load: one thread (more would change the sums), no network, no advice.
os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

import numpy as np
from checkpoint_layout import PRESETS, Sizes, tensors, write_checkpoint

sys.path.append(str(Path(__file__).resolve().parent.parent))
from aimabuild.base.errors import AimaError, CheckFailedError, UsageError
from aimabuild.base.files import atomic_path, sha256_file, write_text

if TYPE_CHECKING:
    import torch
    from golden_reference import Greedy, Reference

LENGTHS = {"tiny": [1, 2, 3, 5, 17, 63, 64, 65, 130, 200], "medium": [1, 3, 17, 64, 70, 130], "wide": [3, 70]}
TRACED = {"tiny": [5, 130], "medium": [70], "wide": [3]}
ROUTER_GAP = {"tiny": 2e-3, "medium": 2e-4, "wide": 1e-3}
TOKEN_GAP = 2e-2
ATTEMPTS = 80
POSITIONS = [0, 1, 63, 64, 65, 1023, 4095, 8191, 32767, 65536, 131071, 200003, 262142, 262143]


def draw_prompt(length: int, vocabulary: int, seed: Sequence[int]) -> list[int]:
    """Random ids; longer prompts say their first third again, so that the mixers have something to recall."""
    ids = np.random.Generator(np.random.PCG64(list(seed))).integers(0, vocabulary, length)
    if length >= 12:
        third = length // 3
        ids[-third:] = ids[:third]
    return [int(token) for token in ids]


def choose_prompt(reference: Reference, options: argparse.Namespace, number: int) -> Greedy:
    """The first draw without near-ties, with its continuation; CheckFailedError after ATTEMPTS draws."""
    length, floor = options.lengths[number], ROUTER_GAP[options.preset]
    for attempt in range(ATTEMPTS):
        ids = draw_prompt(length, reference.config.vocab_size, (options.seed, number, attempt))
        with reference.traced() as trace:
            reference.forward(ids)
            if float(reference.router_margin(trace).min()) < floor:
                continue
        run = reference.greedy(ids, options.new_tokens)
        if run.router_gap >= floor and run.token_gap >= TOKEN_GAP:
            options.prompts[f"p{number:02d}"] = ids
            return run
    raise CheckFailedError(
        f"no prompt of {length} tokens without a near-tie in {ATTEMPTS} draws",
        hint="another --seed, or shorter",
    )


def self_checks(reference: Reference, ids: list[int], run: Greedy) -> dict[str, Any]:
    """The reference against itself: other ways through the same cache must give the same logits."""
    import torch

    logits, count = run.prompt.logits, len(ids)
    report: dict[str, Any] = {
        "prefill_repeat_identical": bool(torch.equal(reference.forward(ids).logits, logits))
    }
    cache, rows = None, []
    for token in ids:
        step = reference.forward([token], cache)
        cache = step.cache
        rows.append(step.logits[0])
    report["prefill_vs_token_by_token_max_abs"] = float((torch.stack(rows) - logits).abs().max())
    if count > 2:
        cut = count // 3 + 1
        head = reference.forward(ids[:cut])
        tail = reference.forward(ids[cut:], head.cache)
        whole = torch.cat([head.logits, tail.logits])
        report["prefill_vs_two_chunks_max_abs"] = float((whole - logits).abs().max())
    full = reference.forward(ids + run.tokens).logits[count - 1 : count - 1 + len(run.tokens)]
    report["greedy_vs_full_recompute_max_abs"] = float((full - run.rows).abs().max())
    report["greedy_tokens_match_full_recompute"] = full.argmax(-1).tolist() == run.tokens
    return report


def against_bf16(rough: Reference, ids: list[int], run: Greedy) -> tuple[torch.Tensor, dict[str, Any]]:
    """The same prompt in bf16 math: its logits, and how far they lie from the f32 ones."""
    with rough.traced() as trace:
        logits = rough.forward(ids).logits.float()
    flips = 0
    for name, chosen in run.trace.items():
        if name.endswith(".topk_idx"):
            flips += int((trace[name].sort(-1).values != chosen.sort(-1).values).any(-1).sum())
    exact = run.prompt.logits
    difference = logits - exact
    p, q = exact.log_softmax(-1), logits.log_softmax(-1)
    return logits, {
        "bf16_math_router_flips": flips,
        "bf16_math_max_abs": float(difference.abs().max()),
        "bf16_math_rms": float(difference.square().mean().sqrt()),
        "bf16_math_argmax_agree": float((logits.argmax(-1) == exact.argmax(-1)).float().mean()),
        "bf16_math_kl_mean": float((p.exp() * (p - q)).sum(-1).mean()),
    }


class Maker:
    """Collects arrays and per-prompt reports for one checkpoint folder."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        """Load the f32 reference, the draft head, and the bf16 reference when it is asked for."""
        import torch
        from golden_reference import DraftHead, Reference

        self.options = options
        self.reference = Reference(folder)
        self.draft = DraftHead(self.reference) if self.reference.config.mtp_num_hidden_layers else None
        self.rough = Reference(folder, torch.bfloat16) if options.bf16_math else None
        self.arrays: dict[str, torch.Tensor] = {}
        self.reports: dict[str, dict[str, Any]] = {}

    def add_prompt(self, number: int) -> None:
        """Choose the prompt, keep its arrays, check the reference against itself, and say so."""
        import torch

        name, options = f"p{number:02d}", self.options
        run = choose_prompt(self.reference, options, number)
        ids = options.prompts[name]
        kept = {
            "tokens": torch.tensor(ids, dtype=torch.int32),
            "logits": run.prompt.logits,
            "router_margin": self.reference.router_margin(run.trace),
            "gen_tokens": torch.tensor(run.tokens, dtype=torch.int32),
            "gen_logits": run.rows,
        }
        report: dict[str, Any] = {
            "T": len(ids),
            "router_gap_min": run.router_gap,
            "greedy_gap_min": run.token_gap,
            "logits_std": float(run.prompt.logits.std()),
        }
        if len(ids) in options.traced:
            kept |= run.trace | run.state
        if self.draft is not None and len(ids) > 1:
            kept["mtp_logits"] = self.draft.logits(ids, run.prompt.hidden)
        if options.checks:
            report |= self_checks(self.reference, ids, run)
        if self.rough is not None:
            kept["bf16_logits"], measured = against_bf16(self.rough, ids, run)
            report |= measured
        self.arrays |= {f"{name}.{key}": value for key, value in kept.items()}
        self.reports[name] = report
        say(f"{name} " + " ".join(f"{key}={short(value)}" for key, value in report.items()))

    def worst(self) -> dict[str, float]:
        """The largest of every measured distance."""
        found: dict[str, float] = {}
        for report in self.reports.values():
            for key, value in report.items():
                if key.endswith("_max_abs"):
                    found[key] = max(found.get(key, 0.0), value)
        return found


ROWS = 11  # of logits, in a thinned golden
STEPS = np.array([1, 12, 23])  # generated tokens whose logits it has
THIN_LAYERS = ("topk_idx", "topk_w", "gdn_state", "conv_state")


def spread(count: int, rows: int = ROWS) -> np.ndarray:
    """At most `rows` row numbers below `count`, evenly spread, both ends among them."""
    return np.unique(np.linspace(0, count - 1, min(rows, count)).round().astype(np.int32))


def thin(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The few rows of a golden that the repository's tests use."""
    kept: dict[str, np.ndarray] = {}
    for prompt in sorted({name.split(".")[0] for name in arrays}):
        source = {
            name.removeprefix(f"{prompt}."): value
            for name, value in arrays.items()
            if name.startswith(f"{prompt}.")
        }
        count = len(source["tokens"])
        at, steps = spread(count), STEPS[len(source["gen_tokens"]) > STEPS]
        rms = np.sqrt(np.mean((source["bf16_logits"][at] - source["logits"][at]) ** 2, axis=1))
        margin = np.minimum.accumulate(source["router_margin"].min(axis=0))[at]
        found = {
            **{name: source[name] for name in ("tokens", "gen_tokens")},
            **{name: value for name, value in source.items() if name.split(".")[-1] in THIN_LAYERS},
            "positions": at,
            "logits": source["logits"][at],
            "bf16_row_rms": rms,
            "router_margin": margin,
            "gen_steps": steps,
            "gen_logits": source["gen_logits"][steps],
        }
        if "mtp_logits" in source:
            found["mtp_positions"] = spread(count - 1, 5)
            found["mtp_logits"] = source["mtp_logits"][found["mtp_positions"]]
        kept |= {f"{prompt}.{name}": value for name, value in found.items()}
    return kept


def other_forms(root: Path, sizes: Sizes, seed: int, reference: Reference, ids: list[int]) -> dict[str, Any]:
    """Write the widened and the sharded form where the model is small; each must give the same bits."""
    import torch
    from golden_reference import Reference as Loaded

    count = sum(tensor.count for tensor in tensors(sizes))
    forms: dict[str, dict[str, Any]] = {}
    if count < 50e6:
        forms["f32"] = {"dtype": "F32"}
    if count < 5e6:
        forms["bf16_sharded"] = {"shards": 3}
    expected = reference.forward(ids).logits
    result = {}
    for name, how in forms.items():
        write_checkpoint(root / name, sizes, seed, **how)
        result[name] = {
            "logits_identical": bool(torch.equal(Loaded(root / name).forward(ids).logits, expected))
        }
    return result


def manifest(maker: Maker, root: Path, sizes: Sizes, forms: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Everything about the run that a reader or a test may want to know."""
    options, members = maker.options, tensors(sizes)
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.name != "manifest.json")
    reports = maker.reports.values()
    versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "numpy")}
    return {
        "schema": "aimabuild/golden/v1",
        "preset": options.preset,
        "seed": options.seed,
        "overrides": options.overrides,
        "parameters": sum(tensor.count for tensor in members),
        "tensors": len(members),
        "new_tokens": options.new_tokens,
        "traced_lengths": options.traced,
        "bf16_math": options.bf16_math,
        "threads": 1,
        "versions": {"python": platform.python_version(), **versions},
        "seconds": {"total": round(seconds, 1)},
        "forms": forms,
        "worst": maker.worst(),
        "all_greedy_match": all(r.get("greedy_tokens_match_full_recompute", True) for r in reports),
        "all_repeat_identical": all(r.get("prefill_repeat_identical", True) for r in reports),
        "per_prompt": maker.reports,
        "prompts": options.prompts,
        "arrays": {
            name: [str(value.dtype).removeprefix("torch."), list(value.shape)]
            for name, value in sorted(maker.arrays.items())
        },
        "files": {
            str(path.relative_to(root)): {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
            for path in files
        },
    }


def make(options: argparse.Namespace) -> None:
    """Write checkpoint and results; CheckFailedError when the reference disagrees with itself."""
    import torch

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    start = time.monotonic()
    sizes = PRESETS[options.preset].replaced(options.overrides)
    root = options.out / (options.name or options.preset)
    write_checkpoint(root / "bf16", sizes, options.seed)
    say(f"{root}: {sum(tensor.count for tensor in tensors(sizes)) / 1e6:.2f} M parameters")
    with torch.no_grad():
        maker = Maker(root / "bf16", options)
        cos, sin = maker.reference.rope(POSITIONS)
        for number in range(len(options.lengths)):
            maker.add_prompt(number)
        middle = sorted(options.prompts)[len(options.prompts) // 2]
        forms = other_forms(root, sizes, options.seed, maker.reference, options.prompts[middle])
    arrays = {name: value.numpy() for name, value in maker.arrays.items()}
    save(root / "golden.npz", thin(arrays) if options.thin else arrays)
    if options.thin:
        flatten(root)
    save(
        root / "rope.npz",
        {"positions": np.array(POSITIONS, np.int32), "cos": cos.numpy(), "sin": sin.numpy()},
    )
    facts = manifest(maker, root, sizes, forms, time.monotonic() - start)
    write_text(root / "manifest.json", json.dumps(facts, indent=1) + "\n")
    say(
        json.dumps(
            {key: facts[key] for key in ("worst", "all_greedy_match", "all_repeat_identical", "seconds")}
        )
    )
    same = all(form["logits_identical"] for form in forms.values())
    if not (facts["all_greedy_match"] and facts["all_repeat_identical"] and same):
        raise CheckFailedError("the reference does not agree with itself", where=str(root / "manifest.json"))


def flatten(root: Path) -> None:
    """The published form at the folder's top, and the others gone: they have given the same logits."""
    for path in (root / "bf16").iterdir():
        path.replace(root / path.name)
    for folder in [path for path in root.iterdir() if path.is_dir()]:
        shutil.rmtree(folder)


def save(path: Path, arrays: dict[str, Any]) -> None:
    """An .npz file with the arrays, written whole."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def say(text: str) -> None:
    """One line of progress."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def short(value: Any) -> str:
    """A figure as a progress line shows it."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def numbers(text: str) -> list[int]:
    """`1,2,3` as integers, each at least 1."""
    values = [int(part) for part in text.split(",") if part]
    if min(values, default=1) < 1:
        raise ValueError(text)
    return values


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options, with the preset's own lengths filled in; UsageError for sizes that do not exist."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="tiny", choices=sorted(PRESETS))
    parser.add_argument("--out", type=Path, required=True, help="parent of the folder that is written")
    parser.add_argument("--name", help="the folder's name (default: the preset)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--set", action="append", default=[], metavar="SIZE=N", help="change one of the preset's sizes"
    )
    parser.add_argument("--lengths", type=numbers, help="prompt lengths, `1,17,64`")
    parser.add_argument("--traced", type=numbers, help="lengths whose layers are kept too")
    parser.add_argument("--new-tokens", type=int, default=24, help="greedy tokens for each prompt")
    parser.add_argument("--thin", action="store_true", help="few rows, for a repository (needs bf16 math)")
    parser.add_argument("--no-bf16-math", dest="bf16_math", action="store_false")
    parser.add_argument("--no-checks", dest="checks", action="store_false")
    options = parser.parse_args(arguments)
    if options.thin and not options.bf16_math:
        raise UsageError("--thin needs bf16 math", hint="leave --no-bf16-math out")
    try:
        pairs = (item.split("=", 1) for item in options.set)
        options.overrides = {name: int(value) for name, value in pairs}
        PRESETS[options.preset].replaced(options.overrides)
    except ValueError as error:
        raise UsageError(f"--set: {error}", hint="SIZE=N, with a size's name from config.json") from error
    options.lengths = options.lengths or LENGTHS[options.preset]
    options.traced = TRACED[options.preset] if options.traced is None else options.traced
    options.prompts = {}
    return options


def require(*names: str) -> None:
    """AimaError when a module that only this script needs is absent."""
    missing = [name for name in names if not importlib.util.find_spec(name)]
    if missing:
        raise AimaError(
            f"not installed in this Python: {', '.join(missing)}",
            where=sys.executable,
            why="goldens are what Hugging Face transformers computes",
            hint="python3 -m venv VENV && VENV/bin/pip install torch transformers safetensors numpy"
            " (the CPU build of torch is enough); `make test` needs none of this",
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 when everything was written and agrees with itself."""
    try:
        options = parse(arguments)
        require("torch", "transformers", "safetensors")
        make(options)
    except AimaError as error:
        say(f"error: {error}")
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
