"""Model folders that hold FIFOs and links that lead nowhere."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from enginetool import find_engine

DATA = Path(__file__).resolve().parents[1] / "data" / "tiny"
NAMES = ["config.json", "model.safetensors", "generation_config.json", "tokenizer.json"]


def refused(folder: Path) -> str:
    asked = ["generate", "--model-dir", folder, "--prompt-ids", "1", "--max-tokens", "1"]
    done = subprocess.run(
        [find_engine(), *asked], check=False, capture_output=True, encoding="utf-8", timeout=60
    )
    assert done.returncode == 2, (done.returncode, done.stderr)
    return done.stderr


def folder_without(name: str, tmp_path: Path) -> Path:
    for each in ("config.json", "model.safetensors"):
        if each != name:
            (tmp_path / each).symlink_to(DATA / each)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_a_fifo_is_refused_and_not_waited_for(name: str, tmp_path: Path) -> None:
    folder = folder_without(name, tmp_path)
    os.mkfifo(folder / name)
    assert refused(folder).startswith(f"error: {folder / name}: not a regular file")


@pytest.mark.parametrize("target", ["nothing", "self"])
@pytest.mark.parametrize("name", NAMES)
def test_a_link_that_leads_nowhere_is_not_taken_for_absence(name: str, target: str, tmp_path: Path) -> None:
    folder = folder_without(name, tmp_path)
    (folder / name).symlink_to(name if target == "self" else target)
    why = "Too many levels of symbolic links" if target == "self" else "No such file or directory"
    expected = f"error: {folder / name}: the symbolic link cannot be followed\n  why: {why}\n"
    assert refused(folder) == expected


def test_so_it_is_with_the_index_and_its_shards(tmp_path: Path) -> None:
    folder = folder_without("model.safetensors", tmp_path)
    index = folder / "model.safetensors.index.json"
    index.symlink_to("nothing")
    assert "index.json: the symbolic link cannot be followed" in refused(folder)
    index.unlink()
    index.write_text('{"weight_map": {"a": "one.safetensors"}}')
    (folder / "one.safetensors").symlink_to("nothing")
    assert "one.safetensors: the symbolic link cannot be followed" in refused(folder)
    (folder / "one.safetensors").unlink()
    os.mkfifo(folder / "one.safetensors")
    assert "one.safetensors: not a regular file" in refused(folder)
