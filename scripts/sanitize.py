"""`make sanitize`: the engine's unit tests and a run of the engine itself under clang's sanitizers.

AddressSanitizer and UndefinedBehaviorSanitizer look at everything, ThreadSanitizer at what runs on several
threads. `--address` or `--thread` does one of the two. Where the host has no clang 19 it says so and exits 0:
skipped, not passed. Any finding or failing test exits 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from host_clang import ADDRESS, BUILD_INFO, ROOT, THREAD, Build, Program, make, skipped, sources

from aimabuild.base.errors import AimaError
from aimabuild.base.reporter import Reporter

TINY = ROOT / "tests" / "data" / "tiny"
MAIN = "native/src/cli/main.cpp"
# Tests of code that starts threads or is called from several.
THREADED = (
    "base_test.cpp",
    "cpu_attention_test.cpp",
    "cpu_device_test.cpp",
    "cpu_moe_test.cpp",
    "cpu_ops_test.cpp",
    "cpu_panels_test.cpp",
    "engine_test.cpp",
    "text_tokenizer_test.cpp",
)


def address_build() -> Build:
    """All tests and the engine, with ASan and UBSan."""
    engine = (BUILD_INFO, *sources("native/src"))
    return Build(
        "address",
        ADDRESS,
        (
            Program("native-tests", (*engine, *sources("native/tests"), "native/tests/main.cpp")),
            Program("aima-engine", (*engine, MAIN)),
        ),
        counted=True,
    )


def thread_build() -> Build:
    """The tests of THREADED and the engine, with TSan."""
    engine = (BUILD_INFO, *sources("native/src"))
    tests = tuple(f"native/tests/{name}" for name in ("main.cpp", *THREADED))
    return Build(
        "thread",
        THREAD,
        (Program("native-tests", (*engine, *tests)), Program("aima-engine", (*engine, MAIN))),
    )


def check(build: Build, reporter: Reporter) -> bool:
    """Build, run the tests, then the engine on the tiny checkpoint in both kinds of arithmetic."""
    if skipped(reporter, f"the {build.name} sanitizers' run is", build.sanitizers):
        return True
    if not make(build, reporter):
        return False
    with reporter.step(f"unit tests ({build.name})"):
        if build.run("native-tests") != 0:
            return False
    prompt = ",".join(str(7 * i % 512) for i in range(200))  # several chunks and passes, and a rest
    command: list[str | Path] = ["generate", "--model-dir", TINY, "--prompt-ids", prompt, "--ignore-eos"]
    for math in ("f32", "bf16"):
        options = ["--math", math, "--threads", "3", "--context-tokens", "64", "--max-tokens", "8"]
        with reporter.step(f"engine, --math {math} ({build.name})"):
            if build.run("aima-engine", [*command, *options]) != 0:
                return False
    return True


def main() -> int:
    """Build and run what was asked for; 0 without a finding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--address", action="store_true", help="ASan and UBSan alone")
    only.add_argument("--thread", action="store_true", help="TSan alone")
    options = parser.parse_args()
    builds = [] if options.thread else [address_build()]
    builds += [] if options.address else [thread_build()]
    reporter = Reporter()
    try:
        results = [check(build, reporter) for build in builds]
    except AimaError as error:
        reporter.error(error)
        return error.exit_code
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
