"""A bundle against its own lists: as an archive, read once and never extracted, or as a folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from aimabuild.base.errors import AimaError, CheckFailedError, UsageError
from aimabuild.base.files import sha256_file
from aimabuild.bundle.archive import SUFFIX
from aimabuild.bundle.entries import (
    FILE,
    JSON_LIST,
    MAX_ENTRIES,
    TEXT_LIST,
    Entry,
    compare,
    json_entry,
    parse_list,
)
from aimabuild.bundle.tree import OTHER, scan
from aimabuild.bundle.unpack import TarReader, open_archive

KEPT = {
    TEXT_LIST,
    JSON_LIST,
    "share/aima/kernels.json",
    "share/aima/closure.json",
    "share/aima/build-info.json",
}
MAX_KEPT = 64 << 20
_MANIFEST_SCHEMA = "aima/manifest/v1"


@dataclass(frozen=True)
class Found:
    """What a bundle really holds. `texts` are the bytes of the lists; tar_* are None for a folder."""

    name: str
    entries: Mapping[str, Entry]
    texts: Mapping[str, bytes]
    problems: tuple[str, ...] = ()
    umask: int = 0
    tar_size: int | None = None
    tar_sha256: str | None = None

    def document(self, path: str) -> dict[str, Any]:
        """A JSON document of the bundle. AimaError when it is missing or damaged."""
        try:
            value = json.loads(self.texts[path], parse_constant=_no_constant, object_pairs_hook=_no_doubles)
        except KeyError:
            raise AimaError("the bundle lacks a document", where=f"{self.name}/{path}") from None
        except (ValueError, RecursionError) as error:
            raise AimaError(
                "a document of the bundle is damaged", where=f"{self.name}/{path}", why=str(error)
            ) from None
        if not isinstance(value, dict):
            raise AimaError(
                "a document of the bundle is damaged", where=f"{self.name}/{path}", why="no object"
            )
        return value


@dataclass(frozen=True)
class Report:
    """The outcome of a verification. `list_sha256` stands for the whole content of a bundle that verifies."""

    name: str
    problems: tuple[str, ...]
    entries: int
    size: int
    list_sha256: str | None
    tar_sha256: str | None
    archive_sha256: str | None

    def as_json(self) -> dict[str, Any]:
        """Schema aimabuild/verify/v1."""
        return {
            "schema": "aimabuild/verify/v1",
            "ok": not self.problems,
            **vars(self),
            "problems": list(self.problems),
        }


def _no_constant(text: str) -> None:
    raise ValueError(f"`{text}` is no JSON number")


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")
    return value


def read_bundle_files(path: Path, *, advance: Callable[[int], None] | None = None) -> Found:
    """Every entry of an archive or folder with its hash. AimaError when it cannot be read to its end."""
    if path.is_dir():
        return _read_folder(path, advance)
    if not path.is_file():
        raise UsageError("no such archive or folder", where=str(path))
    return _read_archive(path, advance)


def _read_folder(root: Path, advance: Callable[[int], None] | None) -> Found:
    entries = scan(root, advance=advance)
    problems = [f"{path}: is neither file, folder nor link" for path, e in entries.items() if e.kind == OTHER]
    texts = {path: _kept(root / path) for path in KEPT if path in entries and entries[path].kind == FILE}
    # A umask at extraction takes the same bits from everything; the top folder shows which.
    umask = 0o755 & ~entries["."].mode & 0o077
    return Found(root.resolve().name, entries, texts, tuple(problems), umask)


def _kept(path: Path) -> bytes:
    with path.open("rb") as file:
        return _limited(file, str(path))


def _limited(file: IO[bytes], where: str) -> bytes:
    data = file.read(MAX_KEPT + 1)
    if len(data) > MAX_KEPT:
        raise AimaError("a list of the bundle is too long", where=where)
    return data


def _read_archive(path: Path, advance: Callable[[int], None] | None) -> Found:
    entries: dict[str, Entry] = {}
    texts: dict[str, bytes] = {}
    problems: list[str] = []
    before = 0
    with open_archive(path) as reader:
        for member in reader:
            if member.problem is not None:
                problems.append(f"{member.name!r}: {member.problem}")
            else:
                entry = _with_hash(member.entry, reader, texts)
                entries[entry.path] = entry
            if len(entries) + len(problems) > MAX_ENTRIES:
                raise AimaError(f"more than {MAX_ENTRIES} entries", where=str(path))
            if advance is not None:
                advance(reader.size - before)
                before = reader.size
        return Found(reader.top, entries, texts, tuple(problems), 0, reader.size, reader.hexdigest())


def _with_hash(entry: Entry, reader: TarReader, texts: dict[str, bytes]) -> Entry:
    if entry.kind != FILE:
        return entry
    digest, parts = hashlib.sha256(), []
    keep = entry.path in KEPT and entry.size <= MAX_KEPT
    for chunk in reader.content():
        digest.update(chunk)
        if keep:
            parts.append(chunk)
    if keep:
        texts[entry.path] = b"".join(parts)
    return replace(entry, sha256=digest.hexdigest())


def verify(path: Path, *, advance: Callable[[int], None] | None = None) -> Report:
    """Check an archive or folder. Differences are in the report; AimaError when it cannot be read at all."""
    found = read_bundle_files(path, advance=advance)
    problems = list(found.problems)
    archive_hash = None
    if not path.is_dir():
        archive_hash = sha256_file(path)
        problems += _sidecar_problems(path, archive_hash)
        if path.name.endswith(SUFFIX) and path.name.removesuffix(SUFFIX) != found.name:
            problems.append(f"the archive is called {path.name} and its folder {found.name}")
    text = found.texts.get(TEXT_LIST)
    if text is None:
        problems.append(f"{TEXT_LIST}: is missing, so nothing can be compared")
    else:
        problems += _list_problems(found, text)
    return Report(
        name=found.name,
        problems=tuple(problems),
        entries=len(found.entries),
        size=sum(entry.size for entry in found.entries.values()),
        list_sha256=hashlib.sha256(text).hexdigest() if text is not None else None,
        tar_sha256=found.tar_sha256,
        archive_sha256=archive_hash,
    )


def _list_problems(found: Found, text: bytes) -> list[str]:
    try:
        wanted = parse_list(text, TEXT_LIST)
    except CheckFailedError as error:
        return [str(error)]
    have = {path: entry for path, entry in found.entries.items() if path != TEXT_LIST}
    problems = compare(wanted, have, umask=found.umask)
    own = found.entries[TEXT_LIST].mode
    if own != 0o644 & ~found.umask:
        problems.append(f"{TEXT_LIST}: the mode is {own:04o}, not {0o644 & ~found.umask:04o}")
    return problems + _manifest_problems(found, wanted)


def _manifest_problems(found: Found, wanted: Mapping[str, Entry]) -> list[str]:
    """manifest.json must say the same as manifest.txt of everything but the two themselves."""
    try:
        manifest = found.document(JSON_LIST)
        if manifest.get("schema") != _MANIFEST_SCHEMA:
            return [f"{JSON_LIST}: its schema is not {_MANIFEST_SCHEMA}"]
        listed = {}
        values = manifest.get("entries")
        if not isinstance(values, list) or len(values) > MAX_ENTRIES:
            return [f"{JSON_LIST}: `entries` is no list, or too long"]
        for value in values:
            entry = json_entry(value)
            if entry.path in listed:
                return [f"{JSON_LIST}: `{entry.path}` stands twice"]
            listed[entry.path] = entry
    except AimaError as error:
        return [str(error)]
    except ValueError as error:
        return [f"{JSON_LIST}: {error}"]
    rest = {path: entry for path, entry in wanted.items() if path != JSON_LIST}
    problems = [f"the two lists differ: {line}" for line in compare(rest, listed)]
    name = manifest.get("name")
    if not isinstance(name, str):
        problems.append(f"{JSON_LIST}: the bundle's `name` is no text")
    elif name != found.name and found.tar_size is not None:
        problems.append(f"{JSON_LIST}: the bundle is called {name[:100]}, its folder {found.name}")
    return problems


def _sidecar_problems(path: Path, digest: str) -> list[str]:
    sidecar = path.with_name(f"{path.name}.sha256")
    if not sidecar.is_file():
        return [f"{sidecar.name}: is missing beside the archive"]
    with sidecar.open("rb") as file:
        words = file.read(4096).decode(errors="replace").split()
    if words[:1] != [digest]:
        return [f"{sidecar.name}: says {words[0][:64] if words else 'nothing'}, the archive has {digest}"]
    return []


def require(report: Report, where: Path) -> None:
    """Raise `CheckFailedError` that lists every problem of the report, if there are any."""
    if report.problems:
        count = len(report.problems)
        raise CheckFailedError(
            f"{count} difference{'s' if count != 1 else ''} from the bundle's own list",
            where=str(where),
            why="\n    ".join(report.problems),
        )
