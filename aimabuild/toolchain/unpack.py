"""Unpack .deb files (ar, tar, xz/zstd/gz) and wheels into a tree, in Python, trusting nothing in them.

Refused: absolute paths, `..`, links that leave the tree, anything written through a link, devices and pipes.
Modes become 0755 or 0644 and times one constant, so that a tree depends on its archives alone.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import lzma
import os
import posixpath
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import zstandard

from aimabuild.base.errors import AimaError

_CHUNK = 1 << 18
_TIME = 946684800  # 2000-01-01: older than any build output, the same on every host
_AR_MAGIC = b"!<arch>\n"
Wants = Callable[[str], bool]


@dataclass(frozen=True)
class Entry:
    """One file or link of a tree. `sha256` and `size` are of the content; a link has `target` instead."""

    mode: int
    size: int
    sha256: str
    target: str
    source: str


class TreeWriter:
    """Writes below `root` and remembers what it wrote. `source` names the package."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.entries: dict[str, Entry] = {}
        self._folders: set[str] = {""}

    def file(self, path: str, mode: int, stream: IO[bytes], source: str) -> None:
        """Write one regular file."""
        self._parents(path, source)
        digest, size = hashlib.sha256(), 0
        full = self.root / path
        mode = 0o755 if mode & 0o111 else 0o644
        self._refuse_second(path, source)
        with full.open("xb") as output:
            while chunk := stream.read(_CHUNK):
                output.write(chunk)
                digest.update(chunk)
                size += len(chunk)
            os.fchmod(output.fileno(), mode)
        os.utime(full, (_TIME, _TIME))
        self.entries[path] = Entry(mode, size, digest.hexdigest(), "", source)

    def link(self, path: str, target: str, source: str) -> None:
        """Write one symbolic link, whose target must stay inside the tree."""
        if target.startswith("/") or not _inside(posixpath.join(posixpath.dirname(path), target)):
            raise _refused(source, path, f"it links to `{target}`, outside the tree")
        old = self.entries.get(path)
        if old is not None and old.target == target:
            return
        self._parents(path, source)
        self._refuse_second(path, source)
        (self.root / path).symlink_to(target)
        self.entries[path] = Entry(0o777, 0, "", target, source)

    def hard_link(self, path: str, target: str, source: str) -> None:
        """Write a copy of a file that was written before (a hard link of an archive)."""
        old = self.entries.get(target)
        if old is None or old.target:
            raise _refused(source, path, f"it is a hard link to `{target}`, which is no file of the tree")
        with (self.root / target).open("rb") as stream:
            self.file(path, old.mode, stream, source)

    def folder(self, path: str, source: str) -> None:
        """Make one folder and those above it."""
        self._parents(f"{path}/x", source)

    def _parents(self, path: str, source: str) -> None:
        parent = posixpath.dirname(path)
        if parent in self._folders:
            return
        self._parents(parent, source)
        if parent in self.entries:
            raise _refused(source, path, f"`{parent}` is a file or link already")
        (self.root / parent).mkdir(mode=0o755)
        self._folders.add(parent)

    def _refuse_second(self, path: str, source: str) -> None:
        if path in self.entries:
            raise _refused(source, path, f"{self.entries[path].source} holds it too")
        if path in self._folders:
            raise _refused(source, path, "it is a folder already")


def unpack_deb(path: Path, writer: TreeWriter, wants: Wants, source: str) -> None:
    """Unpack the data archive of a .deb. AimaError when it is damaged or holds what is refused."""
    with (
        _readable(path, source),
        path.open("rb") as file,
        _data_stream(file) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        for member in archive:
            name = _safe(member.name, source)
            if name and wants(name):
                _unpack_member(archive, member, name, writer, source)


def _unpack_member(
    archive: tarfile.TarFile, member: tarfile.TarInfo, name: str, writer: TreeWriter, source: str
) -> None:
    if member.isdir():
        return  # made when something is put into it
    if member.issym():
        writer.link(name, member.linkname, source)
    elif member.islnk():
        writer.hard_link(name, _safe(member.linkname, source), source)
    elif member.isreg():
        stream = archive.extractfile(member)
        assert stream is not None  # noqa: S101 - a regular file has content
        writer.file(name, member.mode, stream, source)
    else:
        raise _refused(source, name, "it is a device or a pipe")


def unpack_wheel(path: Path, writer: TreeWriter, wants: Wants, source: str) -> None:
    """Unpack a wheel as its files lie in it. AimaError when it is damaged or holds what is refused."""
    with _readable(path, source), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = _safe(member.filename, source)
            mode = member.external_attr >> 16
            if not name or member.is_dir() or not wants(name):
                continue
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise _refused(source, name, "it is no regular file")
            with archive.open(member) as stream:
                writer.file(name, mode, stream, source)


_DAMAGE = (
    *(
        tarfile.TarError,
        zipfile.BadZipFile,
        lzma.LZMAError,
        zstandard.ZstdError,
        gzip.BadGzipFile,
        zlib.error,
    ),
    *(struct.error, EOFError, ValueError, RuntimeError),
)


@contextmanager
def _readable(path: Path, source: str) -> Iterator[None]:
    """Turn what the readers raise for a damaged archive into one AimaError; a full disk passes as it is."""
    try:
        yield
    except (*_DAMAGE, OSError) as error:
        # A damaged offset or name reaches the system as an invalid seek or an impossible path.
        wild = isinstance(error, OSError) and error.errno in (errno.EINVAL, errno.ENAMETOOLONG, errno.EILSEQ)
        if not (wild or isinstance(error, _DAMAGE)):
            raise
        why = f"{type(error).__name__}: {error}"
        raise AimaError(f"{source} cannot be unpacked", where=str(path), why=why) from error


def _safe(name: str, source: str) -> str:
    """The member's path, relative and plain; "" for the root itself."""
    if name.startswith("/") or "\\" in name or "\0" in name or ".." in name.split("/"):
        raise _refused(source, name, "its path leaves the tree")
    plain = posixpath.normpath(name)
    return "" if plain == "." else plain


def _inside(path: str) -> bool:
    plain = posixpath.normpath(path)
    return not (plain.startswith(("/", "../")) or plain == "..")


def _refused(source: str, path: str, why: str) -> AimaError:
    return AimaError(
        f"{source}: the member `{path}` is refused", why=why, hint="report this: the archive is not sound"
    )


@contextmanager
def _data_stream(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """The decompressed data.tar of a .deb that stands open at its start."""
    if file.read(len(_AR_MAGIC)) != _AR_MAGIC:
        raise ValueError("it is no ar archive")
    while header := file.read(60):
        if len(header) < 60 or header[58:] != b"`\n":
            raise ValueError("its ar header is damaged")
        name, size = header[:16].decode("ascii", "replace").rstrip("/ "), int(header[48:58])
        if name.startswith("data.tar"):
            with _decompressed(name, _Window(file, size)) as stream:
                yield stream
            return
        file.seek(size + size % 2, io.SEEK_CUR)
    raise ValueError("it has no data.tar")


@contextmanager
def _decompressed(name: str, window: _Window) -> Iterator[IO[bytes]]:
    kind = posixpath.splitext(name)[1]
    raw = io.BufferedReader(window, _CHUNK)
    if kind == ".xz":
        with lzma.open(raw) as stream:
            yield stream
    elif kind == ".gz":
        with gzip.open(raw) as unzipped:
            yield unzipped  # type: ignore[misc]
    elif kind == ".zst":
        with zstandard.ZstdDecompressor().stream_reader(raw, closefd=False) as reader:
            yield io.BufferedReader(reader, _CHUNK)
    elif kind == ".tar":
        yield raw
    else:
        raise ValueError(f"its data archive `{name}` has an unknown compression")


class _Window(io.RawIOBase):
    """The next `size` bytes of a file, as a file of its own."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        super().__init__()
        self._file = file
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._file.read(min(len(buffer), self._left))
        if not data and self._left:
            raise EOFError("the file is cut off")
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


def remove_tree(path: Path) -> None:
    """Remove a folder that may not exist."""
    shutil.rmtree(path, ignore_errors=True)
