"""First inputs of the fuzzers, what is read from libFuzzer's output, and the skip without a compiler."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import fuzz
import fuzz_seeds
import host_clang
import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_fuzzer_has_seeds() -> None:
    programs = {path.stem for path in (ROOT / "native" / "fuzz").glob("*.cpp")}
    assert programs == set(fuzz_seeds.SEEDS)


@pytest.mark.parametrize("name", sorted(fuzz_seeds.SEEDS))
def test_seeds_differ_and_fit(name: str) -> None:
    seeds = list(fuzz_seeds.SEEDS[name]())
    assert len(set(seeds)) >= 3
    assert max(map(len, seeds)) <= fuzz.LONGEST.get(name, 8192)
    assert seeds == list(fuzz_seeds.SEEDS[name]()), "the same every time"


@pytest.mark.parametrize("name", sorted(fuzz_seeds.SEEDS))
def test_dictionaries_are_libfuzzers(name: str) -> None:
    lines = fuzz_seeds.dictionary(name).splitlines()
    assert len(lines) >= 4
    for line in lines:
        assert re.fullmatch(r'"([ -!#-\[\]-~]|\\x[0-9a-f]{2})+"', line), line


def test_seeds_of_json_are_json() -> None:
    for name in ("config", "generation_config"):
        for seed in fuzz_seeds.SEEDS[name]():
            json.loads(seed)


def test_statistics() -> None:
    text = "#9 cov: 12 ft: 3\nstat::number_of_executed_units: 7\nstat::peak_rss_mb:   41\n"
    assert fuzz.statistic(text, "number_of_executed_units") == 7
    assert fuzz.statistic(text, "peak_rss_mb") == 41
    assert fuzz.statistic(text, "slowest_unit_time_sec") == 0


@pytest.mark.parametrize("script", ["sanitize.py", "fuzz.py"])
def test_without_the_compiler_it_is_skipped_and_said(script: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "skipped, not passed: clang++-19" in done.stderr
    assert "Debian: clang-19" in done.stderr


def test_an_unknown_fuzzer_is_refused() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, ROOT / "scripts" / "fuzz.py", "nothing"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no fuzzer `nothing`" in done.stderr


def test_objects_are_shared_and_carry_their_flags(tmp_path: Path) -> None:
    build = host_clang.Build(
        "x",
        host_clang.ADDRESS,
        (
            host_clang.Program("a", ("native/src/text/bpe.cpp", "native/src/device/cpu/isa_avx2.cpp")),
            host_clang.Program("b", ("native/src/text/bpe.cpp",), "-fsanitize=fuzzer"),
        ),
        counted=True,
    )
    toolchain = type("Paths", (), {"native_sysroot": tmp_path, "boost_include": tmp_path})()
    text = host_clang.ninja_file(build, toolchain)
    assert text.count(": cxx native/src/text/bpe.cpp") == 1
    flags = dict(re.findall(r"build (\S+): \w+ .*\n  flags = (.*)", text))
    assert flags["build/sanitize/x/native_src_text_bpe.cpp.o"] == "-fsanitize=fuzzer-no-link"
    assert flags["build/sanitize/x/native_src_device_cpu_isa_avx2.cpp.o"] == "-mavx2 -mfma -mf16c"
    assert flags["build/sanitize/x/b"] == "-fsanitize=fuzzer"
