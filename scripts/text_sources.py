"""Texts to tokenise: random ones of every kind of character, and real ones that lie on this machine."""

from __future__ import annotations

import random
import struct
import sys
import sysconfig
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

ROOTS = (
    Path(sysconfig.get_paths()["stdlib"]),
    Path("/usr/share"),
    Path("/usr/include"),
    Path("/usr/lib/python3"),
)
LARGEST = 1 << 20  # bytes of one file
# Kinds of real text by the end of a file's name; files below .../locales have none.
_CODE = {
    ".py": "Python", ".c": "C", ".h": "C", ".cpp": "C++", ".hpp": "C++", ".js": "JavaScript",
    ".ts": "TypeScript", ".java": "Java", ".go": "Go", ".rs": "Rust", ".pl": "Perl", ".pm": "Perl",
    ".sh": "shell", ".tcl": "Tcl", ".el": "Lisp", ".zig": "Zig", ".lua": "Lua", ".vim": "Vim script",
    ".css": "CSS", ".html": "HTML", ".xml": "XML", ".json": "JSON", ".yaml": "YAML", ".toml": "TOML",
    ".cmake": "CMake", ".rst": "prose", ".md": "prose", ".txt": "prose", ".td": "TableGen", ".S": "assembly",
}  # fmt: skip
CONTRACTIONS = (
    "'s",
    "'S",
    "'\u017f",
    "'t",
    "'re",
    "'VE",
    "'m",
    "'LL",
    "'d",
    "'l",
    "'r",
    "'v",
    "''s",
    "\u2019s",
)
WORDS = (
    "the",
    "Brown",
    "FOX",
    "naïve",
    "straße",
    "функция",
    "être",
    "함수",
    "変数",
    "نص",
    "टोकन",
    "x_1",
    "3rd",
)
# Beside the surrogates, at the ends of planes, byte order marks, characters that no text should hold.
EDGES = ("\ud7ff", "\ue000", "\ufdd0", "\ufeff", "\ufffd", "\ufffe", "\uffff", "\U00010000", "\U0010ffff")
LINES = ("\r", "\n", "\r\n", " ", "  ", "\t", "\n\n", " \n", "\x0b", "\x85", "\u2028", "\u3000")


@cache
def _of_category(first: str) -> str:
    """Every code point whose general category begins so."""
    points = (chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000)
    return "".join(c for c in points if unicodedata.category(c).startswith(first))


@cache
def _composed() -> str:
    """Every character that NFD takes apart."""
    points = (chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000)
    return "".join(c for c in points if unicodedata.normalize("NFD", c) != c)


class RandomTexts:
    """Texts from one seed; `added`: the tokenizer's own tokens, whole and cut short."""

    def __init__(self, seed: int, added: Sequence[str]) -> None:
        self.random = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self.added = added
        pick = self.random.choice
        self.kinds: tuple[Callable[[], str], ...] = (
            self.any_plane,
            lambda: pick(_of_category("L")),
            lambda: self.some(_of_category("M"), 6),
            lambda: self.some(_of_category("N"), 4),
            lambda: self.some(_of_category("P") + _of_category("S"), 4),
            lambda: pick(_of_category("Z") + LINES[0] + LINES[1]) * self.random.randrange(1, 5),
            lambda: chr(self.random.randrange(0xA0)) * self.random.randrange(1, 4),
            lambda: unicodedata.normalize("NFD", pick(_composed())),
            lambda: pick(_composed()) + self.some(_of_category("M"), 3),
            lambda: chr(0x1100 + self.random.randrange(0x100)) + chr(0x1160 + self.random.randrange(0x60)),
            lambda: pick(CONTRACTIONS),
            lambda: pick(WORDS),
            lambda: pick(EDGES),
            lambda: pick(LINES) * self.random.randrange(1, 4),
            self.token,
            self.run,
            lambda: self.some("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789 .,;:!?(){}[]<>=-+*/_#'\"", 20),
        )

    def any_plane(self) -> str:
        """A scalar value, assigned or not."""
        point = self.random.randrange(0x110000 - 0x800)
        return chr(point + 0x800 if point >= 0xD800 else point)

    def some(self, of: str, most: int) -> str:
        """1 to `most` characters of a string."""
        return "".join(self.random.choices(of, k=self.random.randrange(1, most + 1)))

    def token(self) -> str:
        """An added token, or all but its last character."""
        token = self.random.choice(self.added)
        return token if self.random.random() < 0.5 else token[:-1]

    def run(self) -> str:
        """One letter many times."""
        return self.random.choice("aaz =-_é天\u0301\U0001f600") * self.random.randrange(20, 120)

    def text(self) -> str:
        """1 to 40 pieces in a row."""
        return "".join(self.random.choice(self.kinds)() for _ in range(self.random.randrange(1, 41)))


def messages(path: Path) -> Iterator[str]:
    """The translations in a compiled message catalogue (.mo) that are UTF-8."""
    data = path.read_bytes()
    if len(data) < 28:
        return
    order = {0x950412DE: "<", 0xDE120495: ">"}.get(struct.unpack_from("<I", data)[0])
    if order is None:
        return
    count, _, table = struct.unpack_from(f"{order}3I", data, 8)
    for i in range(count):
        length, start = struct.unpack_from(f"{order}2I", data, table + 8 * i)
        try:
            yield data[start : start + length].decode()
        except UnicodeDecodeError:
            return


def kind_of(path: Path) -> str | None:
    """What a file holds, by its name."""
    if path.suffix == ".mo":
        return "translations"
    if path.parent.name == "locales":
        return "locale definitions"
    return _CODE.get(path.suffix)


def real_texts(roots: Sequence[Path], limit: int, seed: int) -> dict[str, list[str]]:
    """Texts by kind: up to `limit` bytes of each, from files taken in random order below the roots."""
    found: dict[str, list[Path]] = {}
    for root in roots:
        for path in sorted(root.rglob("*")):
            if kind := kind_of(path):
                found.setdefault(kind, []).append(path)
    texts: dict[str, list[str]] = {}
    for kind, paths in sorted(found.items()):
        random.Random(seed).shuffle(paths)  # noqa: S311
        size = 0
        for path in paths:
            if size >= limit:
                break
            if not path.is_file() or path.stat().st_size > LARGEST:
                continue
            text = "\n".join(messages(path)) if path.suffix == ".mo" else read(path)
            # A zero byte means that it is no text; between the plurals of a translation it is at home.
            if text and ("\0" not in text or path.suffix == ".mo"):
                texts.setdefault(kind, []).append(text)
                size += len(text.encode())
    return texts


def read(path: Path) -> str:
    """A file's text; "" when it cannot be read. What is no UTF-8 is replaced, as the engine would."""
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
