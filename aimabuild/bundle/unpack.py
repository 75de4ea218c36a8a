"""Reads an archive as a stream: what is in it, without trusting its sizes, names or order.

Only what `archive` writes is understood: GNU headers with long names, files, folders and links. Every header
is written once more from what was read and compared, so that nothing can hide in a field of it.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import zstandard

from aimabuild.base.errors import AimaError, CheckFailedError
from aimabuild.bundle.archive import BLOCK, header_of, info_of, padded, rounded
from aimabuild.bundle.entries import FILE, FOLDER, LINK, Entry, safe_path, safe_target

MAX_TAR = 64 << 30
_MAX_NAME = 4096
_CHUNK = 1 << 20
_INPUT = 4096
_LONG = {tarfile.GNUTYPE_LONGNAME: "name", tarfile.GNUTYPE_LONGLINK: "linkname"}
_KINDS = {tarfile.REGTYPE: FILE, tarfile.AREGTYPE: FILE, tarfile.DIRTYPE: FOLDER, tarfile.SYMTYPE: LINK}


@dataclass(frozen=True)
class Member:
    """One member: its entry without a hash, and why it may not be in a bundle, or None."""

    name: str
    entry: Entry
    problem: str | None


class TarReader:
    """Members of a tar in order. Between two of them, `content` gives the bytes of the current one."""

    def __init__(self, source: _Frame, announced: int) -> None:
        self.size = 0
        self.top = ""
        self._source = source
        self._announced = announced
        self._hash = hashlib.sha256()
        self._left = 0
        self._padding = 0
        self._entries: dict[str, str] = {}

    def hexdigest(self) -> str:
        """SHA-256 of the tar as far as it was read."""
        return self._hash.hexdigest()

    def _read(self, size: int) -> bytes:
        if self.size + size > self._announced:
            raise tarfile.ReadError("it is longer than it says")
        parts: list[bytes] = []
        left = size
        while left and (part := self._source.read(min(left, _CHUNK))):
            parts.append(part)
            left -= len(part)
        data = b"".join(parts)
        self.size += len(data)
        self._hash.update(data)
        if left:
            raise tarfile.ReadError("it is cut short")
        return data

    def content(self) -> Iterator[bytes]:
        """The current member's bytes, piece by piece."""
        while self._left:
            data = self._read(min(self._left, _CHUNK))
            self._left -= len(data)
            yield data
        if self._read(self._padding).strip(b"\0"):
            raise tarfile.ReadError("there is something between two members")
        self._padding = 0

    def __iter__(self) -> Iterator[Member]:
        while True:
            for _ in self.content():
                pass
            member = self._member()
            if member is None:
                break
            yield member
        # One end block was read. Another follows, and padding to a whole record.
        end = rounded(self.size + BLOCK, tarfile.RECORDSIZE)
        if end != self._announced:
            raise tarfile.ReadError(f"it has {self._announced} bytes, not {end}")
        if self._read(end - self.size).strip(b"\0"):
            raise tarfile.ReadError("there is something behind its end")

    def _member(self) -> Member | None:
        blocks = self._read(BLOCK)
        if not blocks.strip(b"\0"):
            return None
        info = tarfile.TarInfo.frombuf(blocks, "utf-8", "strict")
        longer: dict[str, str] = {}
        while info.type in _LONG:
            if not 0 < info.size <= _MAX_NAME or _LONG[info.type] in longer:
                raise tarfile.ReadError("a name is too long")
            data = self._read(padded(info.size))
            longer[_LONG[info.type]] = data[: info.size].rstrip(b"\0").decode()
            header = self._read(BLOCK)
            blocks += data + header
            info = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
        info.name = longer.get("name", info.name)
        info.linkname = longer.get("linkname", info.linkname)
        if info.size < 0 or (info.size and info.type not in {tarfile.REGTYPE, tarfile.AREGTYPE}):
            raise tarfile.ReadError(f"{info.name!r} has a size that does not fit its type")
        self._left, self._padding = info.size, padded(info.size) - info.size
        return self._judge(info, blocks)

    def _judge(self, info: tarfile.TarInfo, blocks: bytes) -> Member:
        name = info.name.rstrip("/")
        self.top = self.top or name.split("/", 1)[0]
        path = "." if name == self.top else name.removeprefix(f"{self.top}/")
        kind = _KINDS.get(info.type, "?")
        entry = Entry(path, kind, info.mode, info.size, target=info.linkname if kind == LINK else None)
        problem = self._problem(name, entry, blocks)
        if problem is None:
            self._entries[path] = kind
        return Member(name, entry, problem)

    def _problem(self, name: str, entry: Entry, blocks: bytes) -> str | None:
        path = entry.path
        if safe_path(self.top) or "/" in self.top or (path != "." and path == name):
            return f"lies outside the one top folder `{self.top}`"
        if entry.kind == "?":
            return "is neither file, folder nor link"
        why = safe_path(path) or (safe_target(path, entry.target) if entry.target is not None else None)
        if why:
            return why
        if path in self._entries:
            return "stands twice"
        if path != "." and self._entries.get(path.rpartition("/")[0] or ".") != FOLDER:
            return "has no folder before it that holds it"
        try:
            same = header_of(info_of(self.top, entry)) == blocks
        except AimaError as error:
            return error.why
        return None if same else "has a header that aimabuild does not write (owner, time or other fields)"


class _Frame:
    """The content of one zstd frame, fed in small pieces, since each may stand for 30,000 times as much."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._frame = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        self._ready = memoryview(b"")

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; nothing at the end of the frame."""
        while not self._ready and not self._frame.eof:
            data = self._file.read(_INPUT)
            if not data:
                raise tarfile.ReadError("it is cut short")
            self._ready = memoryview(self._frame.decompress(data))
        part, self._ready = bytes(self._ready[:size]), self._ready[size:]
        return part

    def finish(self) -> None:
        """The frame, its checksum included, must end here, and the file with it."""
        if self.read(1):
            raise tarfile.ReadError("it is longer than it says")
        if self._frame.unused_data or self._file.read(1):
            raise tarfile.ReadError("there is something behind its end")


@contextmanager
def open_archive(archive: Path) -> Iterator[TarReader]:
    """The tar inside an archive.

    CheckFailedError for one that is damaged, cut short or goes on behind its end, AimaError for one that the
    system cannot read.
    """
    try:
        with archive.open("rb") as file:
            head = file.read(64)
            file.seek(0)
            announced = zstandard.get_frame_parameters(head).content_size
            if not 0 < announced <= MAX_TAR:
                why = f"it must state its size, of at most {MAX_TAR} bytes"
                raise CheckFailedError("the archive is damaged", where=str(archive), why=why)
            frame = _Frame(file)
            yield TarReader(frame, int(announced))
            frame.finish()
    except OSError as error:
        why = error.strerror or str(error)
        raise AimaError("the archive cannot be read", where=str(archive), why=why) from None
    except (zstandard.ZstdError, tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise CheckFailedError("the archive is damaged", where=str(archive), why=str(error)) from None


def extract(archive: Path, folder: Path) -> Path:
    """Unpack into the existing `folder` and return the bundle. AimaError for anything that may not be there.

    Members come in an order that `TarReader` has checked: a parent first, links never parents, names once.
    """
    with open_archive(archive) as reader:
        for member in reader:
            if member.problem is not None:
                raise AimaError("the archive holds what no bundle has", where=member.name, why=member.problem)
            entry = member.entry
            path = folder / reader.top / entry.path
            if entry.kind == FOLDER:
                path.mkdir()
                path.chmod(entry.mode)
            elif entry.kind == LINK:
                path.symlink_to(entry.target or "")
            else:
                with path.open("xb") as file:
                    file.writelines(reader.content())
                path.chmod(entry.mode)
        return folder / reader.top
