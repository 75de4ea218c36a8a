"""What a bundle is made of: its files, folders and links, and the two lists of them inside it.

share/aima/manifest.txt is for the launcher, which checks the bundle without any other program: one line for
each entry, sorted by the bytes of the path, itself left out. share/aima/manifest.json says the same of every
entry but the two lists, and whose each file is, under what licence, and why it is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

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
