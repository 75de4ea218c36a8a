"""The same weights in every form a folder may have: shards, split experts, other dtypes, other towers."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from enginetool import run_engine

DATA = Path(__file__).resolve().parents[1] / "data" / "tiny"
PREFIX = "model.language_model."
PROMPT = "5,17,300,2,511,64,9"


class Tensors:
    """The tensors of the tiny checkpoint as bf16 bits, and how to write them again."""

    def __init__(self) -> None:
        raw = (DATA / "model.safetensors").read_bytes()
        (length,) = struct.unpack_from("<Q", raw)
        data = raw[8 + length :]
        self.bits: dict[str, np.ndarray] = {}
        self.dtypes: dict[str, str] = {}
        for name, entry in json.loads(raw[8 : 8 + length]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                self.bits[name] = np.frombuffer(data[begin:end], np.uint16).reshape(entry["shape"])

    def bytes_of(self, name: str) -> bytes:
        values = (self.bits[name].astype(np.uint32) << 16).view(np.float32)
        match self.dtypes.get(name, "BF16"):
            case "F32":
                return values.tobytes()
            case "F16":
                return values.astype(np.float16).tobytes()
            case _:
                return self.bits[name].tobytes()

    def write(self, path: Path, names: list[str] | None = None) -> None:
        header: dict[str, object] = {}
        blob = b""
        for name in names if names is not None else list(self.bits):
            data = self.bytes_of(name)
            span = [len(blob), len(blob) + len(data)]
            dtype = self.dtypes.get(name, "BF16")
            header[name] = {"dtype": dtype, "shape": list(self.bits[name].shape), "data_offsets": span}
            blob += data
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + blob)


def one_file(tensors: Tensors, folder: Path) -> None:
    tensors.write(folder / "model.safetensors")


def in_shards(tensors: Tensors, folder: Path) -> None:
    """Layers scattered over 26 shards, as the published checkpoint has them."""
    names = list(tensors.bits)
    weight_map = {}
    for shard in range(26):
        file = f"model-{shard + 1:05d}-of-00026.safetensors"
        part = names[shard::26]
        tensors.write(folder / file, part)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def with_split_experts(tensors: Tensors, folder: Path) -> None:
    for name in [name for name in tensors.bits if ".mlp.experts." in name and name.startswith(PREFIX)]:
        stem = name.rpartition(".")[0]
        for expert, matrix in enumerate(tensors.bits.pop(name)):
            if name.endswith("gate_up_proj"):
                gate, up = np.split(matrix, 2)
                tensors.bits[f"{stem}.{expert}.gate_proj.weight"] = gate
                tensors.bits[f"{stem}.{expert}.up_proj.weight"] = up
            else:
                tensors.bits[f"{stem}.{expert}.down_proj.weight"] = matrix
    one_file(tensors, folder)


def with_all_norms_in_f32(tensors: Tensors, folder: Path) -> None:
    tensors.dtypes = {name: "F32" for name, bits in tensors.bits.items() if bits.ndim == 1}
    assert len(tensors.dtypes) > 20
    one_file(tensors, folder)


def with_split_experts_in_f32_shards(tensors: Tensors, folder: Path) -> None:
    with_split_experts(tensors, folder)
    (folder / "model.safetensors").unlink()
    tensors.dtypes = dict.fromkeys(list(tensors.bits)[::3], "F32")
    in_shards(tensors, folder)


def with_decay_and_norm_in_f32(tensors: Tensors, folder: Path) -> None:
    tensors.dtypes = {n: "F32" for n in tensors.bits if n.endswith(("A_log", "linear_attn.norm.weight"))}
    assert len(tensors.dtypes) == 6
    one_file(tensors, folder)


def all_in_f32(tensors: Tensors, folder: Path) -> None:
    tensors.dtypes = dict.fromkeys(tensors.bits, "F32")
    one_file(tensors, folder)


def without_mtp(tensors: Tensors, folder: Path) -> None:
    before = len(tensors.bits)
    tensors.bits = {name: bits for name, bits in tensors.bits.items() if not name.startswith("mtp.")}
    assert len(tensors.bits) == before - 19
    one_file(tensors, folder)


def with_a_vision_tower(tensors: Tensors, folder: Path) -> None:
    tensors.bits["model.visual.blocks.0.norm1.bias"] = np.zeros(7, np.uint16)
    one_file(tensors, folder)


def with_short_names(tensors: Tensors, folder: Path) -> None:
    """As transformers saves the text model alone."""
    tensors.bits = {name.replace(PREFIX, "model."): bits for name, bits in tensors.bits.items()}
    one_file(tensors, folder)


FORMS = [
    in_shards,
    with_split_experts,
    with_split_experts_in_f32_shards,
    with_all_norms_in_f32,
    with_decay_and_norm_in_f32,
    all_in_f32,
    without_mtp,
    with_a_vision_tower,
    with_short_names,
]


def logits(folder: Path, math: str, *options: str) -> np.ndarray:
    out = folder / "logits.npy"
    asked = ["--prompt-ids", PROMPT, "--max-tokens", "3", "--ignore-eos", "--json", "--math", math]
    done = run_engine("generate", "--model-dir", folder, *asked, "--logits-out", out, *options)
    assert done.returncode == 0, done.stderr
    return np.load(out)


def folder_of(form: Callable[[Tensors, Path], None], folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(DATA / "config.json", folder)
    form(Tensors(), folder)
    return folder


@pytest.mark.parametrize("math", ["f32", "bf16"])
def test_every_form_gives_the_same_bits(math: str, tmp_path: Path) -> None:
    expected = logits(folder_of(one_file, tmp_path / "one_file"), math)
    for form in FORMS:
        found = logits(folder_of(form, tmp_path / form.__name__), math)
        assert np.array_equal(found.view(np.uint32), expected.view(np.uint32)), form.__name__
        mapped = logits(tmp_path / form.__name__, math, "--mmap")
        assert np.array_equal(mapped.view(np.uint32), expected.view(np.uint32)), f"{form.__name__}, mapped"


def test_f16_matrices_are_widened_or_rounded(tmp_path: Path) -> None:
    """The checkpoint's small values lose bits in f16, so only nearness is asked."""

    def all_in_f16(tensors: Tensors, folder: Path) -> None:
        tensors.dtypes = dict.fromkeys(tensors.bits, "F16")
        one_file(tensors, folder)

    bf16 = folder_of(one_file, tmp_path / "bf16")
    f16 = folder_of(all_in_f16, tmp_path / "f16")
    rows = len(PROMPT.split(","))  # later rows depend on the tokens chosen
    for math, tolerance in (("f32", 0.02), ("bf16", 0.1)):
        difference = np.abs(logits(f16, math) - logits(bf16, math))[:rows]
        assert difference.max() < tolerance, math


def refusal(folder: Path) -> str:
    """The message of a folder that is refused: one error, exit code 2, before anything is printed."""
    done = run_engine("generate", "--model-dir", folder, "--prompt-ids", "1", "--max-tokens", "1")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("error: ") == 1
    return done.stderr.splitlines()[0]


def header_edited(folder: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    """The folder with the header of its one file changed, its data as it was."""
    weights = folder / "model.safetensors"
    raw = weights.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    edit(header)
    text = json.dumps(header).encode()
    weights.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])
    return folder


EMBED = PREFIX + "embed_tokens.weight"
NORM = PREFIX + "norm.weight"


def overlap(header: dict[str, Any]) -> None:
    size = header[NORM]["data_offsets"][1] - header[NORM]["data_offsets"][0]
    header[NORM]["data_offsets"] = [4, 4 + size]


def out_of_range(header: dict[str, Any]) -> None:
    begin, end = header[NORM]["data_offsets"]
    header[NORM]["data_offsets"] = [begin + (1 << 40), end + (1 << 40)]


def wrong_shape(header: dict[str, Any]) -> None:
    header[EMBED]["shape"].reverse()


def wrong_dtype(header: dict[str, Any]) -> None:
    header[EMBED]["dtype"] = "I16"


def unknown_dtype(header: dict[str, Any]) -> None:
    header[EMBED]["dtype"] = "Q4"


def unknown_tensor(header: dict[str, Any]) -> None:
    header[PREFIX + "layers.0.mlp.gate.bias"] = header.pop(PREFIX + "layers.0.linear_attn.dt_bias")


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (overlap, "overlaps another"),
        (out_of_range, "the data lies outside the file"),
        (wrong_shape, "the shape is [64, 512], expected [512, 64]"),
        (wrong_dtype, "the dtype I16 is not supported"),
        (unknown_dtype, "unknown dtype `Q4`"),
        (unknown_tensor, "linear_attn.dt_bias` is missing"),
    ],
)
def test_a_wrong_header_is_refused(edit: Callable[[dict[str, Any]], None], says: str, tmp_path: Path) -> None:
    assert says in refusal(header_edited(folder_of(one_file, tmp_path / "model"), edit))


def test_files_that_end_too_soon_are_refused(tmp_path: Path) -> None:
    folder = folder_of(one_file, tmp_path / "model")
    weights = folder / "model.safetensors"
    raw = weights.read_bytes()
    for size in (0, 7, 8, 1000, len(raw) - 1):
        weights.write_bytes(raw[:size])
        assert "model.safetensors" in refusal(folder), size
    weights.write_bytes(struct.pack("<Q", len(raw)) + raw[8:])
    assert "the safetensors file is truncated" in refusal(folder)
    weights.write_bytes(struct.pack("<Q", 1 << 62) + raw[8:])
    assert "not a safetensors file" in refusal(folder)
    weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1016000\n")
    assert "a git-lfs pointer" in refusal(folder)


def test_shards_that_disagree_are_refused(tmp_path: Path) -> None:
    folder = folder_of(in_shards, tmp_path / "model")
    name = "model-00007-of-00026.safetensors"
    index = folder / "model.safetensors.index.json"
    good = index.read_text()

    weight_map = json.loads(good)["weight_map"]
    weight_map[EMBED] = name
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert f"{EMBED}: the shard does not hold this tensor" in refusal(folder)

    index.write_text(good)
    shutil.copy(folder / "model-00001-of-00026.safetensors", folder / name)
    assert "is also in" in refusal(folder)

    (folder / name).unlink()
    assert f"the shard {name} is missing" in refusal(folder)

    index.unlink()
    assert "neither model.safetensors nor model.safetensors.index.json" in refusal(folder)


def test_weights_that_do_not_fit_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """Sparse files of 3 TB: their headers are right, and they take no room on the disk."""
    folder = tmp_path / "model"
    folder.mkdir()
    config = json.loads((DATA / "config.json").read_text())
    config["text_config"] |= {"num_experts": 4096, "moe_intermediate_size": 1 << 20}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = Tensors()
    hidden = tensors.bits[EMBED].shape[1]
    header: dict[str, Any] = {}
    offset = 0
    for name, bits in tensors.bits.items():
        shape = list(bits.shape)
        if name.endswith("experts.gate_up_proj"):
            shape = [4096, 2 << 20, hidden]
        elif name.endswith("experts.down_proj"):
            shape = [4096, hidden, 1 << 20]
        elif name.endswith("mlp.gate.weight"):
            shape = [4096, hidden]
        size = 2 * int(np.prod(shape, dtype=np.int64))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    weights = folder / "model.safetensors"
    weights.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(weights, 8 + len(text) + offset)
    done = run_engine("generate", "--model-dir", folder, "--prompt-ids", "1", "--max-tokens", "1")
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "the weights do not fit into memory" in done.stderr
    assert "TB are to be taken" in done.stderr
    assert "--mmap" in done.stderr
