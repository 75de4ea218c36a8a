"""Pairs of merges against merging itself; the published file; damaged packages."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aimabuild.base.errors import CheckFailedError, UsageError
from aimabuild.base.files import sha256_bytes
from aimabuild.demo import tokenizer
from aimabuild.demo.tokenizer import RANKS_FILE, SHA256, Ranks, read_ranks, tokenizer_json

BYTES = [bytes([b]) for b in range(256)]


@st.composite
def vocabularies(draw: st.DrawFn) -> list[bytes]:
    """Bytes, then words of three letters: most joined from earlier ones, some out of order or of no merge."""
    words = [b"a", b"b", b"c"]
    extra: list[bytes] = []
    for _ in range(draw(st.integers(0, 40))):
        if draw(st.integers(0, 4)):
            word = draw(st.sampled_from(words)) + draw(st.sampled_from(words))
        else:
            word = bytes(draw(st.lists(st.sampled_from(b"abc"), min_size=2, max_size=6)))
        if word not in words and len(word) <= 12:
            words.append(word)
            extra.append(word)
    if extra and draw(st.booleans()):
        extra = draw(st.permutations(extra))
    return BYTES + extra


@settings(max_examples=400, deadline=None)
@given(vocabularies())
def test_pairs_are_what_merging_leaves(tokens: list[bytes]) -> None:
    lookup = {token: rank for rank, token in enumerate(tokens)}
    pairs = tokenizer._pairs(tokens)
    for token, pair in zip(tokens[256:], pairs[256:], strict=True):
        # Merges of higher rank than the token's own come too late to matter, but for parts that rank above
        # the whole.
        assert pair == tokenizer._last_pair(token, lookup), token
    assert pairs[:256] == [None] * 256


def test_encode_is_by_rank_and_lossless() -> None:
    tokens = (*BYTES, b"ab", b"bc", b"abc")
    ranks = Ranks(tokens, (*[None] * 256, (97, 98), (98, 99), (256, 99)))
    assert ranks.encode("abc") == [258]
    assert ranks.encode("bcab") == [257, 256]
    assert ranks.encode("") == []
    assert b"".join(tokens[i] for i in ranks.encode("añabc")) == "añabc".encode()


@pytest.mark.toolchain
def test_the_file_is_the_published_one(ranks: Ranks) -> None:
    data = tokenizer_json(ranks)
    assert sha256_bytes(data) == SHA256 == "87a7830d63fcf43bf241c3c5242e96e62dd3fdc29224ca26fed8ea333db72de4"
    content = json.loads(data)
    assert len(content["model"]["merges"]) == 247_587
    assert len(content["added_tokens"]) == 33
    assert sum(pair is None for pair in ranks.pairs) == 256 + 201  # bytes, and tokens that no merge makes


@pytest.mark.toolchain
def test_real_pairs_are_what_merging_leaves(ranks: Ranks) -> None:
    lookup = {token: rank for rank, token in enumerate(ranks.tokens)}
    for rank in random.Random(2).sample(range(256, len(ranks.tokens)), 3000):
        assert ranks.pairs[rank] == tokenizer._last_pair(ranks.tokens[rank], lookup)


@pytest.mark.toolchain
def test_a_changed_merge_is_noticed(ranks: Ranks) -> None:
    pairs = list(ranks.pairs)
    pairs[300], pairs[301] = pairs[301], pairs[300]
    with pytest.raises(CheckFailedError, match="not the published one"):
        tokenizer_json(Ranks(ranks.tokens, tuple(pairs)))


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (3, b"!!! 2", r":3: .*base64"),
        (3, b"Aw== 7", r":3: .*in order"),
        (3, b"Aw==", r":3: "),
        (3, b" 2", r":3: "),
        (256, b"AAA= 255", r"256 ranks are not those"),
    ],
)
def test_a_damaged_package(tmp_path: Path, line: int, text: bytes, message: str) -> None:
    lines = [base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(BYTES)]
    lines[line - 1] = text
    path = tmp_path / RANKS_FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(UsageError, match=message):
        read_ranks(tmp_path)


def test_a_missing_package(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_ranks(tmp_path)
