"""Bundles as folders on disk: writing one from its items, and listing what a folder really holds."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from aimabuild.base.errors import AimaError
from aimabuild.base.files import sha256_file
from aimabuild.bundle.contents import Item
from aimabuild.bundle.entries import FILE, FOLDER, LINK, MAX_ENTRIES, Entry, safe_path, safe_target

OTHER = "?"


def write_items(items: Iterable[Item], root: Path) -> None:
    """Make `root` and write the items in it, with modes whatever the umask. AimaError for a bad path."""
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o755)
    for item in sorted(items, key=lambda item: item.path.encode()):
        why = safe_path(item.path) or (
            safe_target(item.path, item.target) if item.target is not None else None
        )
        if why:
            raise AimaError("a path does not fit into a bundle", where=repr(item.path), why=why)
        path = root / item.path
        if item.kind == FOLDER:
            path.mkdir()
        elif item.kind == LINK:
            path.symlink_to(item.target or "")
            continue
        elif item.source is not None:
            shutil.copyfile(item.source, path)
        else:
            path.write_bytes(item.data or b"")
        path.chmod(item.mode)


def scan(
    root: Path, *, skip: Iterable[str] = (), advance: Callable[[int], None] | None = None
) -> dict[str, Entry]:
    """Every entry below `root`, "." itself included, with content hashes; links are not followed.

    What is neither file, folder nor link has the kind "?". `advance` is told the bytes read. AimaError when
    something cannot be read or there is too much of it.
    """
    left_out = frozenset(skip)
    found: dict[str, Entry] = {}
    queue = ["."]
    try:
        while queue:
            path = queue.pop()
            if path in left_out:
                continue
            entry = _entry(root, path)
            found[path] = entry
            if len(found) > MAX_ENTRIES:
                raise AimaError(f"more than {MAX_ENTRIES} entries", where=str(root))
            if entry.kind == FOLDER:
                prefix = "" if path == "." else f"{path}/"
                queue += [f"{prefix}{name}" for name in os.listdir(root / path)]  # noqa: PTH208 - names are enough
            elif advance is not None:
                advance(entry.size)
    except OSError as error:
        raise AimaError("the bundle cannot be read", where=str(error.filename), why=error.strerror) from None
    return found


def _entry(root: Path, path: str) -> Entry:
    full = root / path
    status = full.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return Entry(path, LINK, 0o777, target=str(full.readlink()))
    if stat.S_ISDIR(status.st_mode):
        return Entry(path, FOLDER, mode)
    if stat.S_ISREG(status.st_mode):
        return Entry(path, FILE, mode, status.st_size, sha256_file(full))
    return Entry(path, OTHER, mode)
