"""Wrong requests end in one message and the documented exit code, and write nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from enginetool import run_engine

DATA = Path(__file__).resolve().parents[1] / "data" / "tiny"


def refused(code: int, *arguments: str | Path) -> str:
    done = run_engine("generate", *arguments)
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    return done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--prompt-ids", "1,2,512"], "512"),
        (["--prompt-ids", "1,-2"], "-2"),
        (["--prompt-ids", "1,x"], "x"),
        (["--prompt-ids", ""], "the prompt is empty"),
        (["--prompt", "hello"], "tokenizer.json"),
        (["--prompt-ids", "1", "--max-tokens", "262144"], "262144"),
        (["--prompt-ids", "1", "--max-tokens", "0"], "--max-tokens"),
        (["--prompt-ids", "1", "--math", "f16"], "f16"),
        (["--prompt-ids", "1", "--device", "tpu"], "tpu"),
        (["--prompt-ids", "1", "--max-token", "4"], "--max-tokens"),
    ],
)
def test_wrong_requests(options: list[str], says: str) -> None:
    defaults = [] if "--max-tokens" in options or "--max-token" in options else ["--max-tokens", "4"]
    assert says in refused(2, "--model-dir", DATA, *options, *defaults)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "error: --model-dir and --prompt (or --prompt-ids) are required\n"),
        (["--model-dir", "x"], "error: --prompt (or --prompt-ids) is required\n"),
        (["--prompt", "x"], "error: --model-dir is required\n"),
        (["--prompt", "x", "--prompt-ids", "1"], "error: give --prompt or --prompt-ids, not both\n"),
        (
            ["--model-dir", "x", "--prompt", "x", "--device", "gpu"],
            "error: --device cannot be `gpu`\n  why: this version computes on the CPU only: cpu\n",
        ),
    ],
)
def test_what_is_missing_or_too_much_is_said_at_once(options: list[str], says: str) -> None:
    assert refused(2, *options).startswith(says)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    missing = tmp_path / "nothing"
    assert str(missing) in refused(2, "--model-dir", missing, "--prompt-ids", "1", "--max-tokens", "1")


def copy_model(folder: Path) -> Path:
    model = folder / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(DATA / name, model / name)
    return model


def test_a_truncated_weights_file_is_named(tmp_path: Path) -> None:
    model = copy_model(tmp_path)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    out = tmp_path / "logits.npy"
    asked = ["--prompt-ids", "1", "--max-tokens", "1", "--logits-out", out]
    assert "model.safetensors" in refused(2, "--model-dir", model, *asked)
    assert not out.exists()


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    model = copy_model(tmp_path)
    config = json.loads((model / "config.json").read_text())
    config["architectures"] = ["LlamaForCausalLM"]
    config["model_type"] = "llama"
    (model / "config.json").write_text(json.dumps(config))
    assert "llama" in refused(2, "--model-dir", model, "--prompt-ids", "1", "--max-tokens", "1").lower()
