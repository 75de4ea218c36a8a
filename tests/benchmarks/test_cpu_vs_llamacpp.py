"""The arithmetic of the benchmark, and what it does with programs that fail."""

from __future__ import annotations

import json
import re
from pathlib import Path

import cpu_vs_llamacpp as bench
import llamacpp_setup as setup
import machine_facts
import pytest
from checkpoint_layout import Sizes

from aimabuild.base.errors import AimaError, CheckFailedError, UsageError


def program(folder: Path, text: str) -> Path:
    """An executable script."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def sample(prefill_s: float, decode_s: float) -> bench.Sample:
    return bench.Sample([1], prefill_s, decode_s, 64)


def outcome(ours: list[bench.Sample], theirs: list[bench.Sample]) -> dict[str, object]:
    options = bench.parse(["--work-dir", "unused"])
    facts = {"machine": {"read_bandwidth": 20e9}}
    return bench.report({bench.Engine.name: ours, bench.LlamaCpp.name: theirs}, options, facts)


def test_bytes_of_a_step_match_the_published_model() -> None:
    assert bench.bytes_per_step(Sizes()) == 2 * 2_946_429_568


def test_the_benchmark_model_has_the_stated_size() -> None:
    assert sum(tensor.count for tensor in bench.tensors(setup.SIZES)) == 1_791_263_360
    assert bench.bytes_per_step(setup.SIZES) == pytest.approx(1.98e9, rel=0.01)


def test_ratios_are_of_medians_and_above_one_when_ours_is_faster() -> None:
    ours = [sample(1.0, 4.0), sample(9.0, 40.0), sample(2.0, 8.0)]
    theirs = [sample(4.0, 8.0), sample(4.0, 8.0), sample(1.0, 1.0)]
    made = outcome(ours, theirs)
    results, ratios = made["results"], made["ratios"]
    assert results["aima-engine"]["prefill_tokens_per_s"] == 256
    assert results["aima-engine"]["decode_tokens_per_s"] == 8
    assert ratios == {"aima-engine": {"llama.cpp": {"prefill": 2.0, "decode": 1.0}}}
    share = results["aima-engine"]["decode_share_of_read_bandwidth"]
    assert share == pytest.approx(8 * bench.bytes_per_step(setup.SIZES) / 20e9)


def test_every_engine_of_the_run_is_compared() -> None:
    options = bench.parse(["--work-dir", "w", "--isa", "avx2", "--isa", "sse2", "--require-prefill", "1.5"])
    assert options.isa == ["avx2", "sse2"]
    samples = {
        "aima-engine avx2": [sample(1.0, 1.0)],
        "aima-engine sse2": [sample(2.0, 1.0)],
        bench.LlamaCpp.name: [sample(2.0, 2.0)],
    }
    made = bench.report(samples, options, {"machine": {"read_bandwidth": 20e9}})
    assert made["ratios"]["aima-engine avx2"]["llama.cpp"] == {"prefill": 2.0, "decode": 2.0}
    with pytest.raises(CheckFailedError, match=r"aima-engine sse2: prefill is 1\.00x"):
        bench.check_targets(made, options)


def test_a_missed_ratio_is_a_failed_check() -> None:
    made = outcome([sample(1.0, 4.0)], [sample(1.0, 4.0)])
    options = bench.parse(["--work-dir", "w", "--require-decode", "1.3"])
    with pytest.raises(CheckFailedError, match=r"decode is 1\.00x"):
        bench.check_targets(made, options)
    bench.check_targets(made, bench.parse(["--work-dir", "w", "--require-decode", "1.0"]))


def test_engine_times_come_from_its_own_report(tmp_path: Path) -> None:
    report = {
        "token_ids": [7, 8, 9],
        "device_detail": "a processor, avx2, 2 threads on processors 0 and 1",
        "timings": {"prefill_ms": 250.0, "decode_ms": 500.0, "decode_tokens": 2, "load_ms": 9e9},
    }
    path = program(tmp_path, f"echo \"$@\" > {tmp_path}/seen\ncat <<'END'\n{json.dumps(report)}\nEND")
    engine = bench.Engine(path, tmp_path / "model", 2, "avx2")
    got = engine.run([5, 6], 3)
    assert engine.command[-2:] == ["--isa", "avx2"]
    assert engine.detail == "a processor, avx2, 2 threads on processors 0 and 1"
    assert got == bench.Sample([7, 8, 9], 0.25, 0.5, 2)
    seen = (tmp_path / "seen").read_text()
    assert "--prompt-ids 5,6 --max-tokens 3 --ignore-eos --json" in seen
    assert "--threads 2" in seen


def test_a_failing_engine_is_reported_with_its_words(tmp_path: Path) -> None:
    path = program(tmp_path, "echo 'no such folder' >&2; exit 2")
    with pytest.raises(AimaError, match="no such folder"):
        bench.Engine(path, tmp_path, 2).run([1], 1)
    with pytest.raises(UsageError):
        bench.Engine(tmp_path / "absent", tmp_path, 2)


def test_a_worker_that_ends_is_reported_with_its_words(tmp_path: Path) -> None:
    path = program(tmp_path, "echo 'cannot load' >&2")
    with pytest.raises(AimaError, match="cannot load"):
        bench.LlamaCpp([str(path)], tmp_path / "log")


def test_agreement_counts_up_to_the_first_difference() -> None:
    class Fixed:
        def __init__(self, parts_at: int) -> None:
            self.parts_at = parts_at

        def run(self, _prompt: list[int], count: int) -> bench.Sample:
            tokens = [i if i < self.parts_at else -i - 1 for i in range(count)]
            return bench.Sample(tokens, 1.0, 1.0, count - 1)

    met = bench.agreement(Fixed(99), Fixed(3))
    assert met["first_token_equal"] == met["prompts"]
    assert met["tokens_before_parting"] == 3 * met["prompts"]
    assert bench.agreement(Fixed(99), Fixed(0))["first_token_equal"] == 0


def test_every_requirement_is_pinned_by_hash() -> None:
    lines = setup.REQUIREMENTS.read_text().replace("\\\n", " ").splitlines()
    lines = [line for line in lines if line and not line.startswith("#")]
    assert len(lines) > 20
    for line in lines:
        assert re.fullmatch(r"[a-z0-9-]+==\S+\s+--hash=sha256:[0-9a-f]{64}", line), line


def test_read_bandwidth_is_positive_and_affinity_of_the_caller_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_facts, "_REGION", 1 << 20)
    before = machine_facts.os.sched_getaffinity(0)
    assert machine_facts.read_bandwidth(2) > 1e6
    assert machine_facts.os.sched_getaffinity(0) == before
