"""The random checkpoints: published totals, exact bf16, files that hold what was drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import checkpoint_layout as layout
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

SMALL = layout.PRESETS["tiny"].replaced({"hidden_size": 16, "vocab_size": 32})


def read(path: Path) -> tuple[dict[str, Any], bytes]:
    """Header and data of a safetensors file."""
    blob = path.read_bytes()
    size = int.from_bytes(blob[:8], "little")
    return json.loads(blob[8 : 8 + size]), blob[8 + size :]


def test_default_sizes_add_up_to_the_published_model() -> None:
    members = layout.tensors(layout.Sizes())
    draft = [tensor for tensor in members if tensor.name.startswith("mtp.")]
    assert len(members) == 693 + 19
    assert len(draft) == 19
    assert sum(tensor.count for tensor in draft) == 844_640_768
    assert sum(tensor.count for tensor in members) == 34_660_610_688 + 844_640_768
    assert len({tensor.name for tensor in members}) == len(members)


def test_published_rotary_sections() -> None:
    assert layout.Sizes().mrope_section == [11, 11, 10]
    assert sum(layout.PRESETS["tiny"].mrope_section) == layout.PRESETS["tiny"].head_dim // 8


def test_full_attention_is_every_fourth_layer() -> None:
    kinds = layout.Sizes().layer_types
    assert [i for i, kind in enumerate(kinds) if kind == "full_attention"] == list(range(3, 40, 4))


LOW = st.one_of(st.sampled_from([0, 0x7FFF, 0x8000, 0x8001]), st.integers(0, 0xFFFF))


@given(st.integers(0, 0xFFFF), LOW)
def test_rounding_goes_to_the_nearest_value_and_to_even_on_a_tie(high: int, low: int) -> None:
    value = np.array([(high << 16) | low], np.uint32).view(np.float32)
    if not np.isfinite(value[0]) or (high & 0x7FFF) >= 0x7F7F:
        return
    got = int(layout.to_bf16(value)[0])
    up = low > 0x8000 or (low == 0x8000 and high & 1 == 1)
    assert got == high + up


def test_a_tensor_does_not_depend_on_how_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = layout.Tensor("some.weight", (7, 300), "linear")
    whole = np.concatenate(list(layout.draw(tensor, 5)))
    monkeypatch.setattr(layout, "CHUNK", 64)
    pieces = list(layout.draw(tensor, 5))
    assert len(pieces) > 30
    assert np.array_equal(np.concatenate(pieces), whole)


def test_values_depend_on_seed_and_name() -> None:
    def first(name: str, seed: int) -> list[int]:
        return next(layout.draw(layout.Tensor(name, (64,), "norm"), seed)).tolist()

    assert first("a", 1) == first("a", 1)
    assert first("a", 1) != first("a", 2)
    assert first("a", 1) != first("b", 1)


def test_spread_of_a_product_follows_its_inputs() -> None:
    for inputs in (64, 4096):
        tensor = layout.Tensor("w", (1 << 20 >> 6, inputs), "linear")
        values = layout.widen(next(layout.draw(tensor, 1)))
        assert np.std(values) * inputs**0.5 == pytest.approx(1.0, abs=0.02)
    decay = np.exp(layout.widen(next(layout.draw(layout.Tensor("A_log", (4096,), "decay"), 1))))
    assert 0.04 < decay.min() < decay.max() < 8.2


@pytest.mark.parametrize(("dtype", "width"), [("BF16", 2), ("F32", 4)])
def test_a_shard_holds_the_drawn_values(tmp_path: Path, dtype: str, width: int) -> None:
    members = layout.tensors(SMALL)
    size = layout.write_shard(tmp_path / "m.safetensors", members, 3, dtype=dtype)
    header, data = read(tmp_path / "m.safetensors")
    assert len(data) == size == width * sum(tensor.count for tensor in members)
    position = 0
    for tensor in members:
        entry = header[tensor.name]
        assert entry["dtype"] == dtype
        assert tuple(entry["shape"]) == tensor.shape
        start, end = entry["data_offsets"]
        assert (start, end) == (position, position + width * tensor.count)
        position = end
        bits = np.concatenate(list(layout.draw(tensor, 3)))
        stored = data[start:end]
        assert stored == (bits.tobytes() if dtype == "BF16" else layout.widen(bits).tobytes())


def test_data_starts_on_a_multiple_of_eight(tmp_path: Path) -> None:
    for count in range(1, 9):
        name = "x" * count
        layout.write_shard(tmp_path / name, [layout.Tensor(name, (3,), "norm")], 1)
        assert int.from_bytes((tmp_path / name).read_bytes()[:8], "little") % 8 == 0


def test_shards_and_index_cover_every_tensor_once(tmp_path: Path) -> None:
    layout.write_checkpoint(tmp_path, SMALL, 1, shards=3)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    seen = {}
    for file in sorted(set(index["weight_map"].values())):
        header, data = read(tmp_path / file)
        seen |= {name: file for name in header if name != "__metadata__"}
        assert len(data) > 0
    assert seen == index["weight_map"]
    assert set(seen) == {tensor.name for tensor in layout.tensors(SMALL)}


def test_config_names_the_published_class_and_the_sizes(tmp_path: Path) -> None:
    layout.write_checkpoint(tmp_path, SMALL, 1)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["Qwen3_5MoeForConditionalGeneration"]
    assert config["text_config"]["hidden_size"] == 16
    assert config["text_config"]["rope_parameters"]["rope_theta"] == 10_000_000
    assert config["text_config"]["eos_token_id"] is None
    assert layout.config_json(layout.Sizes(), "bfloat16")["text_config"]["eos_token_id"] == 248044


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(ValueError, match="hiden_size"):
        SMALL.replaced({"hiden_size": 3})
