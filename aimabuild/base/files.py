"""Files that appear whole or not at all, and their digests."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aimabuild.base.errors import UsageError

_CHUNK = 1 << 20


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of the file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def sha256_bytes(data: bytes) -> str:
    """Hex SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


@contextmanager
def atomic_path(path: Path, *, mode: int = 0o644) -> Iterator[Path]:
    """A temporary path beside `path` that is renamed onto it on success and removed on failure.

    UsageError when `path` is there and is no regular file: a rename would put a file in the place of a device
    or a pipe, for every other program too.
    """
    _refuse_special(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def kind_of(mode: int) -> str:
    """What a reader calls a file of this `st_mode`."""
    names = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return names.get(stat.S_IFMT(mode), "no file")


def _refuse_special(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # nothing there, or nothing to be reached: writing says what is wrong
    if not stat.S_ISREG(mode):
        raise UsageError("only a regular file can be replaced", where=str(path), why=f"it is {kind_of(mode)}")


def write_bytes(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write `data` to `path`: readers see the old file or the new one, never a part."""
    with atomic_path(path, mode=mode) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    """`write_bytes` of UTF-8 text."""
    write_bytes(path, text.encode(), mode=mode)


def write_if_changed(path: Path, data: bytes) -> bool:
    """Write only when the content differs, so that build tools see no new time stamp; True if written."""
    if path.is_file() and path.read_bytes() == data:
        return False
    write_bytes(path, data)
    return True
