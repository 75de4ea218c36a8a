"""The engine's CPU device beside llama.cpp, on the same weights, in the same run.

    .venv/bin/python benchmarks/cpu_vs_llamacpp.py --work-dir DIR [--engine FILE] [--native-peer]

Prefill of 512 tokens and decoding of 64 more, BF16 weights, two threads, medians of five rounds. In every
round each program runs once, and the order turns round from one round to the next. benchmarks/README.md says
what is made in the work folder and how to read the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))

import llamacpp_setup as setup
from checkpoint_layout import Sizes, tensors
from machine_facts import load_average, processor, read_bandwidth

from aimabuild.base.errors import AimaError, CheckFailedError, UsageError
from aimabuild.base.files import write_text
from aimabuild.base.reporter import Reporter

ENGINE = setup.ROOT / "build/host-cpu/libexec/aima-engine.real"
SCHEMA = "aimabuild/benchmark-llamacpp/v1"
VOCABULARY = (
    248077  # ids the tokenizer knows; the rows after them are padding, never chosen by either program
)
AGREEMENT = (8, 24, 8)  # prompts, tokens of each, greedy tokens compared


@dataclass(frozen=True)
class Sample:
    """One run: seconds for the prompt, seconds for the steps after it."""

    tokens: list[int]
    prefill_s: float
    decode_s: float
    steps: int


class Engine:
    """Our engine; a process for each run, its own clock for the two phases."""

    name = "aima-engine"

    def __init__(self, program: Path, model: Path, threads: int) -> None:
        """UsageError when there is no such program."""
        if not os.access(program, os.X_OK):
            raise UsageError(
                "no engine program here",
                where=str(program),
                hint="`aimabuild build` makes one; or give --engine",
            )
        self.command = [str(program), "generate", "--model-dir", str(model), "--threads", str(threads)]

    def run(self, prompt: Sequence[int], count: int) -> Sample:
        """`count` greedy tokens after the prompt."""
        ids = ",".join(map(str, prompt))
        command = [*self.command, "--prompt-ids", ids, "--max-tokens", str(count), "--ignore-eos", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AimaError(f"the engine ended with {done.returncode}", why=done.stderr.strip()[-800:])
        result = json.loads(done.stdout)
        times = result["timings"]
        return Sample(
            result["token_ids"], times["prefill_ms"] / 1e3, times["decode_ms"] / 1e3, times["decode_tokens"]
        )

    def close(self) -> None:
        """Nothing stays open."""


class LlamaCpp:
    """The prebuilt llama.cpp library, resident in a worker process."""

    name = "llama.cpp"

    def __init__(self, command: Sequence[str], log: Path) -> None:
        """Start the worker and wait until it has loaded the model."""
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.facts = self._line()

    def _line(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            self.close()
            tail = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-8:]
            raise AimaError("llama.cpp's worker ended", where=str(self._log), why="\n    ".join(tail))
        value: dict[str, Any] = json.loads(line)
        return value

    def run(self, prompt: Sequence[int], count: int) -> Sample:
        """`count` greedy tokens after the prompt, from an empty cache."""
        request = {"prompt_ids": list(prompt), "max_tokens": count}
        if self._process.stdin:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        answer = self._line()
        return Sample(answer["token_ids"], answer["prefill_s"], answer["decode_s"], answer["decode_steps"])

    def close(self) -> None:
        """End the worker, whatever it is doing."""
        with self._process as process:
            if process.stdin:
                process.stdin.close()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()


class LlamaBench:
    """llama.cpp compiled for this processor, by its own benchmark program; it makes up its tokens itself."""

    name = "llama.cpp native"

    def __init__(self, program: Path, model: Path, threads: int) -> None:
        """Nothing starts before `run`."""
        self.command = [str(program), "-m", str(model), "-t", str(threads), "-r", "1", "-o", "json"]

    def run(self, prompt: Sequence[int], count: int) -> Sample:
        """One repetition of as many prompt tokens and steps, each after the program's own warm-up."""
        command = [*self.command, "-p", str(len(prompt)), "-n", str(count - 1)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AimaError(f"llama-bench ended with {done.returncode}", why=done.stderr.strip()[-800:])
        prefill, decode = json.loads(done.stdout)
        return Sample([], prefill["samples_ns"][0] / 1e9, decode["samples_ns"][0] / 1e9, count - 1)

    def close(self) -> None:
        """Nothing stays open."""


Program = Engine | LlamaCpp | LlamaBench


def random_prompt(count: int, seed: int) -> list[int]:
    """Ids that the tokenizer knows, the same in every run."""
    source = random.Random(seed)  # noqa: S311 - no secret
    return [source.randrange(VOCABULARY) for _ in range(count)]


def bytes_per_step(sizes: Sizes) -> int:
    """Weight bytes that one decoded token reads: everything but the embedding table, the draft head and the
    experts that the router leaves out (BF16)."""
    total = 0
    for tensor in tensors(sizes):
        if tensor.name.startswith("mtp.") or tensor.role == "embedding":
            continue
        share = sizes.num_experts_per_tok / sizes.num_experts if ".experts." in tensor.name else 1
        total += int(2 * tensor.count * share)
    return total


def measure(
    programs: Sequence[Program], options: argparse.Namespace, reporter: Reporter
) -> dict[str, list[Sample]]:
    """One run of each to warm up, then `rounds` rounds in which the programs take turns."""
    prompt = random_prompt(options.prompt_tokens, 0)
    count = options.decode_tokens + 1  # the first token comes from the prompt's own logits
    samples: dict[str, list[Sample]] = {program.name: [] for program in programs}
    for turn in range(options.rounds + 1):
        for program in programs if turn % 2 else reversed(programs):
            sample = program.run(prompt, count)
            name = f"round {turn}" if turn else "warm-up"
            prefill, decode = len(prompt) / sample.prefill_s, sample.steps / sample.decode_s
            reporter.line(f"  {name}, {program.name}: prefill {prefill:.1f} tok/s, decode {decode:.2f} tok/s")
            if turn:
                samples[program.name].append(sample)
    return samples


def agreement(engine: Engine, peer: LlamaCpp) -> dict[str, int]:
    """How far greedy decoding of short prompts runs the same way: two bf16 engines part at near-ties."""
    prompts, length, count = AGREEMENT
    first = same = 0
    for seed in range(1, prompts + 1):
        ours, theirs = (program.run(random_prompt(length, seed), count).tokens for program in (engine, peer))
        equal = next(
            (i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]), count
        )
        first += equal > 0
        same += equal
    return {
        "prompts": prompts,
        "prompt_tokens": length,
        "first_token_equal": first,
        "tokens_before_parting": same,
        "tokens_possible": prompts * count,
    }


def summary(
    samples: Sequence[Sample], prompt_tokens: int, step_bytes: int, bandwidth: float
) -> dict[str, Any]:
    """Medians of the rounds, with every round's figures beside them."""
    prefill = [prompt_tokens / sample.prefill_s for sample in samples]
    decode = [sample.steps / sample.decode_s for sample in samples]
    median = statistics.median(decode)
    return {
        "prefill_tokens_per_s": statistics.median(prefill),
        "decode_tokens_per_s": median,
        "decode_share_of_read_bandwidth": median * step_bytes / bandwidth,
        "prefill_rounds": prefill,
        "decode_rounds": decode,
    }


def report(
    samples: dict[str, list[Sample]], options: argparse.Namespace, facts: dict[str, Any]
) -> dict[str, Any]:
    """Everything measured, as the JSON that is printed or written."""
    step_bytes, bandwidth = bytes_per_step(setup.SIZES), facts["machine"]["read_bandwidth"]
    results = {
        name: summary(runs, options.prompt_tokens, step_bytes, bandwidth) for name, runs in samples.items()
    }
    ratios = {}
    if ours := results.get(Engine.name):
        ratios = {
            name: {
                phase: ours[f"{phase}_tokens_per_s"] / theirs[f"{phase}_tokens_per_s"]
                for phase in ("prefill", "decode")
            }
            for name, theirs in results.items()
            if name != Engine.name
        }
    settings = ("threads", "rounds", "prompt_tokens", "decode_tokens")
    return {
        "schema": SCHEMA,
        **facts,
        "model": {
            "parameters": sum(tensor.count for tensor in tensors(setup.SIZES)),
            "bytes_per_decoded_token": step_bytes,
        },
        "settings": {name: getattr(options, name) for name in settings},
        "results": results,
        "ratios": ratios,
    }


def show(outcome: dict[str, Any], reporter: Reporter) -> None:
    """The table for people."""
    machine, model = outcome["machine"], outcome["model"]
    reporter.result(
        f"{machine['name']}, {outcome['settings']['threads']} threads, {' '.join(machine['isa'])}; "
        f"reads {machine['read_bandwidth'] / 1e9:.1f} GB/s; "
        f"{model['bytes_per_decoded_token'] / 1e9:.2f} GB of weights per decoded token"
    )
    rows = []
    for name, result in outcome["results"].items():
        ratio = outcome["ratios"].get(name)
        rows.append(
            [
                name,
                f"{result['prefill_tokens_per_s']:.1f}",
                f"{result['decode_tokens_per_s']:.2f}",
                f"{100 * result['decode_share_of_read_bandwidth']:.0f}%",
                f"{ratio['prefill']:.2f}x" if ratio else "",
                f"{ratio['decode']:.2f}x" if ratio else "",
            ]
        )
    header = ["program", "prefill tok/s", "decode tok/s", "of bandwidth", "ours: prefill", "ours: decode"]
    reporter.table(header, rows, right=frozenset(header[1:]))
    if met := outcome.get("agreement"):
        reporter.result(agreement_text(met))


def agreement_text(met: dict[str, int]) -> str:
    """The agreement as a sentence."""
    return (
        f"greedy: first token equal for {met['first_token_equal']} of {met['prompts']} prompts, "
        f"{met['tokens_before_parting']} of {met['tokens_possible']} tokens before the first difference"
    )


def check_targets(outcome: dict[str, Any], options: argparse.Namespace) -> None:
    """CheckFailedError when a ratio that was asked for is missed."""
    for phase in ("prefill", "decode"):
        wanted, reached = getattr(options, f"require_{phase}"), outcome["ratios"].get(LlamaCpp.name, {})
        if wanted is not None and reached.get(phase, 0.0) < wanted:
            raise CheckFailedError(
                f"{phase} is {reached.get(phase, 0.0):.2f}x llama.cpp, {wanted:g}x is wanted"
            )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--work-dir",
        type=Path,
        required=True,
        help="8 GB: environment, checkpoint, GGUF; kept for the next run",
    )
    add(
        "--engine",
        type=Path,
        default=setup.ROOT / "build/host-cpu/libexec/aima-engine.real",
        help="our program",
    )
    add("--peer-only", action="store_true", help="measure llama.cpp alone")
    add(
        "--native-peer",
        action="store_true",
        help="also llama.cpp compiled here for this processor (needs c++)",
    )
    add("--jobs", type=int, default=2, help="compiles at a time for --native-peer")
    add("--threads", type=int, default=2)
    add("--rounds", type=int, default=5)
    add("--prompt-tokens", type=int, default=512)
    add("--decode-tokens", type=int, default=64)
    add("--json", type=Path, metavar="FILE", help="write all figures there")
    add("--require-prefill", type=float, metavar="RATIO", help="exit 3 below this ratio to llama.cpp")
    add("--require-decode", type=float, metavar="RATIO", help="exit 3 below this ratio to llama.cpp")
    return parser.parse_args(arguments)


def prepare(work: setup.Work, options: argparse.Namespace, reporter: Reporter) -> None:
    """Make what the work folder lacks."""
    work.folder.mkdir(parents=True, exist_ok=True)
    setup.install_peers(work, reporter)
    setup.write_model(work, reporter)
    setup.convert(work, reporter)
    if options.native_peer:
        setup.build_llama_bench(work, reporter, options.jobs)


def compare(options: argparse.Namespace, reporter: Reporter) -> dict[str, Any]:
    """Prepare, measure, and return the report."""
    work = setup.Work(options.work_dir.absolute())
    engine = None if options.peer_only else Engine(options.engine, work.model, options.threads)
    prepare(work, options, reporter)
    load = load_average()
    if load > 0.5:
        reporter.warn(f"other work is running here (load {load:.1f}): the figures will be low and uneven")
    machine = {**processor(), "load_average": load, "read_bandwidth": read_bandwidth(options.threads)}
    room = options.prompt_tokens + options.decode_tokens + 1
    shape = [str(value) for value in (options.threads, room, options.prompt_tokens, VOCABULARY)]
    command = setup.worker_command(work, reporter, [str(work.gguf), *shape])
    peer = LlamaCpp(command, work.folder / "logs/worker.log")
    programs: list[Program] = [engine, peer] if engine else [peer]
    if options.native_peer:
        programs.append(LlamaBench(work.llama_bench, work.gguf, options.threads))
    try:
        facts: dict[str, Any] = {"machine": machine, "peer": peer.facts}
        if engine:
            with reporter.step("greedy agreement"):
                facts["agreement"] = agreement(engine, peer)
            reporter.line(f"  {agreement_text(facts['agreement'])}")
        samples = measure(programs, options, reporter)
    finally:
        peer.close()
    return report(samples, options, facts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; exit codes as everywhere: 0, 1 failed, 2 usage, 3 a required ratio was missed."""
    options, reporter = parse(arguments), Reporter()
    try:
        outcome = compare(options, reporter)
        show(outcome, reporter)
        if options.json:
            write_text(options.json, json.dumps(outcome, indent=1) + "\n")
        check_targets(outcome, options)
    except AimaError as error:
        reporter.error(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
