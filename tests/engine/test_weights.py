"""Manifests, published hashes and the load's report, from the command line."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from enginetool import run_engine

DATA = Path(__file__).resolve().parents[1] / "data" / "tiny"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(DATA / name, folder)
    return folder


def probe(model: Path, *options: str | Path) -> dict[str, Any]:
    done = run_engine("weights-probe", "--model-dir", model, "--json", *options)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def generate(model: Path, *options: str | Path) -> Any:
    return run_engine(
        "generate", "--model-dir", model, "--prompt-ids", "5,17", "--max-tokens", "2", "--json", *options
    )


def damage(model: Path, tensor: str = "lm_head.weight") -> None:
    """The lowest bit of the tensor's last element."""
    weights = model / "model.safetensors"
    data = bytearray(weights.read_bytes())
    (length,) = struct.unpack_from("<Q", data)
    begin, end = json.loads(data[8 : 8 + length])[tensor]["data_offsets"]
    assert begin < end
    data[8 + length + end - 2] ^= 1
    weights.write_bytes(data)


def test_the_probe_lists_every_tensor_and_file(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "manifest.json"
    report = probe(model, "--sha256", "--out", out)
    size = (model / "model.safetensors").stat().st_size
    sha256 = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    assert report["schema"] == "aima/weights-manifest/v1"
    assert report["shards"] == {"model.safetensors": {"bytes": size, "sha256": sha256}}
    head = report["tensors"]["lm_head.weight"]
    assert (head["dtype"], head["shape"], head["bytes"]) == ("BF16", [512, 64], 65536)
    assert sum(tensor["bytes"] for tensor in report["tensors"].values()) == report["load"]["bytes"]
    assert report["load"]["read_bytes"] == report["load"]["bytes"] > 0
    written = json.loads(out.read_text())
    assert written == {key: report[key] for key in ("schema", "shards", "tensors")}
    assert probe(model, "--load-threads", "1")["tensors"] == report["tensors"]


@pytest.mark.parametrize("method", [[], ["--mmap"]])
def test_a_damaged_tensor_is_found_before_the_first_token(model: Path, method: list[str]) -> None:
    manifest = model / "aima-weights.json"
    probe(model, "--out", manifest)
    good = generate(model, *method)
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["load"]["manifest"] == str(manifest)
    damage(model)
    bad = generate(model, *method)
    assert (bad.returncode, bad.stdout) == (3, "")
    assert "the tensor `lm_head.weight` is not the manifest's" in bad.stderr
    assert bad.stderr.count("error: ") == 1


def test_a_named_manifest_is_enforced(model: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "elsewhere.json"
    probe(model, "--out", manifest)
    assert generate(model, "--expect-manifest", manifest).returncode == 0
    assert probe(model, "--expect-manifest", manifest)["load"]["bytes"] > 0
    damage(model)
    assert generate(model).returncode == 0, "no manifest is beside the model"
    assert generate(model, "--expect-manifest", manifest).returncode == 3
    done = run_engine("weights-probe", "--model-dir", model, "--expect-manifest", manifest)
    assert done.returncode == 3
    missing = generate(model, "--expect-manifest", tmp_path / "none.json")
    assert missing.returncode == 2
    assert "none.json" in missing.stderr


def test_published_hashes_are_compared(model: Path, tmp_path: Path) -> None:
    good = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    tag = model / ".cache" / "huggingface" / "download" / "model.safetensors.metadata"
    tag.parent.mkdir(parents=True)
    tag.write_text(f"995ad96eacd98c81ed38be0c5b274b04031597b0\n{good}\n1700000000.0\n")
    assert probe(model, "--sha256")["published"] == {
        "model.safetensors": {"sha256": good, "source": str(tag)},
    }
    out = tmp_path / "manifest.json"
    (model / "SHA256SUMS").write_text(f"{'0' * 64}  model.safetensors\n")
    done = run_engine("weights-probe", "--model-dir", model, "--sha256", "--out", out)
    assert done.returncode == 3
    assert "the file is not what was published" in done.stderr
    assert not out.exists()
    assert run_engine("weights-probe", "--model-dir", model).returncode == 0, "not asked for"


def test_both_methods_give_the_same_tokens_and_say_what_they_hold(model: Path) -> None:
    read = json.loads(generate(model, "--load-threads", "3").stdout)
    mapped = json.loads(generate(model, "--mmap").stdout)
    assert read["token_ids"] == mapped["token_ids"]
    assert (read["load"]["method"], mapped["load"]["method"]) == ("read", "mmap")
    assert read["load"]["workers"] == 3
    assert read["load"]["held_bytes"] > 0 == read["load"]["mapped_bytes"]
    assert mapped["load"]["mapped_bytes"] > 0 == mapped["load"]["held_bytes"]
    assert read["load"]["read_bytes"] == read["load"]["bytes"] == mapped["load"]["bytes"]
    assert len(read["load"]["weights_digest"]) == 32
    assert mapped["load"]["weights_digest"] is None
