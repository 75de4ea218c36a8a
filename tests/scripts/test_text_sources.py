"""Texts to tokenise: random ones cover what they promise, real ones are found by kind."""

from __future__ import annotations

import struct
import unicodedata
from pathlib import Path

import text_sources


def test_random_texts_are_reproducible_and_of_every_kind() -> None:
    first = [text_sources.RandomTexts(3, ["<|im_end|>"]).text() for _ in range(1)]
    source = text_sources.RandomTexts(3, ["<|im_end|>"])
    texts = [source.text() for _ in range(3000)]
    assert texts[0] == first[0]
    whole = "".join(texts)
    whole.encode()  # no surrogates
    assert {ord(c) >> 16 for c in whole} == set(range(17))
    assert {unicodedata.category(c)[0] for c in whole} == set("LMNPSZC")
    for piece in ("<|im_end|>", "<|im_end|", "'ll", "\ud7ff", "\ue000", "\uffff", "\U0010ffff", "\r\n", "\0"):
        assert piece.lower() in whole.lower(), piece


def catalogue(texts: list[bytes], order: str) -> bytes:
    """A compiled message catalogue with empty originals."""
    start = 28 + 16 * len(texts)
    head = struct.pack(f"{order}7I", 0x950412DE, 0, len(texts), 28, 28 + 8 * len(texts), 0, 0)
    table, data = b"", b""
    for text in texts:
        table += struct.pack(f"{order}2I", len(text), start + len(data))
        data += text + b"\0"
    return head + bytes(8 * len(texts)) + table + data


def test_messages_of_both_byte_orders(tmp_path: Path) -> None:
    texts = ["Привет", "天气"]
    for order in "<>":
        file = tmp_path / "a.mo"
        file.write_bytes(catalogue([text.encode() for text in texts], order))
        assert list(text_sources.messages(file)) == texts
    file.write_bytes(b"no catalogue at all, but long enough")
    assert list(text_sources.messages(file)) == []


def test_real_texts_by_kind_up_to_a_limit(tmp_path: Path) -> None:
    for i in range(10):
        (tmp_path / f"{i}.py").write_text("x = 1\n" * 100)
    (tmp_path / "a.c").write_text("int a;\n")
    (tmp_path / "b.c").write_bytes(b"\0\1binary")
    (tmp_path / "c.unknown").write_text("?")
    (tmp_path / "d.mo").write_bytes(catalogue([b"one\0two", b"three"], "<"))
    texts = text_sources.real_texts([tmp_path], 1500, 1)
    assert {kind: len(found) for kind, found in texts.items()} == {"Python": 3, "C": 1, "translations": 1}
    assert texts["C"] == ["int a;\n"]
    assert texts == text_sources.real_texts([tmp_path], 1500, 1)
