"""The engine's CPU device beside llama.cpp, on the same weights, in the same run.

    .venv/bin/python benchmarks/cpu_vs_llamacpp.py --work-dir DIR [--engine FILE] [--native-peer]

Prefill of 512 tokens and decoding of 64 more, BF16 weights, two threads, medians of five rounds. In every
round each program runs once, and the order turns round from one round to the next. benchmarks/README.md says
what is made in the work folder and how to read the figures.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))

import llamacpp_setup as setup
from checkpoint_layout import Sizes, tensors
from machine_facts import load_average, processor, read_bandwidth
from programs import Engine, LlamaBench, LlamaCpp, Program, Sample

from aimabuild.base.errors import AimaError, CheckFailedError
from aimabuild.base.files import write_text
from aimabuild.base.reporter import Reporter

ENGINE = setup.ROOT / "build/host-cpu/libexec/aima-engine.real"
SCHEMA = "aimabuild/benchmark-llamacpp/v2"
VOCABULARY = (
    248077  # ids the tokenizer knows; the rows after them are padding, never chosen by either program
)
AGREEMENT = (8, 24, 8)  # prompts, tokens of each, greedy tokens compared


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
    ours = [name for name in results if name.startswith(Engine.name)]
    ratios = {
        name: {
            peer: {
                phase: results[name][f"{phase}_tokens_per_s"] / theirs[f"{phase}_tokens_per_s"]
                for phase in ("prefill", "decode")
            }
            for peer, theirs in results.items()
            if peer not in ours
        }
        for name in ours
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
    reporter.result(f"load before the run: {machine['load_average']:.1f}")
    for engine in outcome.get("engines", ()):
        reporter.result(f"{engine['name']}: {engine['device']}")
    peers = [name for name in outcome["results"] if name not in outcome["ratios"]]
    rows = []
    for name, result in outcome["results"].items():
        ratios = outcome["ratios"].get(name)
        rows.append(
            [
                name,
                f"{result['prefill_tokens_per_s']:.1f}",
                f"{result['decode_tokens_per_s']:.2f}",
                f"{100 * result['decode_share_of_read_bandwidth']:.0f}%",
                *(
                    f"{ratios[peer]['prefill']:.2f}x, {ratios[peer]['decode']:.2f}x" if ratios else ""
                    for peer in peers
                ),
            ]
        )
    header = ["program", "prefill tok/s", "decode tok/s", "of bandwidth", *(f"by {peer}" for peer in peers)]
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
        wanted = getattr(options, f"require_{phase}")
        for name, peers in outcome["ratios"].items():
            reached = peers.get(LlamaCpp.name, {}).get(phase, 0.0)
            if wanted is not None and reached < wanted:
                raise CheckFailedError(f"{name}: {phase} is {reached:.2f}x llama.cpp, {wanted:g}x is wanted")


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
    add(
        "--isa",
        action="append",
        metavar="NAME",
        help="our instruction set (default: the best there is); each one given is an engine in the run",
    )
    add(
        "--packages",
        type=Path,
        metavar="DIR",
        help="the peers' packages, made by `pip install --target`: then nothing is downloaded",
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
    work = setup.Work(options.work_dir.absolute(), options.packages and options.packages.absolute())
    engines = (
        []
        if options.peer_only
        else [Engine(options.engine, work.model, options.threads, isa) for isa in options.isa or [None]]
    )
    prepare(work, options, reporter)
    load = load_average()
    if load > 0.5:
        reporter.warn(f"other work is running here (load {load:.1f}): the figures will be low and uneven")
    machine = {**processor(), "load_average": load, "read_bandwidth": read_bandwidth(options.threads)}
    room = options.prompt_tokens + options.decode_tokens + 1
    shape = [str(value) for value in (options.threads, room, options.prompt_tokens, VOCABULARY)]
    command = setup.worker_command(work, reporter, [str(work.gguf), *shape])
    peer = LlamaCpp(command, work.folder / "logs/worker.log", work.environment)
    programs: list[Program] = [*engines, peer]
    if options.native_peer:
        programs.append(LlamaBench(work.llama_bench, work.gguf, options.threads))
    try:
        facts: dict[str, Any] = {"machine": machine, "peer": peer.facts}
        if engines:
            with reporter.step("greedy agreement"):
                facts["agreement"] = agreement(engines[0], peer)
            reporter.line(f"  {agreement_text(facts['agreement'])}")
        samples = measure(programs, options, reporter)
    finally:
        peer.close()
    if engines:
        facts["engines"] = [{"name": engine.name, "device": engine.detail} for engine in engines]
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
