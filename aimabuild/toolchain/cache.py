"""The user's cache folder: files by sha256, unpacked trees, and locks that let several processes share it.

files/<sha256>          a fetched file, complete (it appears by rename)
files/<sha256>.partial  a download under way or cut off; only the holder of its lock touches it
trees/<name>-<key>/     an unpacked part, never changed after its rename; trees/<name>-<key>.json lists it
tmp/                    scratch folders of running processes; leftovers of dead ones are swept
locks/                  files that processes hold with flock
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aimabuild.base.errors import AimaError


@dataclass(frozen=True)
class Cache:
    """Paths below one cache folder."""

    root: Path

    @classmethod
    def default(cls) -> Cache:
        """`$XDG_CACHE_HOME/aimabuild`, or `~/.cache/aimabuild` (a relative one counts as unset)."""
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        if not base.is_absolute():
            base = Path.home() / ".cache"
        return cls(base / "aimabuild")

    def file(self, sha256: str) -> Path:
        """Where the file with this hash lies, or will lie."""
        return self.root / "files" / sha256

    def tree(self, name: str, key: str) -> Path:
        """Where the tree lies, or will lie."""
        return self.root / "trees" / f"{name}-{key}"

    def index(self, name: str, key: str) -> Path:
        """The list of a tree's files."""
        return self.root / "trees" / f"{name}-{key}.json"

    def has_file(self, sha256: str, size: int) -> bool:
        """True when the file is there with the right size (its hash is checked when it is unpacked)."""
        try:
            return self.file(sha256).stat().st_size == size
        except FileNotFoundError:
            return False

    def prepare(self) -> None:
        """Make the folders, and remove what killed processes left in tmp/."""
        for name in ("files", "trees", "tmp", "locks"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self._sweep()

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold `locks/<name>` against other processes and threads; waits for its turn."""
        with (self.root / "locks" / name).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A private folder on the cache's file system, removed at the end."""
        folder = Path(tempfile.mkdtemp(dir=self.root / "tmp"))
        with (folder / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def _sweep(self) -> None:
        for folder in (self.root / "tmp").iterdir():
            try:
                with (folder / ".lock").open("r") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            except (FileNotFoundError, NotADirectoryError, BlockingIOError):
                continue  # being made this moment, gone already, or in use


@contextmanager
def explain_os_errors(cache: Cache) -> Iterator[None]:
    """Turn a full disk or a cache that cannot be written into one clear error."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or cache.root)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "free some space, or set XDG_CACHE_HOME to a larger disk; what was fetched is kept"
            raise AimaError("the disk is full", where=where, hint=hint) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            hint = "set XDG_CACHE_HOME to a folder that you may write"
            raise AimaError(
                "the cache cannot be written", where=where, why=error.strerror, hint=hint
            ) from error
        raise AimaError("the toolchain cache failed", where=where, why=str(error)) from error
