"""What a bundle is made of: its files, folders and links, and the two lists of them inside it.

share/aima/manifest.txt is for the launcher, which checks the bundle without any other program: one line for
each entry, sorted by the bytes of the path, itself left out. share/aima/manifest.json says the same of every
entry but the two lists, and whose each file is, under what licence, and why it is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from aimabuild.base.errors import CheckFailedError

TEXT_LIST = "share/aima/manifest.txt"
JSON_LIST = "share/aima/manifest.json"
HEADER = "aima-manifest-v1"
MAX_LIST_BYTES = 16 << 20
MAX_ENTRIES = 100_000
MAX_DEPTH = 32
FILE, FOLDER, LINK = "f", "d", "l"

_LINE = re.compile(r"([fdl]) ([0-7]{4}) (0|[1-9][0-9]{0,14}) ([0-9a-f]{64}|-) ([^\t]+)(?:\t(.+))?\Z")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, order=True)
class Entry:
    """One file ("f"), folder ("d") or link ("l"). `path` is relative to the bundle, "." the bundle itself.

    mode: permission bits. size, sha256: of a file's content, else 0 and "-". target: where a link leads.
    """

    path: str
    kind: str
    mode: int
    size: int = 0
    sha256: str = "-"
    target: str | None = None

    def line(self) -> str:
        """The entry as manifest.txt has it, without the newline."""
        tail = f"\t{self.target}" if self.target is not None else ""
        return f"{self.kind} {self.mode:04o} {self.size} {self.sha256} {self.path}{tail}"


def safe_path(path: str) -> str | None:
    """Why `path` may not be in a bundle, or None. Paths are relative, normal, printable, not too deep."""
    parts = path.split("/")
    if path == ".":
        return None
    if not path or path.startswith("/"):
        return "it is not relative"
    if any(part in {"", ".", ".."} for part in parts):
        return "it is not a plain path"
    if _UNSAFE.search(path):
        return "it holds a control character"
    if len(parts) > MAX_DEPTH or len(path.encode("utf-8", "surrogateescape")) > 1024:
        return "it is too deep or too long"
    return None


def safe_target(path: str, target: str) -> str | None:
    """Why the link `path` may not lead to `target`, or None. The target must stay inside, by its text."""
    if not target or target.startswith("/") or _UNSAFE.search(target):
        return "its target is not a plain relative path"
    if len(target) > 1024:
        return "its target is too long"
    at = list(PurePosixPath(path).parent.parts)
    for part in target.split("/"):
        if part == "..":
            if not at:
                return "it leads out of the bundle"
            at.pop()
        elif part not in {"", "."}:
            at.append(part)
    return None


def by_bytes(entry: Entry) -> bytes:
    """Sort key: the order that the launcher's strcmp knows, whatever the locale."""
    return entry.path.encode()


def list_text(entries: Iterable[Entry]) -> str:
    """manifest.txt of `entries`."""
    ordered = sorted(entries, key=by_bytes)
    return "".join([f"{HEADER} {len(ordered)}\n", *(f"{entry.line()}\n" for entry in ordered)])


def parse_list(data: bytes, where: str) -> dict[str, Entry]:
    """The entries of a manifest.txt by path. Raises `CheckFailedError` with the line that does not fit."""

    def damaged(line: int, why: str) -> CheckFailedError:
        return CheckFailedError("the list of the bundle is damaged", where=f"{where}:{line}", why=why)

    if len(data) > MAX_LIST_BYTES:
        raise damaged(1, f"it has more than {MAX_LIST_BYTES} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise damaged(1, "it is not UTF-8") from None
    lines = text.split("\n")
    head = re.match(rf"{HEADER} (0|[1-9][0-9]{{0,5}})\Z", lines[0])
    if not head or lines[-1] != "":
        raise damaged(1, f"it does not start with `{HEADER} COUNT`, or has no end")
    if int(head[1]) != len(lines) - 2 or int(head[1]) > MAX_ENTRIES:
        raise damaged(1, f"{head[1]} entries are announced and {len(lines) - 2} listed")
    entries: dict[str, Entry] = {}
    last = b""
    for number, line in enumerate(lines[1:-1], 2):
        entry = _entry(line)
        if isinstance(entry, str):
            raise damaged(number, entry)
        if entries and by_bytes(entry) <= last:
            raise damaged(number, f"`{entry.path}` is out of order")
        last = by_bytes(entry)
        entries[entry.path] = entry
    return entries


def _entry(line: str) -> Entry | str:
    match = _LINE.match(line)
    if not match:
        return "it is no entry"
    kind, mode, size, sha256, path, target = match.groups()
    if (kind == FILE) != (sha256 != "-") or (kind == LINK) != (target is not None):
        return f"`{path}` has fields of another type"
    why = safe_path(path) or (safe_target(path, target) if target is not None else None)
    if why:
        return f"`{path}`: {why}"
    return Entry(path, kind, int(mode, 8), int(size), sha256, target)


_FIELDS = {FILE: {"size", "sha256"}, FOLDER: set[str](), LINK: {"target"}}


def json_entry(value: Any) -> Entry:
    """One entry of manifest.json. ValueError with the reason for anything that is not exactly one."""
    if not isinstance(value, Mapping):
        raise ValueError("it holds something that is no object")  # noqa: TRY004 - what callers expect
    path, kind, mode = value.get("path"), value.get("type"), value.get("mode")
    if not isinstance(path, str) or safe_path(path) is not None:
        raise ValueError(f"an entry has no sound `path` ({_short(path)})")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise ValueError(f"`{path}`: `type` is {_short(kind)}, not one of d, f, l")
    if not isinstance(mode, str) or not re.fullmatch("[0-7]{4}", mode):
        raise ValueError(f"`{path}`: `mode` is {_short(mode)}, not four octal digits")
    here = {name for name in ("size", "sha256", "target") if name in value}
    if here != _FIELDS[kind]:
        raise ValueError(f"`{path}`: it has the fields of another type")
    size, sha256, target = value.get("size", 0), value.get("sha256", "-"), value.get("target")
    if type(size) is not int or not 0 <= size < 10**15:
        raise ValueError(f"`{path}`: `size` is {_short(size)}, not a number of bytes")
    if kind == FILE and not (isinstance(sha256, str) and re.fullmatch("[0-9a-f]{64}", sha256)):
        raise ValueError(f"`{path}`: `sha256` is {_short(sha256)}, not a hash")
    if kind == LINK and not (isinstance(target, str) and safe_target(path, target) is None):
        raise ValueError(f"`{path}`: `target` is {_short(target)}, which no link of a bundle has")
    return Entry(path, kind, int(mode, 8), size, sha256, target)


def _short(value: Any) -> str:
    """A value of a damaged list, of any type and length, for a message of one line."""
    if isinstance(value, str | int | float | None):
        text = ascii(value) if not isinstance(value, int) or abs(value) < 10**40 else "a huge number"
        return text if len(text) <= 60 else text[:57] + "..."
    return "a list" if isinstance(value, list) else "an object"


def compare(wanted: dict[str, Entry], found: dict[str, Entry], *, umask: int = 0) -> list[str]:
    """Every difference, one line each, by path. `umask`: permission bits that extraction took everywhere."""
    lines: list[str] = []
    for path in sorted({*wanted, *found}):
        want, have = wanted.get(path), found.get(path)
        if want is None:
            lines.append(f"{path}: is not in the list")
        elif have is None:
            lines.append(f"{path}: is missing")
        elif want.kind != have.kind:
            names = {FILE: "a file", FOLDER: "a folder", LINK: "a link"}
            lines.append(f"{path}: is {names.get(have.kind, 'something else')}, not {names[want.kind]}")
        else:
            lines += [f"{path}: {what}" for what in _changes(want, have, umask)]
    return lines


def _changes(want: Entry, have: Entry, umask: int) -> list[str]:
    changes: list[str] = []
    if want.kind != LINK and have.mode != want.mode & ~umask:
        changes.append(f"the mode is {have.mode:04o}, not {want.mode & ~umask:04o}")
    if want.target != have.target:
        changes.append(f"leads to `{have.target}`, not `{want.target}`")
    if want.size != have.size:
        changes.append(f"has {have.size} bytes, not {want.size}")
    elif want.sha256 != have.sha256:
        changes.append("the content differs")
    return changes
