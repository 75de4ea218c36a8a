"""First inputs and dictionaries of the fuzzers in native/fuzz, made from the tests' data.

Each function gives inputs that the parser accepts, or nearly so; libFuzzer goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chat_generator import ChatGenerator

from aimabuild.demo.tokenizer import REGEX

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
_WIDTHS = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "I64": 8, "U8": 1, "BOOL": 1, "F8_E4M3": 1}


def _load(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _file(header: bytes, data: int) -> bytes:
    return len(header).to_bytes(8, "little") + header + bytes(data)


def safetensors() -> Iterator[bytes]:
    """Small files of every dtype and number of dimensions, and the head of a real one."""
    yield _file(b"{}", 0)
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for i, (dtype, width) in enumerate(_WIDTHS.items()):
        shape = [[], [3], [2, 0], [2, 1, 2]][i % 4]
        size = width * {0: 1, 1: 3, 2: 0, 3: 4}[i % 4]
        entries[f"t{i}"] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
        yield _file(_json(entries), at)
    real = (DATA / "tiny" / "model.safetensors").read_bytes()
    header = real[8 : 8 + int.from_bytes(real[:8], "little")]
    first = dict(list(json.loads(header).items())[:4])
    yield _file(_json(first), 64)


def config() -> Iterator[bytes]:
    """The tiny checkpoint's configuration, whole, without text_config around it, and with each field gone."""
    whole = _load("tiny/config.json")
    yield _json(whole)
    text = whole.get("text_config", whole)
    yield _json({**text, "architectures": ["Qwen3_5MoeForCausalLM"]})
    for key in text:
        yield _json({**whole, "text_config": {name: value for name, value in text.items() if name != key}})


def generation_config() -> Iterator[bytes]:
    """Stop ids in each form."""
    for ids in (248046, [248046, 248044], [], None, -1, 1 << 40, 1.5, "x", [[1]]):
        yield _json({"eos_token_id": ids, "do_sample": True, "temperature": 0.7})


def _small_tokenizer() -> dict[str, Any]:
    """A tokenizer.json of the 256 bytes, five merges and two added tokens."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letter = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    merges = [[letter[a], letter[b]] for a, b in ((116, 104), (104, 101), (0xC3, 0xA9), (32, 32))]
    merges.append([merges[0][0] + merges[0][1], letter[101]])
    words = [*letter.values(), *(left + right for left, right in merges)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": REGEX}, "behavior": "Isolated", "invert": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 300, "content": "<a>", **flags}, {"id": 301, "content": "<ab", **flags}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "post_processor": level,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {word: i for i, word in enumerate(words)},
            "merges": merges,
        },
    }


def tokenizer_file() -> Iterator[bytes]:
    """A small tokenizer, its two forms of merges, and a configuration behind a zero byte."""
    small = _small_tokenizer()
    yield _json(small)
    late = {"content": "<x>", "special": True}
    yield _json(small) + b"\0" + _json({"added_tokens_decoder": {"302": late}})
    small["model"]["merges"] = [" ".join(pair) for pair in small["model"]["merges"]]
    yield _json(small)


def texts() -> Iterator[bytes]:
    """The golden texts; the first byte says how much of the rest is trusted."""
    for i, case in enumerate(_load("tokenizer_cases.json")):
        yield bytes([i % 256]) + case["text"].encode("utf-8", "surrogatepass")


def chat() -> Iterator[bytes]:
    """The golden requests, and random ones as the comparison with the template makes them."""
    for case in _load("chat_cases.json"):
        yield _json(case["request"])
    generator = ChatGenerator(7)
    for _ in range(200):
        yield generator.request().encode("utf-8", "surrogatepass")


SEEDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "safetensors": safetensors,
    "config": config,
    "generation_config": generation_config,
    "tokenizer_file": tokenizer_file,
    "tokenizer": texts,
    "chat": chat,
}
_WORDS = {
    "tokenizer": "<|im_start|> <|im_end|> <|im < </think> \u0301 \u0327 \u1100 \u1161 \u11a8 \U0001f600 "
    "\u00e9 \r\n 's '\u017f",
    "chat": '"role" "user" "assistant" "tool" "system" "developer" "content" "text" "type" "image" "video" '
    '"tool_calls" "function" "name" "arguments" "reasoning_content" "tools" "refusal" "tool_choice" "none" '
    '"chat_template_kwargs" "enable_thinking" <think> </think> <tool_response> </tool_response> <|im_end|>',
}


def strings_of(value: object) -> Iterator[str]:
    """Keys and short texts in a JSON value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f'"{key}"'
            yield from strings_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings_of(item)
    elif isinstance(value, str) and 0 < len(value) < 40:
        yield f'"{value}"'


def dictionary(name: str) -> str:
    """libFuzzer's dictionary for a fuzzer: one quoted word a line."""
    words = set(_WORDS.get(name, "").split(" "))
    if name not in _WORDS:
        for seed in SEEDS[name]():
            start = max(seed.find(b"{"), 0)
            text = seed[start:].split(b"\0")[0].decode("utf-8", "replace")
            words.update(strings_of(json.JSONDecoder().raw_decode(text)[0]))
    # A word that stands for one byte teaches nothing.
    kept = sorted(word for word in words if len(word.encode()) > 1)[:400]
    return "".join(f'"{_escaped(word)}"\n' for word in kept)


def _escaped(word: str) -> str:
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in word.encode()
    )
