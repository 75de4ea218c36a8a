"""`make fuzz SECONDS=30`: run the fuzzers of native/fuzz, each for so many seconds, under ASan and UBSan.

First inputs are made from the tests' data; what a run finds worth keeping stays in build/fuzz/NAME/corpus,
and an input that crashes, hangs or breaks a property in build/fuzz/NAME. Where the host has no clang 19 it
says so and exits 0: skipped, not passed. Any finding exits 1.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from fuzz_seeds import SEEDS, dictionary
from host_clang import ADDRESS, FUZZER, ROOT, Build, Program, environment, make, skipped, sources

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.base.reporter import Reporter

WORK = ROOT / "build" / "fuzz"
# One input must take less than so many seconds, and the process less than so many MiB.
SLOWEST = 10
MEMORY = 3072
LONGEST = {"tokenizer": 16_384, "safetensors": 4_096, "tokenizer_file": 16_384, "chat": 8_192}
TAIL = 4000


@dataclass(frozen=True)
class Outcome:
    """What one fuzzer did: inputs run, edges of the program reached, inputs kept, slowest input."""

    fuzzer: str
    executions: int
    per_second: int
    edges: int
    corpus: int
    slowest_seconds: int
    peak_mib: int
    finding: str


def fuzz_build(names: list[str]) -> Build:
    """One program for each fuzzer; their objects are those of `make sanitize`."""
    engine = sources("native/src/base", "native/src/model", "native/src/text")
    programs = (Program(f"fuzz_{name}", (*engine, f"native/fuzz/{name}.cpp"), FUZZER) for name in names)
    return Build("address", ADDRESS, tuple(programs), counted=True)


def prepare(name: str) -> tuple[Path, Path]:
    """The folder of a fuzzer with fresh seeds and dictionary; its corpus stays."""
    folder = WORK / name
    seeds = folder / "seeds"
    shutil.rmtree(seeds, ignore_errors=True)
    seeds.mkdir(parents=True)
    (folder / "corpus").mkdir(exist_ok=True)
    for seed in SEEDS[name]():
        (seeds / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    (folder / "words").write_text(dictionary(name), encoding="ascii")
    return folder, seeds


def statistic(text: str, name: str) -> int:
    """A figure of libFuzzer's last lines; 0 when it is not there."""
    found = re.findall(rf"^stat::{name}:\s*(\d+)", text, re.MULTILINE)
    return int(found[-1]) if found else 0


def run(build: Build, name: str, seconds: int) -> tuple[Outcome, str]:
    """Run one fuzzer; its outcome and, when it found something, the end of what it printed."""
    folder, seeds = prepare(name)
    command: list[str | Path] = [
        build.program(f"fuzz_{name}"),
        folder / "corpus",
        seeds,
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST.get(name, 8192)}",
        f"-timeout={SLOWEST}",
        f"-rss_limit_mb={MEMORY}",
        f"-dict={folder / 'words'}",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
        "-use_value_profile=1",
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(),
        check=False,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    edges = re.findall(r"\bcov: (\d+)", done.stderr)
    found = re.search(r"Test unit written to (\S+)", done.stderr)
    finding = "" if done.returncode == 0 else found[1] if found else f"exit {done.returncode}"
    outcome = Outcome(
        fuzzer=name,
        executions=statistic(done.stderr, "number_of_executed_units"),
        per_second=statistic(done.stderr, "average_exec_per_sec"),
        edges=int(edges[-1]) if edges else 0,
        corpus=sum(1 for _ in (folder / "corpus").iterdir()),
        slowest_seconds=statistic(done.stderr, "slowest_unit_time_sec"),
        peak_mib=statistic(done.stderr, "peak_rss_mb"),
        finding=finding,
    )
    return outcome, done.stderr[-TAIL:] if finding else ""


def report(outcomes: list[Outcome], seconds: int, reporter: Reporter, *, as_json: bool) -> None:
    """The outcomes as a table or as JSON."""
    if as_json:
        fuzzers = [asdict(outcome) for outcome in outcomes]
        reporter.json({"schema": "aimabuild/fuzz/v1", "seconds": seconds, "fuzzers": fuzzers})
        return
    header = list(asdict(outcomes[0]))
    rows = [[str(value) for value in asdict(outcome).values()] for outcome in outcomes]
    reporter.table(header, rows, right=frozenset(header[1:-1]))


def main() -> int:
    """Build and run; 0 when nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fuzzers", nargs="*", help=f"of {', '.join(SEEDS)} (default: all)")
    parser.add_argument("--seconds", type=int, default=30, help="for each fuzzer")
    parser.add_argument("--jobs", type=int, default=1, help="fuzzers at a time")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    options = parser.parse_args()
    names = options.fuzzers or list(SEEDS)
    reporter = Reporter()
    try:
        if unknown := [name for name in names if name not in SEEDS]:
            raise UsageError(f"there is no fuzzer `{unknown[0]}`", hint=f"name some of {', '.join(SEEDS)}")
        if skipped(reporter, "fuzzing is", f"{ADDRESS} {FUZZER}"):
            return 0
        build = fuzz_build(names)
        if not make(build, reporter):
            return 1
    except AimaError as error:
        reporter.error(error)
        return error.exit_code
    with (
        reporter.step(f"{len(names)} fuzzers, {options.seconds} s each"),
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        results = list(pool.map(lambda name: run(build, name, options.seconds), names))
    for outcome, end in results:
        if outcome.finding:
            reporter.line(f"{outcome.fuzzer}: {outcome.finding}\n{end}")
    report([outcome for outcome, _ in results], options.seconds, reporter, as_json=options.json)
    return 1 if any(outcome.finding for outcome, _ in results) else 0


if __name__ == "__main__":
    sys.exit(main())
