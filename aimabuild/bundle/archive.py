"""One folder as NAME.tar.zst: the same bytes from the same content, whatever wrote it and where.

The tar is GNU format with every field fixed: sorted by the bytes of the path, owner 0, one time stamp, modes
0755 and 0644. It is compressed in this process with every parameter stated. Compression in several threads
gives the same bytes for any number of them, one included, but others than without threads; so it always runs
with threads. Another version of the library may give other bytes: its version is recorded, and so is the hash
of the tar, which does not depend on it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import zstandard

from aimabuild.base.errors import AimaError
from aimabuild.base.files import atomic_path, sha256_file
from aimabuild.bundle.entries import FILE, FOLDER, LINK, Entry

# Measured on a bundle of 278 MB: level 12 alone 79.0 MB in 30 s of CPU; with long-distance matching over
# 64 MB 73.7 MB in 38 s; level 13 then needs 95 s and gains nothing. Such a window needs no option to unpack.
LEVEL = 12
WINDOW_LOG = 26
JOB_BYTES = 32 << 20
MAX_THREADS = 8  # for speed alone: the bytes are the same
TIME = 315532800  # 1980-01-01: tar warns about older ones
SUFFIX = ".tar.zst"
_CHUNK = 1 << 20
BLOCK = 512
_MODES = {FILE: {0o644, 0o755}, FOLDER: {0o755}, LINK: {0o777}}


@dataclass(frozen=True)
class Sealed:
    """An archive that was written. Sizes in bytes."""

    path: Path
    size: int
    sha256: str
    tar_size: int
    tar_sha256: str

    def compressor(self) -> dict[str, object]:
        """What compressed it, as release.json says it."""
        return compressor_facts()


def compressor_facts() -> dict[str, object]:
    """The compressor: library version and the parameters that the bytes depend on."""
    version = ".".join(map(str, zstandard.ZSTD_VERSION))
    parameters = {"level": LEVEL, "window_log": WINDOW_LOG, "long_distance": True, "job_bytes": JOB_BYTES}
    return {"name": "zstd", "version": version, **parameters, "threads": True}


def info_of(name: str, entry: Entry) -> tarfile.TarInfo:
    """The member of an entry, every field fixed. AimaError for a mode or type that no bundle has."""
    if entry.mode not in _MODES.get(entry.kind, set()):
        raise AimaError(
            "an entry cannot be archived", where=entry.path, why=f"type {entry.kind}, mode {entry.mode:04o}"
        )
    path = name if entry.path == "." else f"{name}/{entry.path}"
    info = tarfile.TarInfo(path)
    info.mode, info.mtime, info.size = entry.mode, TIME, entry.size
    info.type = {FILE: tarfile.REGTYPE, FOLDER: tarfile.DIRTYPE, LINK: tarfile.SYMTYPE}[entry.kind]
    info.linkname = entry.target or ""
    return info


def header_of(info: tarfile.TarInfo) -> bytes:
    """The header blocks of a member, long names included."""
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict")


def tar_size(name: str, entries: Mapping[str, Entry]) -> int:
    """Bytes of the tar of `entries`, without making it."""
    total = sum(len(header_of(info_of(name, entry))) + padded(entry.size) for entry in entries.values())
    return rounded(total + 2 * BLOCK, tarfile.RECORDSIZE)


def padded(size: int) -> int:
    """The room that a content takes in a tar."""
    return rounded(size, BLOCK)


def rounded(size: int, unit: int) -> int:
    """`size` up to a whole number of units."""
    return (size + unit - 1) // unit * unit


def tar_chunks(root: Path, name: str, entries: Mapping[str, Entry]) -> Iterator[bytes]:
    """The tar, piece by piece. AimaError when a file is no longer what its entry says."""
    written = 0
    for path in sorted(entries, key=lambda path: (path != ".", path.encode())):
        entry = entries[path]
        header = header_of(info_of(name, entry))
        written += len(header) + padded(entry.size)
        yield header
        if entry.kind == FILE:
            yield from _content(root / path, entry)
            yield b"\0" * (padded(entry.size) - entry.size)
    yield b"\0" * (rounded(written + 2 * BLOCK, tarfile.RECORDSIZE) - written)


def _content(path: Path, entry: Entry) -> Iterator[bytes]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            yield chunk
    if size != entry.size or digest.hexdigest() != entry.sha256:
        raise AimaError("a file changed while it was archived", where=str(path))


def write_archive(
    root: Path,
    name: str,
    entries: Mapping[str, Entry],
    folder: Path,
    *,
    level: int = LEVEL,
    threads: int | None = None,
    advance: Callable[[int], None] | None = None,
) -> Sealed:
    """Write `folder`/NAME.tar.zst of the bundle at `root` and return its hashes; `advance` is told tar bytes.

    The archive appears whole or not at all. AimaError when the disk is full or a file has changed.
    """
    size = tar_size(name, entries)
    digest = hashlib.sha256()
    target = folder / f"{name}{SUFFIX}"
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level,
        source_size=size,
        threads=threads or min(MAX_THREADS, len(os.sched_getaffinity(0))),
        job_size=JOB_BYTES,
        window_log=WINDOW_LOG,
        enable_ldm=True,
        write_checksum=True,
        write_content_size=True,
    )
    with _disk_errors(target), atomic_path(target) as temporary:
        with temporary.open("wb") as output:
            compressor = zstandard.ZstdCompressor(compression_params=parameters)
            # Not as a context: leaving it on an error would end the frame, and complain of its size instead.
            stream = compressor.stream_writer(output, size=size, closefd=False)
            for chunk in tar_chunks(root, name, entries):
                digest.update(chunk)
                stream.write(chunk)
                if advance is not None:
                    advance(len(chunk))
            stream.flush(zstandard.FLUSH_FRAME)
            output.flush()
            os.fsync(output.fileno())
        packed_size, packed_hash = temporary.stat().st_size, sha256_file(temporary)
    return Sealed(target, packed_size, packed_hash, size, digest.hexdigest())


@contextmanager
def _disk_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno == errno.ENOSPC
        hint = f"free some space in {target.parent}; nothing was left behind" if full else None
        raise AimaError(
            "the archive cannot be written", where=str(target), why=error.strerror, hint=hint
        ) from None
