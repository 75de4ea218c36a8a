"""The CPU engine against what Hugging Face transformers computed: every path, every position.

    .venv/bin/python scripts/check_exactness.py GOLDEN [GOLDEN ...] [--isa NAME] [--engine FILE] [--json]

GOLDEN is a folder that scripts/make_golden.py wrote (tests/data/tiny is one, thinned out). The checks run in
process, through the module `aimabuild._native` (`aimabuild build RECIPE bindings`); the engine's program
(--engine, else the one built last) has to give the same bits. What is checked, and within what:

    transformers, f32   logits and draft logits 1e-3, experts and greedy tokens equal, delta states and
                        conv inputs 1e-3, RoPE angles as f32 products to the window's end
    engine, f32         any split of a prompt into passes at multiples of 64 gives the same bits (logits,
                        drafts, experts, states), with any number of threads; token by token within 1e-4
    engine, bf16        the same splits; the distance of its logits from the f32 golden is judged by that
                        of transformers' own bf16 run (median of the rows' rms), and by 0.14 for a prompt
    delta rule, f32     chunk form against recurrence, and both against float64, 1e-5: long sequences, no
                        decay, total decay, and everything between

Prints one row for each preset, instruction set, path and check; `--json` prints schema
aimabuild/exactness/v1. Exit code 3 when a row is out of its limit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from aimabuild.base.errors import AimaError, UsageError  # noqa: E402

SCHEMA = "aimabuild/exactness/v1"
LONG = {"tiny": 700, "medium": 400, "wide": 150}  # tokens of the prompts that are split
THETA = 1e7


@dataclass(frozen=True)
class Row:
    """One check: the largest value of `what` over `count` numbers or choices, and the most it may be."""

    preset: str
    isa: str
    path: str
    what: str
    count: int
    value: float
    limit: float

    @property
    def held(self) -> bool:
        """Whether the value is within its limit; NaN is not."""
        return self.value <= self.limit


class Golden:
    """A golden folder: the checkpoint, and the arrays by prompt."""

    def __init__(self, folder: Path) -> None:
        """UsageError when it is none."""
        self.model = folder / "bf16" if (folder / "bf16").is_dir() else folder
        try:
            with np.load(folder / "golden.npz") as arrays:
                self.arrays = {name: arrays[name] for name in arrays.files}
            with np.load(folder / "rope.npz") as arrays:
                self.rope = {name: arrays[name] for name in arrays.files}
        except OSError as error:
            raise UsageError(
                "this is no golden folder",
                where=str(folder),
                why=f"{error.filename}: {error.strerror}",
                hint="scripts/make_golden.py makes one",
            ) from None
        self.prompts = sorted({name.split(".")[0] for name in self.arrays})
        manifest = folder / "manifest.json"
        self.preset = json.loads(manifest.read_text())["preset"] if manifest.is_file() else folder.name

    def get(self, prompt: str, name: str) -> np.ndarray | None:
        """An array of a prompt, None where it was not kept."""
        return self.arrays.get(f"{prompt}.{name}")

    def __call__(self, prompt: str, name: str) -> np.ndarray:
        """An array that every golden has."""
        return self.arrays[f"{prompt}.{name}"]

    def rows(self, prompt: str, name: str, count: int) -> np.ndarray:
        """Which of `count` rows an array holds: all, or those of a thinned golden."""
        kept = self.get(prompt, name)
        return np.arange(count) if kept is None else kept


class Worst:
    """Collects the largest difference of many arrays."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.count, self.value = 0, 0.0

    def add(self, ours: np.ndarray, theirs: np.ndarray) -> None:
        """Absolute differences; a shape that differs is an error of the caller."""
        assert ours.shape == theirs.shape, (ours.shape, theirs.shape)  # noqa: S101
        if ours.size:
            difference = np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max()
            self.value = float(np.maximum(self.value, difference))  # NaN stays
            self.count += ours.size

    def add_unequal(self, ours: np.ndarray, theirs: np.ndarray) -> None:
        """How many elements differ, NaN included."""
        assert ours.shape == theirs.shape, (ours.shape, theirs.shape)  # noqa: S101
        self.value += int(np.count_nonzero(ours != theirs))
        self.count += ours.size

    def row(self, checker: Checker, path: str, what: str, limit: float) -> Row:
        """The result."""
        return Row(checker.golden.preset, checker.isa, path, what, self.count, self.value, limit)


def bits(values: np.ndarray) -> np.ndarray:
    """Floats as the integers that lie there."""
    return np.ascontiguousarray(values).view(np.uint32)


class Checker:
    """Every check of one golden folder."""

    def __init__(self, golden: Golden, engine: Path | None, threads: int, isa: str) -> None:
        """Load the checkpoint for both kinds of math."""
        from aimabuild import _native

        self.native = _native
        self.golden, self.engine, self.threads, self.isa = golden, engine, threads, isa
        self.f32 = _native.Model(golden.model, math="f32", threads=threads, isa=isa)
        self.bf16 = _native.Model(golden.model, math="bf16", threads=threads, isa=isa)
        self.long = np.random.default_rng(7).integers(0, self.f32.vocab, LONG.get(golden.preset, 300))

    def run(self) -> Iterator[Row]:
        """The rows, as they are found."""
        yield from self.against_transformers()
        yield from self.states()
        yield from self.greedy()
        yield from self.rope()
        for model in (self.f32, self.bf16):
            yield from self.splits(model)
        yield from self.token_by_token()
        yield from self.rounded()
        if self.engine is not None:
            yield from self.program(self.engine)

    def prefill(self, model: Any, prompt: str, **options: bool) -> tuple[Any, Any]:
        """A session with the prompt in it, and what the prefill computed."""
        ids = self.golden(prompt, "tokens")
        session = model.session(len(ids) + 64)
        return session, session.prefill(ids, **options)

    def against_transformers(self) -> Iterator[Row]:
        """Logits, drafts and experts of one pass from an empty cache."""
        golden, logits, drafts, experts, weights = self.golden, Worst(), Worst(), Worst(), Worst()
        for prompt in golden.prompts:
            _, found = self.prefill(self.f32, prompt, experts=True, draft=self.f32.has_draft_head)
            count = len(golden(prompt, "tokens"))
            logits.add(found.logits[golden.rows(prompt, "positions", count)], golden(prompt, "logits"))
            if (expected := golden.get(prompt, "mtp_logits")) is not None:
                drafts.add(found.draft_logits[golden.rows(prompt, "mtp_positions", count - 1)], expected)
            for layer in range(len(self.f32.layers)):
                if (chosen := golden.get(prompt, f"l{layer}.topk_idx")) is not None:
                    ours, theirs = np.argsort(found.experts[layer]), np.argsort(chosen)
                    experts.add_unequal(
                        np.take_along_axis(found.experts[layer], ours, 1),
                        np.take_along_axis(chosen, theirs, 1),
                    )
                    weights.add(
                        np.take_along_axis(found.weights[layer], ours, 1),
                        np.take_along_axis(golden(prompt, f"l{layer}.topk_w"), theirs, 1),
                    )
        for worst, what, limit in (
            (logits, "logits", 1e-3),
            (drafts, "draft logits (MTP)", 1e-3),
            (experts, "experts that differ", 0),
            (weights, "expert weights", 1e-4),
        ):
            yield worst.row(self, "prefill f32 vs transformers", what, limit)

    def states(self) -> Iterator[Row]:
        """Delta states and conv inputs after a prompt, by both forms."""
        golden = self.golden
        for path in ("prefill", "token by token"):
            delta, tail = Worst(), Worst()
            for prompt in golden.prompts:
                kept = [n for n in range(len(self.f32.layers)) if f"{prompt}.l{n}.gdn_state" in golden.arrays]
                if not kept:
                    continue
                session = self.f32.session(256)
                if path == "prefill":
                    session.prefill(golden(prompt, "tokens"), every=False)
                else:
                    for token in golden(prompt, "tokens"):
                        session.step(int(token))
                for layer in kept:
                    state, inputs = session.delta_state(layer)
                    delta.add(state, golden(prompt, f"l{layer}.gdn_state"))
                    expected = golden(prompt, f"l{layer}.conv_state")
                    have = min(3, len(golden(prompt, "tokens")))
                    tail.add(inputs[3 - have :].T, expected[:, -have:])
            yield delta.row(self, f"{path} f32 vs transformers", "delta states", 1e-3)
            yield tail.row(self, f"{path} f32 vs transformers", "conv inputs", 1e-3)

    def greedy(self) -> Iterator[Row]:
        """Greedy continuations: the tokens, and the logits that they came from."""
        golden, tokens, logits = self.golden, Worst(), Worst()
        for prompt in golden.prompts:
            expected = golden(prompt, "gen_tokens")
            session, found = self.prefill(self.f32, prompt, every=False)
            rows, chosen = [found.logits[-1]], [found.next]
            while len(chosen) < len(expected):
                found = session.step(chosen[-1])
                rows.append(found.logits[-1])
                chosen.append(found.next)
            tokens.add_unequal(np.array(chosen), expected)
            kept = golden.rows(prompt, "gen_steps", len(expected))
            logits.add(np.stack(rows)[kept], golden(prompt, "gen_logits"))
        yield tokens.row(self, "decode f32 vs transformers", "greedy tokens that differ", 0)
        yield logits.row(self, "decode f32 vs transformers", "logits", 1e-3)

    def rope(self) -> Iterator[Row]:
        """Angles against the reference's tables, and against float64 functions of the same f32 product."""
        positions, cos, sin = (self.golden.rope[name] for name in ("positions", "cos", "sin"))
        half = cos.shape[1] // 2
        theirs, exact = Worst(), Worst()
        exponent = np.arange(half, dtype=np.float32) / np.float32(half)
        frequency = np.float32(1) / (THETA ** exponent.astype(np.float64)).astype(np.float32)
        for at, position in enumerate(positions):
            ours = self.native.rope_tables(THETA, 2 * half, int(position), 1)
            theirs.add(np.stack(ours)[:, 0], np.stack((cos[at, :half], sin[at, :half])))
            angle = (np.float32(position) * frequency).astype(np.float64)
            exact.add(np.stack(ours)[:, 0], np.stack((np.cos(angle), np.sin(angle))))
        last = int(positions.max())
        yield theirs.row(self, "rope vs transformers", f"cos, sin to position {last}", 1e-6)
        yield exact.row(self, "rope vs float64", f"cos, sin to position {last}", 1e-6)

    def splits(self, model: Any) -> Iterator[Row]:
        """Random splits into calls and passes at multiples of 64, and another number of threads."""
        draft = model.has_draft_head
        random = np.random.default_rng(11)
        one = model.session(len(self.long))
        whole = one.prefill(self.long, experts=True, draft=draft)
        threads = 3 if self.threads != 3 else 2
        other = self.native.Model(self.golden.model, math=model.math, threads=threads, isa=self.isa)
        worst = Worst()
        most = (len(self.long) - 1) // 64
        for used in (model, model, other):
            cuts = np.sort(random.choice(np.arange(1, most + 1), random.integers(1, most + 1), replace=False))
            session = used.session(len(self.long), pass_tokens=int(random.choice([64, 128, 8192])))
            parts = [session.prefill(part, experts=True) for part in np.split(self.long, cuts * 64)]
            worst.add_unequal(bits(np.concatenate([part.logits for part in parts])), bits(whole.logits))
            worst.add_unequal(np.concatenate([part.experts for part in parts], axis=1), whole.experts)
            for layer, kind in enumerate(model.layers):
                if kind == "linear_attention":
                    for ours, theirs in zip(session.delta_state(layer), one.delta_state(layer), strict=True):
                        worst.add_unequal(bits(ours), bits(theirs))
            if draft:
                again = used.session(len(self.long), pass_tokens=64).prefill(self.long, draft=True)
                worst.add_unequal(bits(again.draft_logits), bits(whole.draft_logits))
        path = f"splits {model.math}, {len(self.long)} tokens"
        yield worst.row(self, path, "values whose bits differ", 0)

    def token_by_token(self) -> Iterator[Row]:
        """The recurrence against the chunk form, through the whole model."""
        worst, experts = Worst(), Worst()
        ids = [self.golden(prompt, "tokens") for prompt in self.golden.prompts]
        for number, tokens in enumerate((*ids, self.long[:200])):
            whole = self.f32.session(len(tokens)).prefill(tokens, experts=True)
            session = self.f32.session(len(tokens))
            steps = [session.step(int(token), experts=True) for token in tokens]
            worst.add(np.concatenate([step.logits for step in steps]), whole.logits)
            chosen = np.concatenate([step.experts for step in steps], axis=1)
            if number < len(ids):  # the others were not chosen to be far from ties
                experts.add_unequal(np.sort(chosen), np.sort(whole.experts))
        yield worst.row(self, "token by token f32 vs prefill", "logits", 1e-4)
        yield experts.row(self, "token by token f32 vs prefill", "experts that differ", 0)

    def rounded(self) -> Iterator[Row]:
        """bf16 math: distances from the f32 golden, ours and transformers'."""
        golden, ours, theirs, prompts = self.golden, [], [], []
        for prompt in golden.prompts:
            kept = golden.rows(prompt, "positions", len(golden(prompt, "tokens")))
            _, found = self.prefill(self.bf16, prompt)
            error = found.logits[kept].astype(np.float64) - golden(prompt, "logits")
            ours.append(np.sqrt(np.mean(error**2, axis=1)))
            prompts.append(np.sqrt(np.mean(error**2)))
            rms = golden.get(prompt, "bf16_row_rms")
            if rms is None:
                reference = golden(prompt, "bf16_logits").astype(np.float64) - golden(prompt, "logits")
                rms = np.sqrt(np.mean(reference**2, axis=1))
            theirs.append(rms)
        mine, reference = np.concatenate(ours), np.concatenate(theirs)
        path = "prefill bf16 vs transformers f32"
        where, median = (golden.preset, self.isa, path), float(np.median(reference))
        yield Row(*where, "median rms of a row's logits", len(mine), float(np.median(mine)), median)
        yield Row(*where, "rms of a prompt's logits", len(prompts), float(max(prompts)), 0.14)

    def program(self, engine: Path) -> Iterator[Row]:
        """The engine's program: the same bits as the module, for the longest prompt."""
        prompt = max(self.golden.prompts, key=lambda name: len(self.golden(name, "tokens")))
        ids = self.golden(prompt, "tokens")
        worst = Worst()
        for model in (self.f32, self.bf16):
            session, found = self.prefill(model, prompt, draft=model.has_draft_head)
            rows = [found.logits]
            tokens = [found.next]
            for _ in range(4):
                step = session.step(tokens[-1])
                rows.append(step.logits)
                tokens.append(step.next)
            with tempfile.TemporaryDirectory() as folder:
                words = [engine, "generate", "--model-dir", self.golden.model, "--math", model.math, "--json"]
                words += ["--prompt-ids", ",".join(map(str, ids)), "--max-tokens", "5", "--ignore-eos"]
                words += [
                    "--logits-out",
                    f"{folder}/logits.npy",
                    "--threads",
                    str(self.threads),
                    "--isa",
                    self.isa,
                ]
                words += ["--mtp-logits-out", f"{folder}/mtp.npy"] if model.has_draft_head else []
                done = subprocess.run(words, check=False, capture_output=True, text=True)
                if done.returncode:
                    raise AimaError("the engine failed", where=str(engine), why=done.stderr.strip())
                worst.add_unequal(bits(np.load(f"{folder}/logits.npy")), bits(np.concatenate(rows)))
                worst.add_unequal(np.array(json.loads(done.stdout)["token_ids"]), np.array(tokens))
                if model.has_draft_head:
                    worst.add_unequal(bits(np.load(f"{folder}/mtp.npy")), bits(found.draft_logits))
        yield worst.row(self, "program vs module", "values whose bits differ", 0)


def delta_rule_cases() -> Iterator[tuple[str, int, np.ndarray, np.ndarray]]:
    """(name, tokens, g, beta), each for two value heads."""
    random = np.random.default_rng(3)
    for tokens in (1, 63, 64, 65, 4096):
        g = -np.exp(random.normal(-2, 1.5, (tokens, 2)))
        yield f"T = {tokens}", tokens, g, random.uniform(0, 1, (tokens, 2))
    tokens = 1000
    for name, g in (
        ("no decay", np.zeros((tokens, 2))),
        ("total decay", np.full((tokens, 2), -120.0)),
        ("decay off and total by turns", np.where(np.arange(tokens)[:, None] % 7 < 5, 0.0, -90.0) * [1, 1]),
        ("decay near 1", np.full((tokens, 2), -1e-6)),
    ):
        # A state that slowly decays and into which nothing is written rounds the same way at each step, in
        # any f32 recurrence: half a unit in the last place a token, 6e-5 here.
        for beta in (0.0, 0.5, 1.0) if name != "decay near 1" else (0.5, 1.0):
            yield f"{name}, beta {beta:g}", tokens, g, np.full((tokens, 2), beta)


def recurrence(inputs: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """model.md 3.2 step 6 in float64: S <- e^g S; d = beta (v - S'k); S <- S + k d'; o = S'q."""
    q, k, v, g, beta, state = (
        inputs[name].astype(np.float64) for name in ("q", "k", "v", "g", "beta", "state")
    )
    out = np.empty_like(v)
    group = v.shape[1] // q.shape[1]
    for t in range(len(v)):
        for head in range(v.shape[1]):
            s = state[head]
            s *= np.exp(g[t, head])
            key = k[t, head // group]
            s += np.outer(key, beta[t, head] * (v[t, head] - key @ s))
            out[t, head] = q[t, head // group] @ s
    return out, state


def delta_rule(isa: str) -> Iterator[Row]:
    """The operation at the real head size: chunk form, recurrence, float64."""
    from aimabuild import _native

    random = np.random.default_rng(5)
    forms, exact, count = 0.0, 0.0, 0
    for _, tokens, g, beta in delta_rule_cases():
        q, k = random.normal(size=(2, tokens, 1, 128))
        q /= np.linalg.norm(q, axis=-1, keepdims=True) * np.sqrt(128)
        k /= np.linalg.norm(k, axis=-1, keepdims=True)
        values = {
            "q": q,
            "k": k,
            "v": random.normal(size=(tokens, 2, 128)),
            "g": g,
            "beta": beta,
            "state": random.normal(size=(2, 128, 128)) * 0.3,
        }
        inputs = {name: value.astype(np.float32) for name, value in values.items()}
        chunks = _native.delta_rule(**inputs, chunks=True, isa=isa)
        steps = _native.delta_rule(**inputs, chunks=False, isa=isa)
        expected = recurrence(inputs)
        for a, b, c in zip(chunks, steps, expected, strict=True):
            forms = float(np.maximum(forms, np.abs(a - b).max()))
            exact = float(np.maximum(exact, max(np.abs(a - c).max(), np.abs(b - c).max())))
            count += a.size
    path = "delta rule f32, T to 4096"
    yield Row("any", isa, path, "chunk form vs recurrence", count, forms, 1e-5)
    yield Row("any", isa, path, "both vs float64", count, exact, 1e-5)


def table(rows: Sequence[Row]) -> str:
    """The rows under one another."""
    lines = [f"{'preset':7} {'isa':11} {'path':34} {'check':34} {'values':>11} {'worst':>10} {'limit':>9}"]
    for row in rows:
        mark = "" if row.held else "  OUT"
        figures = f"{row.count:11} {row.value:10.3g} {row.limit:9.3g}"
        lines.append(f"{row.preset:7} {row.isa:11} {row.path:34} {row.what:34} {figures}{mark}")
    return "\n".join(lines)


def built_engine() -> Path | None:
    """The engine built last in this checkout."""
    found = sorted((ROOT / "build").glob("*/libexec/aima-engine.real"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("goldens", nargs="+", type=Path, metavar="GOLDEN")
    parser.add_argument("--engine", type=Path, default=built_engine(), help="the engine's program")
    parser.add_argument("--isa", action="append", help="an instruction set; repeatable (default: the best)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0, or 3 when a row is out of its limit."""
    options = parse(arguments)
    rows: list[Row] = []
    try:
        from aimabuild import _native

        for isa in options.isa or _native.usable_isas()[:1]:
            rows += delta_rule(isa)
            for folder in options.goldens:
                rows += Checker(Golden(folder), options.engine, options.threads, isa).run()
    except (AimaError, ImportError) as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code if isinstance(error, AimaError) else 1
    held = all(row.held for row in rows)
    if options.json:
        facts = [{**asdict(row), "held": row.held} for row in rows]
        sys.stdout.write(json.dumps({"schema": SCHEMA, "held": held, "rows": facts}, indent=1) + "\n")
    else:
        sys.stdout.write(table(rows) + "\n")
    return 0 if held else 3


if __name__ == "__main__":
    sys.exit(main())
