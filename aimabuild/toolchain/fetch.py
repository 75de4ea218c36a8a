"""Fetch one Debian file by path and sha256 over http(s) or file, resuming what was cut off.

Every error leaves the cache intact: a file gets its final name only after its size and hash are right.
"""

from __future__ import annotations

import http.client
import io
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from aimabuild import __version__
from aimabuild.base.errors import AimaError
from aimabuild.base.files import sha256_file
from aimabuild.schema.lock import DebianPackage
from aimabuild.toolchain.cache import Cache
from aimabuild.toolchain.mirror import file_url

_CHUNK = 1 << 18
_ATTEMPTS = 3
_PAUSE = 1.0  # seconds before the second attempt, twice that before the third
_TIMEOUT = 60  # seconds without a byte
Advance = Callable[[int], None]


class _MissingError(Exception):
    """The mirror answers, and does not have the file."""


class _BrokenError(Exception):
    """The transfer ended early or failed; another attempt may go on from there."""


def fetch_package(package: DebianPackage, mirrors: Sequence[str], cache: Cache, advance: Advance) -> int:
    """Put the file into the cache; returns the bytes that came over the network (0 when it was there).

    `advance` gets byte counts as they arrive (negative when a bad part is thrown away). AimaError on failure.
    """
    with cache.lock(package.sha256):
        if cache.has_file(package.sha256, package.size):
            advance(package.size)
            return 0
        final = cache.file(package.sha256)
        final.unlink(missing_ok=True)  # wrong size: damaged
        partial = final.with_suffix(".partial")
        for mirror in mirrors:
            try:
                fetched = _fetch(package, file_url(mirror, package.path), partial, advance)
            except _MissingError:
                continue
            partial.replace(final)
            return fetched
    raise AimaError(
        f"{package.name} {package.version} is no longer on the mirror",
        where=file_url(mirrors[0], package.path),
        why="the suite that it was locked from has moved on",
        hint="run `aimabuild toolchain lock --relock-missing`, or name another mirror with `--mirror URL`",
    )


def is_on_mirror(package: DebianPackage, mirrors: Sequence[str]) -> bool:
    """Ask every mirror for the file's first byte. AimaError when a mirror cannot be reached."""
    for mirror in mirrors:
        url = file_url(mirror, package.path)
        try:
            with _open(url, {"Range": "bytes=0-0"}) as reply:
                reply.read(1)
        except _MissingError:
            continue
        except _BrokenError as error:
            raise AimaError("the mirror's answer broke off", where=url, why=str(error)) from error
        return True
    return False


def _fetch(package: DebianPackage, url: str, partial: Path, advance: Advance) -> int:
    """Download until size and hash are right; returns the bytes moved. AimaError when that cannot be."""
    fetched, broken = 0, []
    for attempt in range(_ATTEMPTS):
        time.sleep(_PAUSE * attempt)
        try:
            moved = _transfer(url, partial, package.size, advance)
        except _BrokenError as error:
            broken.append(str(error))
            continue
        fetched += moved
        actual = sha256_file(partial)
        if actual == package.sha256:
            return fetched
        advance(-package.size)
        partial.unlink()
        if moved == package.size:  # it came in one piece, so it was not put together badly here
            raise AimaError(
                f"{package.name} from the mirror has the wrong hash",
                where=url,
                why=f"expected sha256 {package.sha256}, got {actual}",
                hint="do not use that mirror's copy; try another mirror with `--mirror URL`",
            )
    raise AimaError(
        f"the download of {package.name} broke off {len(broken)} times",
        where=url,
        why="; ".join(dict.fromkeys(broken)),
        hint="run the command again: it goes on from there; or try another mirror with `--mirror URL`",
    )


def _transfer(url: str, partial: Path, size: int, advance: Advance) -> int:
    """Bring `partial` to `size` bytes; returns the bytes moved. Starts over when the server cannot resume."""
    have = partial.stat().st_size if partial.exists() else 0
    if have > size:
        have = 0
        partial.unlink()
    if have == size:
        advance(size)
        return 0
    with _open(url, {"Range": f"bytes={have}-"} if have else {}) as reply:
        resumed = have > 0 and getattr(reply, "status", None) == 206
        have = have if resumed else 0
        advance(have)
        with partial.open("ab" if resumed else "wb") as file:
            try:
                moved = _copy(reply, file, size - have, advance)
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError):
                    raise
                _rewind(file, advance)
                raise _BrokenError(f"{type(error).__name__}: {error}") from error
            if have + moved != size:
                _rewind(file, advance)
                why = "more" if moved > size - have else f"{have + moved:,}"
                raise _BrokenError(f"got {why} of {size:,} bytes")
    return moved


def _rewind(file: io.BufferedWriter, advance: Advance) -> None:
    """Progress counts this file again from what the next attempt finds."""
    file.flush()
    advance(-file.tell())


def _copy(source: io.BufferedIOBase, target: io.BufferedWriter, limit: int, advance: Advance) -> int:
    """Copy until the end, at most one chunk beyond `limit`; returns the bytes copied."""
    moved = 0
    while moved <= limit and (chunk := source.read1(_CHUNK)):
        target.write(chunk)
        moved += len(chunk)
        advance(len(chunk))
    return moved


def _open(url: str, headers: dict[str, str]) -> io.BufferedIOBase:
    headers = {"User-Agent": f"aimabuild/{__version__}", **headers}
    try:
        # http, https or file: find_mirrors lets no other scheme through.
        reply: io.BufferedIOBase = urlopen(Request(url, headers=headers), timeout=_TIMEOUT)  # noqa: S310
    except HTTPError as error:
        if error.code in (404, 410):
            raise _MissingError from error
        if error.code == 416 or error.code >= 500:  # 416: what we have is longer than the mirror's file
            raise _BrokenError(f"HTTP {error.code} {error.reason}") from error
        raise AimaError(
            "the mirror refuses the file", where=url, why=f"HTTP {error.code} {error.reason}"
        ) from error
    except URLError as error:
        if isinstance(error.reason, FileNotFoundError) or "No such file" in str(error.reason):
            raise _MissingError from error
        raise _unreachable(url, error.reason) from error
    except (ConnectionError, http.client.HTTPException, TimeoutError) as error:
        raise _BrokenError(f"{type(error).__name__}: {error}") from error
    return reply


def _unreachable(url: str, reason: object) -> AimaError:
    why = os.strerror(reason.errno) if isinstance(reason, OSError) and reason.errno else str(reason)
    if isinstance(reason, socket.gaierror):
        why = "its host name cannot be resolved"
    return AimaError(
        "the mirror cannot be reached",
        where=url,
        why=why,
        hint="check the network and proxy settings, or name another with `--mirror URL`",
    )
