"""The model's forward pass in numpy, for one sequence from its start: what the demo's head is fitted against.

Written from the formulas of the architecture (model facts, section 3) for small dimensions and few tokens.
All arithmetic is float64; with `bf16` the inputs of matrix products are rounded to bfloat16, as the engine
does under `--math bf16`, so that the fit can be judged in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Weights = Mapping[str, Array]

EPS = 1e-6


@dataclass(frozen=True)
class Dims:
    """Dimensions of a small model: names as in config.json's text_config."""

    hidden_size: int
    layer_types: tuple[str, ...]
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    shared_expert_intermediate_size: int

    @property
    def key_width(self) -> int:
        """Channels of all linear-attention keys."""
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def value_width(self) -> int:
        """Channels of all linear-attention values."""
        return self.linear_num_value_heads * self.linear_value_head_dim

    @property
    def conv_width(self) -> int:
        """Channels of the causal convolution: queries, keys, values."""
        return 2 * self.key_width + self.value_width


def round_bf16(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Nearest bfloat16 of each value, ties to even, as float32."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _rms(x: Array) -> Array:
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPS))


class Forward:
    """One model. `weights` are float64 arrays of bfloat16 values under the checkpoint's names, without the
    embedding and the head."""

    def __init__(self, dims: Dims, weights: Weights, *, bf16: bool) -> None:
        self.dims = dims
        self.weights = weights
        self.bf16 = bf16

    def hidden(self, embedded: Array) -> Array:
        """embedded [T, hidden] -> the vectors that the head multiplies, [T, hidden], rounded when `bf16`."""
        x = embedded.copy()
        for layer, kind in enumerate(self.dims.layer_types):
            name = f"model.language_model.layers.{layer}."
            normed = self._norm1p(x, name + "input_layernorm.weight")
            if kind == "full_attention":
                x += self._attention(normed, name + "self_attn.")
            else:
                x += self._delta_net(normed, name + "linear_attn.")
            x += self._experts(self._norm1p(x, name + "post_attention_layernorm.weight"), name + "mlp.")
        return self._input(self._norm1p(x, "model.language_model.norm.weight"))

    def _input(self, x: Array) -> Array:
        """What a matrix product sees of `x`."""
        return round_bf16(x).astype(np.float64) if self.bf16 else x

    def _project(self, x: Array, name: str) -> Array:
        """x [T, in] times a stored [out, in] -> [T, out]."""
        return np.asarray(self._input(x) @ self.weights[name].T)

    def _norm1p(self, x: Array, name: str) -> Array:
        return _rms(x) * (1.0 + self.weights[name])

    def _attention(self, x: Array, name: str) -> Array:
        """Full attention with a gate beside each query head; rotary positions on the first dimensions."""
        d = self.dims
        tokens, heads, groups = len(x), d.num_attention_heads, d.num_key_value_heads
        query_gate = self._project(x, name + "q_proj.weight").reshape(tokens, heads, 2, d.head_dim)
        key = self._project(x, name + "k_proj.weight").reshape(tokens, groups, d.head_dim)
        value = self._project(x, name + "v_proj.weight").reshape(tokens, groups, d.head_dim)
        query = self._rotate(self._norm1p(query_gate[:, :, 0], name + "q_norm.weight"))
        key = self._rotate(self._norm1p(key, name + "k_norm.weight"))
        query, key, value = self._input(query), self._input(key), self._input(value)
        share = heads // groups
        key, value = np.repeat(key, share, axis=1), np.repeat(value, share, axis=1)
        scores = np.einsum("thd,shd->hts", query, key) / np.sqrt(d.head_dim)
        scores = np.where(np.tril(np.ones((tokens, tokens), dtype=bool)), scores, -np.inf)
        mixed = np.einsum("hts,shd->thd", _softmax(scores), value) * _sigmoid(query_gate[:, :, 1])
        return self._project(mixed.reshape(tokens, -1), name + "o_proj.weight")

    def _rotate(self, x: Array) -> Array:
        """x [T, heads, head_dim]: dimensions j and j + rotary_dim / 2 turn together, the rest stays."""
        half = self.dims.rotary_dim // 2
        angles = np.arange(len(x))[:, None] * self.dims.rope_theta ** (-np.arange(half) / half)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        a, b = x[..., :half], x[..., half : 2 * half]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]], axis=-1)

    def _delta_net(self, x: Array, name: str) -> Array:
        """Gated delta rule, token by token: state S [value heads, key dim, value dim] from zero."""
        d = self.dims
        tokens, heads = len(x), d.linear_num_value_heads
        mixed = self._convolve(self._project(x, name + "in_proj_qkv.weight"), name + "conv1d.weight")
        query, key, value = np.split(mixed, [d.key_width, 2 * d.key_width], axis=-1)
        query, key = self._unit_heads(query) / np.sqrt(d.linear_key_head_dim), self._unit_heads(key)
        value = value.reshape(tokens, heads, d.linear_value_head_dim)
        drive = self._project(x, name + "in_proj_a.weight") + self.weights[name + "dt_bias"]
        decay = np.exp(-np.exp(self.weights[name + "A_log"]) * np.logaddexp(0.0, drive))
        beta = _sigmoid(self._project(x, name + "in_proj_b.weight"))
        state = np.zeros((heads, d.linear_key_head_dim, d.linear_value_head_dim))
        out = np.empty_like(value)
        for t in range(tokens):
            state = state * decay[t][:, None, None]
            change = beta[t][:, None] * (value[t] - np.einsum("hkv,hk->hv", state, key[t]))
            state = state + key[t][:, :, None] * change[:, None, :]
            out[t] = np.einsum("hkv,hk->hv", state, query[t])
        gate = self._project(x, name + "in_proj_z.weight").reshape(out.shape)
        out = _rms(out) * self.weights[name + "norm.weight"] * _silu(gate)
        return self._project(out.reshape(tokens, -1), name + "out_proj.weight")

    def _convolve(self, x: Array, name: str) -> Array:
        """Causal depthwise convolution and SiLU; the last tap multiplies the newest token."""
        taps = self.weights[name][:, 0]
        past = np.concatenate([np.zeros((taps.shape[1] - 1, x.shape[1])), x])
        return _silu(sum((past[j : j + len(x)] * taps[:, j] for j in range(taps.shape[1])), np.zeros_like(x)))

    def _unit_heads(self, x: Array) -> Array:
        """[T, key heads * dim] -> unit vectors [T, value heads, dim]: neighbours share a key head."""
        d = self.dims
        heads = x.reshape(len(x), d.linear_num_key_heads, d.linear_key_head_dim)
        heads = heads / np.sqrt(np.sum(heads * heads, axis=-1, keepdims=True) + EPS)
        return np.repeat(heads, d.linear_num_value_heads // d.linear_num_key_heads, axis=1)

    def _experts(self, x: Array, name: str) -> Array:
        """Top-k of the routed experts, and the shared one behind its own gate."""
        d, width = self.dims, self.dims.moe_intermediate_size
        share = _softmax(self._project(x, name + "gate.weight"))
        chosen = np.argsort(-share, axis=-1, kind="stable")[:, : d.num_experts_per_tok]
        both = np.einsum("th,tkih->tki", self._input(x), self.weights[name + "experts.gate_up_proj"][chosen])
        inner = self._input(_silu(both[..., :width]) * both[..., width:])
        each = np.einsum("tki,tkhi->tkh", inner, self.weights[name + "experts.down_proj"][chosen])
        part = np.take_along_axis(share, chosen, axis=-1)
        out = np.einsum("tk,tkh->th", part / part.sum(axis=-1, keepdims=True), each)
        shared = name + "shared_expert."
        raw = self._project(x, shared + "gate_proj.weight")
        inner = _silu(raw) * self._project(x, shared + "up_proj.weight")
        gate = _sigmoid(self._project(x, name + "shared_expert_gate.weight"))
        return np.asarray(out + gate * self._project(inner, shared + "down_proj.weight"))
