"""What the engine prints: streams, JSON, help, facts about itself, and what happens when nobody reads."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from enginetool import find_engine, run_engine

DATA = Path(__file__).resolve().parents[1] / "data" / "tiny"
REQUEST = ["generate", "--model-dir", DATA, "--prompt-ids", "5,17,300", "--ignore-eos"]


def test_without_json_ids_stream_to_stdout_and_times_to_stderr() -> None:
    plain = run_engine(*REQUEST, "--max-tokens", "6")
    answer = json.loads(run_engine(*REQUEST, "--max-tokens", "6", "--json").stdout)
    assert plain.returncode == 0
    assert plain.stdout == ",".join(str(token) for token in answer["token_ids"]) + "\n"
    assert "prefill 3 tokens" in plain.stderr
    assert "decode 5 steps" in plain.stderr


def test_json_says_what_ran() -> None:
    answer = json.loads(run_engine(*REQUEST, "--max-tokens", "2", "--math", "f32", "--json").stdout)
    assert answer["prompt_ids"] == [5, 17, 300]
    assert answer["finish_reason"] == "length"
    assert (answer["device"], answer["math"]) == ("cpu", "f32")
    timings = answer["timings"]
    assert (timings["prefill_tokens"], timings["decode_tokens"]) == (3, 1)
    assert all(timings[name] > 0 for name in ("load_ms", "prefill_ms", "decode_ms"))
    for phase in ("prefill_ms", "decode_ms"):
        spent = [joint[phase] for joint in timings["joints"].values()]
        assert len(spent) == 8
        assert all(part > 0 for part in spent)
        assert sum(spent) <= timings[phase]
    assert ", 1 thread" in run_engine(*REQUEST, "--max-tokens", "1", "--threads", "1").stderr


def test_the_instruction_set_can_be_chosen_among_those_of_the_processor() -> None:
    report = json.loads(run_engine("doctor", "--json").stdout)
    names = next(check for check in report["checks"] if check["name"] == "cpu")["details"]["isa"]
    known = json.loads(run_engine("--build-info").stdout)["cpu_instruction_sets"]
    assert set(names) <= set(known)
    assert "sse2" in names
    for name in names:
        answer = json.loads(run_engine(*REQUEST, "--max-tokens", "1", "--isa", name, "--json").stdout)
        assert f", {name}, " in answer["device_detail"]
    refused = run_engine(*REQUEST, "--max-tokens", "1", "--isa", "sse9")
    assert refused.returncode == 2
    assert "no instruction set 'sse9'" in refused.stderr


def test_a_stop_token_ends_the_reply(tmp_path: Path) -> None:
    free = json.loads(run_engine(*REQUEST, "--max-tokens", "8", "--json").stdout)["token_ids"]
    stop = free[4]
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).symlink_to(DATA / name)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [stop]}))
    asked = ["generate", "--model-dir", folder, "--prompt-ids", "5,17,300", "--max-tokens", "8", "--json"]
    answer = json.loads(run_engine(*asked).stdout)
    assert answer["token_ids"] == free[: free.index(stop) + 1]
    assert answer["finish_reason"] == "stop"
    ignoring = json.loads(run_engine(*asked, "--ignore-eos").stdout)
    assert ignoring["token_ids"] == free


def test_a_closed_pipe_is_an_error_not_a_signal() -> None:
    process = subprocess.Popen(
        [find_engine(), *REQUEST, "--max-tokens", "200"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    message = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait() == 1
    assert "\nerror: stdout: the output cannot be written" in message  # behind what runs, and its memory


def test_logits_that_cannot_be_written_leave_nothing(tmp_path: Path) -> None:
    missing = tmp_path / "no folder" / "l.npy"
    done = run_engine(*REQUEST, "--max-tokens", "1", "--logits-out", missing)
    assert done.returncode == 1
    assert str(missing) in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_version_and_build_info() -> None:
    info = json.loads(run_engine("--build-info").stdout)
    assert info["schema"] == "aima/build-info/v1"
    assert run_engine("--version").stdout == f"aima-engine {info['version']}\n"
    assert info["compiler"].startswith("clang ")
    assert {library["name"] for library in info["libraries"]} >= {"Boost", "xxHash"}
    assert info["kernels"] is None or info["kernels"]["count"] > 0


@pytest.mark.parametrize("command", ["generate", "doctor"])
def test_help_lists_every_option(command: str) -> None:
    done = run_engine(command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: aima-engine {command} ")
    assert "--json" in done.stdout
    assert command in run_engine("--help").stdout
    assert run_engine(command, "-h").stdout == done.stdout


def test_the_overview_lists_what_the_launcher_does_too() -> None:
    overview = run_engine("--help").stdout
    assert "--verify-bundle" in overview
    assert run_engine("-h").stdout == overview
    done = run_engine("--verify-bundle")
    assert done.returncode == 2
    assert "bin/aima-engine --verify-bundle" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["generte"], "did you mean `aima-engine generate`?"),
        (["--verson"], "did you mean `aima-engine --version`?"),
        (["generate", "--model-dri", "x"], "did you mean --model-dir?"),
        (["--verify-bundel"], "did you mean `aima-engine --verify-bundle`?"),
        ([], "`aima-engine --help` lists them"),
    ],
)
def test_misspelt_words_are_suggested(arguments: list[str], hint: str) -> None:
    done = run_engine(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert hint in done.stderr
