"""Names of libraries that stand as text in a file: what it may open by name, without any NEEDED entry."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

from aimabuild.elf.image import ElfError

_END = re.compile(rb"\.so(?:\.[0-9]+)*\x00")
_TEXT = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-/:@$")
_LONGEST = 256
MAX_NAMES = 10_000


def library_names(path: Path) -> tuple[str, ...]:
    """Every text in `path` that ends as a library's name does and whose last part starts with `lib`, sorted.

    A name that the compiler put together from immediate values cannot be seen; a traced run must catch it.
    """
    found: set[str] = set()
    if path.stat().st_size == 0:
        return ()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for match in _END.finditer(data):
            start = match.start()
            floor = max(start - _LONGEST, 0)
            while start > floor and data[start - 1] in _TEXT:
                start -= 1
            name = data[start : match.end() - 1].decode("ascii")
            if re.split(r"[/:]", name)[-1].startswith("lib") and name.rsplit("/", 1)[-1] != "lib.so":
                found.add(name)
            if len(found) > MAX_NAMES:
                raise ElfError(f"more than {MAX_NAMES} names of libraries", where=str(path))
    return tuple(sorted(found))
