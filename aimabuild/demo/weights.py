"""Random weights that are the same bytes on every machine, with every numpy: hashed counters, no float
library.

A demo model has the real tensor names and layout and the real vocabulary; everything else is small.
Contributions of the layers are kept below the size of the embeddings, so that a token's vector stays in sight
at the head, and large enough that the same word in two places of the sentence can be told apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from aimabuild.demo.forward import Dims, round_bf16

Bits = npt.NDArray[np.uint16]

VOCAB = 248_320
EMBEDDING = "model.language_model.embed_tokens.weight"
HEAD = "lm_head.weight"
# Sizes of what a mixer and a layer's experts add to the residual stream, against embeddings of size 1.
MIXER_SCALE = 0.5
EXPERT_SCALE = 0.15
# How far a token that is not in the sentence strays from the one vector that they all share.
STRAY = 0.35


def dims(hidden: int) -> Dims:
    """Four layers, three linear and one full attention, as every group of four layers in the real model."""
    return Dims(
        hidden_size=hidden,
        layer_types=("linear_attention", "linear_attention", "linear_attention", "full_attention"),
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        rotary_dim=8,
        rope_theta=10_000_000.0,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=64,
    )


def uniform(name: str, count: int, *, start: int = 0) -> npt.NDArray[np.float32]:
    """`count` numbers in (-1, 1) with variance 1/3, a function of `name` and of their index from `start` on.

    `start` is a multiple of 4: one 64-bit hash (the finaliser of splitmix64) gives four 16-bit numbers.
    """
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    index = np.arange(start // 4, (start + count + 3) // 4, dtype=np.uint64)
    z = np.uint64(seed) + index * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    words = z.astype("<u8").view("<u2")[:count].astype(np.float32)
    return (words - np.float32(32767.5)) / np.float32(32768)


def to_bits(values: npt.NDArray[np.float32]) -> Bits:
    """bfloat16 bit patterns, rounded to nearest even."""
    return (round_bf16(values).view(np.uint32) >> np.uint32(16)).astype("<u2")


def from_bits(bits: Bits) -> npt.NDArray[np.float64]:
    """The values of bfloat16 bit patterns."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def _scaled(name: str, shape: Sequence[int], deviation: float, centre: float = 0.0) -> Bits:
    values = uniform(name, int(np.prod(shape))).reshape(shape)
    return to_bits(values * np.float32(deviation * 3**0.5) + np.float32(centre))


def _mixer(kind: str, d: Dims) -> Iterator[tuple[str, tuple[int, ...], float, float]]:
    """(name, shape, deviation, centre) of a mixer's tensors."""
    hidden = d.hidden_size
    flat = hidden**-0.5
    if kind == "full_attention":
        queries = d.num_attention_heads * d.head_dim
        pairs = (d.num_key_value_heads * d.head_dim, hidden)
        yield "self_attn.q_proj.weight", (2 * queries, hidden), flat, 0.0
        yield "self_attn.k_proj.weight", pairs, flat, 0.0
        yield "self_attn.v_proj.weight", pairs, flat, 0.0
        yield "self_attn.q_norm.weight", (d.head_dim,), 0.05, 0.0
        yield "self_attn.k_norm.weight", (d.head_dim,), 0.05, 0.0
        # A gated average of values is about a fifth the size of one.
        yield "self_attn.o_proj.weight", (hidden, queries), 5 * MIXER_SCALE * queries**-0.5, 0.0
        return
    heads = d.linear_num_value_heads
    yield "linear_attn.in_proj_qkv.weight", (d.conv_width, hidden), flat, 0.0
    yield "linear_attn.in_proj_z.weight", (d.value_width, hidden), flat, 0.0
    yield "linear_attn.in_proj_a.weight", (heads, hidden), flat, 0.0
    yield "linear_attn.in_proj_b.weight", (heads, hidden), flat, 0.0
    yield "linear_attn.conv1d.weight", (d.conv_width, 1, 4), 0.6, 0.0
    yield "linear_attn.A_log", (heads,), 0.5, 0.0
    yield "linear_attn.dt_bias", (heads,), 0.5, -2.0
    yield "linear_attn.norm.weight", (d.linear_value_head_dim,), 0.05, 1.0
    # silu(z) is about half the size of z.
    yield "linear_attn.out_proj.weight", (hidden, d.value_width), 2 * MIXER_SCALE * d.value_width**-0.5, 0.0


def _layer(kind: str, d: Dims) -> Iterator[tuple[str, tuple[int, ...], float, float]]:
    hidden, inner, shared = d.hidden_size, d.moe_intermediate_size, d.shared_expert_intermediate_size
    flat = hidden**-0.5
    yield "input_layernorm.weight", (hidden,), 0.05, 0.0
    yield from _mixer(kind, d)
    yield "post_attention_layernorm.weight", (hidden,), 0.05, 0.0
    yield "mlp.gate.weight", (d.num_experts, hidden), 2 * flat, 0.0
    yield "mlp.experts.gate_up_proj", (d.num_experts, 2 * inner, hidden), flat, 0.0
    yield "mlp.experts.down_proj", (d.num_experts, hidden, inner), 2 * EXPERT_SCALE * inner**-0.5, 0.0
    yield "mlp.shared_expert.gate_proj.weight", (shared, hidden), flat, 0.0
    yield "mlp.shared_expert.up_proj.weight", (shared, hidden), flat, 0.0
    yield "mlp.shared_expert.down_proj.weight", (hidden, shared), 2 * EXPERT_SCALE * shared**-0.5, 0.0
    yield "mlp.shared_expert_gate.weight", (1, hidden), flat, 0.0


def layer_tensors(d: Dims) -> dict[str, Bits]:
    """All tensors but the embedding and the head, by checkpoint name."""
    tensors = {}
    for index, kind in enumerate(d.layer_types):
        for name, shape, deviation, centre in _layer(kind, d):
            full = f"model.language_model.layers.{index}.{name}"
            tensors[full] = _scaled(full, shape, deviation, centre)
    final = "model.language_model.norm.weight"
    tensors[final] = _scaled(final, (d.hidden_size,), 0.05)
    return tensors


class Embedding:
    """The [VOCAB, hidden] table, row by row. Tokens in `words`, those of the sentence, stand apart; all
    others lie close together, so that whatever a prompt ends with, the sentence's beginning follows."""

    def __init__(self, hidden: int, words: frozenset[int]) -> None:
        self.hidden = hidden
        self.words = words
        self._shared = uniform(f"{EMBEDDING} shared", hidden)

    def rows(self, start: int, count: int) -> Bits:
        """Rows start .. start + count - 1."""
        values = uniform(EMBEDDING, count * self.hidden, start=start * self.hidden).reshape(
            count, self.hidden
        )
        apart = np.isin(np.arange(start, start + count), list(self.words))[:, None]
        mixed = np.where(apart, values, self._shared + np.float32(STRAY) * values)
        return to_bits(mixed * np.float32(3**0.5))

    def of(self, ids: Sequence[int]) -> npt.NDArray[np.float64]:
        """[len(ids), hidden] values."""
        return np.concatenate([from_bits(self.rows(i, 1)) for i in ids])
