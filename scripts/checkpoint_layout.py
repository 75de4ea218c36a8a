"""Random checkpoints of the Qwen3.5-MoE text architecture under their published tensor names (numpy only).

Sizes go by the names that config.json uses. Every weight is a bf16 value, so that a file in f32 and one in
bf16 hold the same model. A tensor's values depend on the seed and the tensor's name alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint16]
CHUNK = 1 << 22  # values drawn at a time: 16 MB of f32, whatever the tensor's size
LANGUAGE = "model.language_model."
REAL_VOCABULARY = 248320


@dataclass(frozen=True)
class Sizes:
    """The dimensions of one model; defaults are the published per-layer sizes."""

    hidden_size: int = 2048
    num_hidden_layers: int = 40
    vocab_size: int = REAL_VOCABULARY
    num_attention_heads: int = 16
    num_key_value_heads: int = 2
    head_dim: int = 256
    linear_num_key_heads: int = 16
    linear_num_value_heads: int = 32
    linear_key_head_dim: int = 128
    linear_value_head_dim: int = 128
    linear_conv_kernel_dim: int = 4
    num_experts: int = 256
    num_experts_per_tok: int = 8
    moe_intermediate_size: int = 512
    shared_expert_intermediate_size: int = 512
    full_attention_interval: int = 4
    mtp_num_hidden_layers: int = 1

    @property
    def layer_types(self) -> list[str]:
        """The mixer of each layer."""
        full = self.full_attention_interval
        return [
            "linear_attention" if (layer + 1) % full else "full_attention"
            for layer in range(self.num_hidden_layers)
        ]

    @property
    def mrope_section(self) -> list[int]:
        """Rotary pairs for time, height, width: a quarter of head_dim rotates, pairs dealt out in turn."""
        pairs = self.head_dim // 8
        return [(pairs + 2) // 3, (pairs + 1) // 3, pairs // 3]

    def replaced(self, overrides: Mapping[str, int]) -> Sizes:
        """These sizes with some changed; ValueError names a key that is no size."""
        unknown = set(overrides) - {field.name for field in fields(self)}
        if unknown:
            raise ValueError(f"not a size: {', '.join(sorted(unknown))}")
        return Sizes(**{**asdict(self), **overrides})


PRESETS: dict[str, Sizes] = {
    # everything small: seconds to run, small enough to keep beside tests
    "tiny": Sizes(
        hidden_size=64, num_hidden_layers=4, vocab_size=512, num_attention_heads=4, head_dim=32,
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
        num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=64,
    ),
    # the published heads and routing width, narrow elsewhere
    "medium": Sizes(
        hidden_size=256, num_hidden_layers=4, vocab_size=2048,
        moe_intermediate_size=64, shared_expert_intermediate_size=64,
    ),
    # every published per-layer size but the number of experts
    "wide": Sizes(num_hidden_layers=4, vocab_size=2048, num_experts=16),
}  # fmt: skip


def config_json(sizes: Sizes, dtype: str) -> dict[str, Any]:
    """config.json with the published layout: the text model under text_config; no vision tower."""
    text = {
        **asdict(sizes),
        "model_type": "qwen3_5_moe_text",
        "dtype": dtype,
        "layer_types": sizes.layer_types,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "tie_word_embeddings": False,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144,
        "mtp_use_dedicated_embeddings": False,
        "partial_rotary_factor": 0.25,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000_000,
            "partial_rotary_factor": 0.25,
            "mrope_interleaved": True,
            "mrope_section": sizes.mrope_section,
        },
    }
    if sizes.vocab_size == REAL_VOCABULARY:
        text |= {"bos_token_id": 248044, "eos_token_id": 248044, "pad_token_id": None}
    else:  # a vocabulary without the special tokens: transformers must not look for its own default ids
        text |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "language_model_only": True,
        "tie_word_embeddings": False,
        "image_token_id": 248056,
        "video_token_id": 248057,
        "vision_start_token_id": 248053,
        "vision_end_token_id": 248054,
        "text_config": text,
    }


# ------------------------------------------------------------------------------------------------ tensors


@dataclass(frozen=True)
class Tensor:
    """One tensor of the checkpoint; `role` says how its random values are drawn (see ROLES)."""

    name: str
    shape: tuple[int, ...]
    role: str

    @property
    def count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Draw:
    """Normal values around `mean`, or uniform ones in [mean - spread, mean + spread].

    per_input: the spread is divided by sqrt(inputs per output): a product keeps the size of its input.
    log: the logarithm of the drawn value is stored.
    """

    spread: float
    mean: float = 0.0
    per_input: bool = False
    uniform: bool = False
    log: bool = False


ROLES = {
    "embedding": Draw(1.0),
    "linear": Draw(1.0, per_input=True),
    "residual": Draw(0.4, per_input=True),  # adds to the residual stream: small, or layers drown the input
    "router": Draw(2.5, per_input=True),  # spreads the router logits: few near-ties between experts
    "head": Draw(3.0, per_input=True),
    "norm": Draw(0.2),  # norms multiply by 1 + w
    "head_norm": Draw(0.3, mean=0.4),  # trained q and k norms lie well above zero: attention that selects
    "plain_norm": Draw(0.2, mean=1.0),  # the one norm that multiplies by w
    "conv": Draw(0.5),
    "decay": Draw(4.0, mean=4.05, uniform=True, log=True),  # A in 0.05 .. 8.05: short and long memories
    "time_step": Draw(2.5, mean=-1.5, uniform=True),
}


def tensors(sizes: Sizes) -> list[Tensor]:
    """All tensors of the checkpoint: embedding, layers, final norm, head, the draft head if there is one."""
    width, vocabulary = sizes.hidden_size, sizes.vocab_size
    found = [Tensor(f"{LANGUAGE}embed_tokens.weight", (vocabulary, width), "embedding")]
    for layer, kind in enumerate(sizes.layer_types):
        prefix = f"{LANGUAGE}layers.{layer}."
        found += _gdn(sizes, prefix) if kind == "linear_attention" else _attention(sizes, prefix)
        found += _moe(sizes, prefix)
    found += [
        Tensor(f"{LANGUAGE}norm.weight", (width,), "norm"),
        Tensor("lm_head.weight", (vocabulary, width), "head"),
    ]
    if sizes.mtp_num_hidden_layers:
        found += [
            Tensor("mtp.fc.weight", (width, 2 * width), "linear"),
            *_attention(sizes, "mtp.layers.0."),
            *_moe(sizes, "mtp.layers.0."),
            *(
                Tensor(f"mtp.{name}.weight", (width,), "norm")
                for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
            ),
        ]
    return found


def _attention(sizes: Sizes, prefix: str) -> list[Tensor]:
    """Full attention; q_proj holds a query and a gate per head."""
    width, head = sizes.hidden_size, sizes.head_dim
    queries, keys = sizes.num_attention_heads * head, sizes.num_key_value_heads * head
    base = f"{prefix}self_attn."
    return [
        Tensor(f"{base}q_proj.weight", (2 * queries, width), "linear"),
        Tensor(f"{base}k_proj.weight", (keys, width), "linear"),
        Tensor(f"{base}v_proj.weight", (keys, width), "linear"),
        Tensor(f"{base}o_proj.weight", (width, queries), "residual"),
        Tensor(f"{base}q_norm.weight", (head,), "head_norm"),
        Tensor(f"{base}k_norm.weight", (head,), "head_norm"),
    ]


def _gdn(sizes: Sizes, prefix: str) -> list[Tensor]:
    """Gated DeltaNet mixer."""
    width, heads = sizes.hidden_size, sizes.linear_num_value_heads
    keys = sizes.linear_num_key_heads * sizes.linear_key_head_dim
    values = heads * sizes.linear_value_head_dim
    mixed = 2 * keys + values
    base = f"{prefix}linear_attn."
    return [
        Tensor(f"{base}in_proj_qkv.weight", (mixed, width), "linear"),
        Tensor(f"{base}in_proj_z.weight", (values, width), "linear"),
        Tensor(f"{base}in_proj_a.weight", (heads, width), "linear"),
        Tensor(f"{base}in_proj_b.weight", (heads, width), "linear"),
        Tensor(f"{base}conv1d.weight", (mixed, 1, sizes.linear_conv_kernel_dim), "conv"),
        Tensor(f"{base}A_log", (heads,), "decay"),
        Tensor(f"{base}dt_bias", (heads,), "time_step"),
        Tensor(f"{base}norm.weight", (sizes.linear_value_head_dim,), "plain_norm"),
        Tensor(f"{base}out_proj.weight", (width, values), "residual"),
    ]


def _moe(sizes: Sizes, prefix: str) -> list[Tensor]:
    """The two layer norms and the mixture of experts; gate_up_proj holds the gate rows, then the up rows."""
    width, experts, inner = sizes.hidden_size, sizes.num_experts, sizes.moe_intermediate_size
    shared = sizes.shared_expert_intermediate_size
    base = f"{prefix}mlp."
    return [
        Tensor(f"{prefix}input_layernorm.weight", (width,), "norm"),
        Tensor(f"{prefix}post_attention_layernorm.weight", (width,), "norm"),
        Tensor(f"{base}gate.weight", (experts, width), "router"),
        Tensor(f"{base}experts.gate_up_proj", (experts, 2 * inner, width), "linear"),
        Tensor(f"{base}experts.down_proj", (experts, width, inner), "residual"),
        Tensor(f"{base}shared_expert.gate_proj.weight", (shared, width), "linear"),
        Tensor(f"{base}shared_expert.up_proj.weight", (shared, width), "linear"),
        Tensor(f"{base}shared_expert.down_proj.weight", (width, shared), "residual"),
        Tensor(f"{base}shared_expert_gate.weight", (1, width), "linear"),
    ]


# ------------------------------------------------------------------------------------------------ values


def to_bf16(values: npt.NDArray[np.float32]) -> Bits:
    """f32 to bf16 bits, to nearest, ties to even (finite values)."""
    bits = values.view(np.uint32)
    rounded: Bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return rounded


def widen(bits: Bits) -> npt.NDArray[np.float32]:
    """bf16 bits to the f32 values that they stand for."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def draw(tensor: Tensor, seed: int) -> Iterator[Bits]:
    """The tensor's values in order, as bf16 bits, at most CHUNK of them at a time."""
    key = hashlib.blake2b(f"{seed}/{tensor.name}".encode(), digest_size=16).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))
    how = ROLES[tensor.role]
    spread = how.spread / math.sqrt(tensor.shape[-1]) if how.per_input else how.spread
    for start in range(0, tensor.count, CHUNK):
        count = min(CHUNK, tensor.count - start)
        if how.uniform:
            values = 2 * generator.random(count, dtype=np.float32) - 1
        else:
            values = generator.standard_normal(count, dtype=np.float32)
        values *= np.float32(spread)
        values += np.float32(how.mean)
        yield to_bf16(np.log(values) if how.log else values)


# ------------------------------------------------------------------------------------------------ files


def write_shard(path: Path, members: Sequence[Tensor], seed: int, *, dtype: str = "BF16") -> int:
    """One safetensors file with the members' values as BF16 or F32, streamed; returns the bytes of data."""
    size = {"BF16": 2, "F32": 4}[dtype]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in members:
        start, end = end, end + size * tensor.count
        header[tensor.name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in members:
            _write_values(file, tensor, seed, dtype)
    return end


def _write_values(file: BinaryIO, tensor: Tensor, seed: int, dtype: str) -> None:
    file.writelines((bits if dtype == "BF16" else widen(bits)).tobytes() for bits in draw(tensor, seed))


def write_checkpoint(folder: Path, sizes: Sizes, seed: int, *, dtype: str = "BF16", shards: int = 1) -> int:
    """config.json and the weights in one file, or in several with an index; returns the bytes of data."""
    folder.mkdir(parents=True, exist_ok=True)
    config = config_json(sizes, {"BF16": "bfloat16", "F32": "float32"}[dtype])
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    members = tensors(sizes)
    if shards == 1:
        return write_shard(folder / "model.safetensors", members, seed, dtype=dtype)
    total = 0
    places: dict[str, str] = {}
    for index in range(shards):
        name = f"model-{index + 1:05d}-of-{shards:05d}.safetensors"
        part = members[index::shards]  # neighbours part, as in the published files
        total += write_shard(folder / name, part, seed, dtype=dtype)
        places |= {tensor.name: name for tensor in part}
    index_json = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    text = json.dumps(index_json, indent=2) + "\n"
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    return total
