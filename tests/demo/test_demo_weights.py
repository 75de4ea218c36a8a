"""Random numbers that never change, and bfloat16."""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aimabuild.base.files import sha256_bytes
from aimabuild.demo import weights
from aimabuild.demo.forward import round_bf16


def test_numbers_are_pinned() -> None:
    numbers = weights.uniform("a name", 1000)
    assert (
        sha256_bytes(numbers.tobytes()) == "10bb87ccb8f64677ae4227faf9e2f10770df05f2f209193b7e85ae83493e0321"
    )
    assert abs(float(numbers.mean())) < 0.05
    assert abs(float(numbers.var()) - 1 / 3) < 0.03
    assert float(np.abs(numbers).max()) < 1


def test_numbers_do_not_depend_on_where_a_block_begins() -> None:
    whole = weights.uniform("x", 64)
    assert np.array_equal(whole[20:30], weights.uniform("x", 10, start=20))
    assert not np.array_equal(whole, weights.uniform("y", 64))
    table = weights.Embedding(8, frozenset({5}))
    rows = table.rows(0, 16)
    assert np.array_equal(rows[3:9], table.rows(3, 6))


def test_words_stand_apart_and_others_together() -> None:
    values = weights.Embedding(128, frozenset({7, 9})).of([7, 9, 100, 200])
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    likeness = unit @ unit.T
    assert likeness[2, 3] > 0.8
    assert abs(likeness[0, 1]) < 0.4
    assert abs(likeness[0, 2]) < 0.4


@given(st.integers(0, 0xFFFF_FFFF))
def test_bf16_is_the_nearest_and_even_on_a_tie(bits: int) -> None:
    value = struct.unpack("<f", struct.pack("<I", bits))[0]
    if abs(value) > 3e38 or value != value:
        return
    got = float(round_bf16(np.array([value], dtype=np.float32))[0])
    low = bits & 0xFFFF_0000
    choices = [struct.unpack("<f", struct.pack("<I", b))[0] for b in (low, low + 0x1_0000)]
    distance = [abs(Fraction(value) - Fraction(c)) for c in choices]
    if distance[0] == distance[1]:
        assert got == choices[(low >> 16) & 1]
    else:
        assert got == choices[distance.index(min(distance))]


def test_layers_have_the_checkpoint_layout() -> None:
    d = weights.dims(64)
    tensors = weights.layer_tensors(d)
    layer = "model.language_model.layers."
    assert tensors[layer + "3.self_attn.q_proj.weight"].shape == (2 * 4 * 32, 64)
    assert tensors[layer + "0.linear_attn.in_proj_qkv.weight"].shape == (2 * 32 + 64, 64)
    assert tensors[layer + "0.linear_attn.conv1d.weight"].shape == (128, 1, 4)
    assert tensors[layer + "1.mlp.experts.gate_up_proj"].shape == (8, 64, 64)
    assert layer + "3.linear_attn.A_log" not in tensors
    assert len(tensors) == 3 * 18 + 15 + 1
    assert weights.from_bits(weights.to_bits(np.array([1.5, -0.25], dtype=np.float32))).tolist() == [
        1.5,
        -0.25,
    ]
