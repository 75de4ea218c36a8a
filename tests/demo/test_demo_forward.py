"""The forward pass: causal, blind to the future, and the formulas of its parts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from aimabuild.demo import weights
from aimabuild.demo.forward import Array, Forward


@pytest.fixture(scope="module")
def layers() -> dict[str, Array]:
    """All tensors of a small model, as numbers."""
    return {name: weights.from_bits(bits) for name, bits in weights.layer_tensors(weights.dims(64)).items()}


@pytest.mark.parametrize("bf16", [False, True])
def test_later_tokens_change_nothing_before(layers: dict[str, Array], bf16: bool) -> None:
    model = Forward(weights.dims(64), layers, bf16=bf16)
    embedded = weights.Embedding(64, frozenset(range(50))).of(range(40))
    whole = model.hidden(embedded)
    for length in (1, 2, 17, 39):
        assert np.allclose(model.hidden(embedded[:length]), whole[:length], rtol=0, atol=1e-9)


def test_earlier_tokens_matter(layers: dict[str, Array]) -> None:
    model = Forward(weights.dims(64), layers, bf16=False)
    table = weights.Embedding(64, frozenset(range(50)))
    one, other = model.hidden(table.of([1, 2, 3, 4])), model.hidden(table.of([9, 2, 3, 4]))
    assert np.abs(one[-1] - other[-1]).max() > 1e-2


def test_the_input_is_not_written_to(layers: dict[str, Array]) -> None:
    embedded = weights.Embedding(64, frozenset()).of(range(5))
    before = embedded.copy()
    Forward(weights.dims(64), layers, bf16=True).hidden(embedded)
    assert np.array_equal(embedded, before)


def test_bf16_stays_near(layers: dict[str, Array]) -> None:
    embedded = weights.Embedding(64, frozenset(range(50))).of(range(12))
    exact = Forward(weights.dims(64), layers, bf16=False).hidden(embedded)
    rounded = Forward(weights.dims(64), layers, bf16=True).hidden(embedded)
    difference = np.sqrt(np.mean((exact - rounded) ** 2))
    assert 1e-4 < difference < 0.1


def test_one_token_attends_to_itself_alone(layers: dict[str, Array]) -> None:
    """Softmax over one score is 1: the mixer gives o_proj(sigmoid(gate) * value)."""
    d = weights.dims(64)
    x = weights.Embedding(64, frozenset({1})).of([1])
    name = "model.language_model.layers.3.self_attn."
    value = (x @ layers[name + "v_proj.weight"].T).reshape(2, 32)
    gate = (x @ layers[name + "q_proj.weight"].T).reshape(4, 2, 32)[:, 1]
    mixed = np.stack([value[head // 2] / (1 + np.exp(-gate[head])) for head in range(4)])
    wanted = mixed.reshape(1, -1) @ layers[name + "o_proj.weight"].T
    assert np.allclose(Forward(d, layers, bf16=False)._attention(x, name), wanted)
