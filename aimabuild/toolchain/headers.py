"""Python.h for the running interpreter: its own, or the locked one of its version."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from aimabuild.base.errors import AimaError

PART = "python-headers"
# What Debian's packages have; an extension module compiled against 3.N runs on every 3.N.x.
LOCKED = ((3, 13), (3, 14))
RUNNING = sys.version_info[:2]


def own_headers() -> tuple[Path, ...]:
    """The folders of the interpreter's own headers; empty when it came without."""
    folders = tuple(dict.fromkeys(Path(sysconfig.get_path(name)) for name in ("include", "platinclude")))
    there = all(any((folder / name).is_file() for folder in folders) for name in ("Python.h", "pyconfig.h"))
    return folders if there else ()


def parts() -> tuple[str, ...]:
    """Toolchain parts that a build of the Python module adds, on this interpreter."""
    locked = not own_headers() and RUNNING in LOCKED
    return ("pybind11", PART) if locked else ("pybind11",)


def headers(tree: Path) -> tuple[Path, ...]:
    """Folders to include from; `tree` is the unpacked part. AimaError when nothing fits this Python."""
    if own := own_headers():
        return own
    major, minor = RUNNING
    # Debian's pyconfig.h is a switch that includes the real one by a path below usr/include.
    locked = (tree / f"usr/include/python{major}.{minor}", tree / "usr/include")
    if (locked[0] / "Python.h").is_file():
        return locked
    known = ", ".join(".".join(map(str, version)) for version in LOCKED)
    raise AimaError(
        f"there is no Python.h for Python {major}.{minor}",
        where=sysconfig.get_path("include"),
        why=f"this interpreter came without its headers, and the lock has them for {known} alone",
        hint=f"install the headers (Debian: python{major}.{minor}-dev), or run another Python",
    )
