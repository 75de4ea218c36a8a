"""Paths inside ELF files and links between files: tokens, links that loop or leave, folders that contain."""

from __future__ import annotations

import os
import re
from pathlib import Path

from aimabuild.base.errors import AimaError

MAX_LINKS = 40
_TOKEN = re.compile(r"\$(?:\{([A-Za-z_]+)\}|(ORIGIN|LIB|PLATFORM))")


class LinkError(AimaError):
    """A symbolic link that loops, leads nowhere, or leaves the folder that must hold it."""


class DanglingError(LinkError):
    """The path leads to nothing. The loader goes on searching as if it were not there."""


def tokens(entry: str) -> list[str]:
    """Names of the dynamic string tokens in a search path entry, as `$ORIGIN` or `${ORIGIN}`."""
    return [match[1] or match[2] for match in _TOKEN.finditer(entry)]


def expand(entry: str, origin: Path) -> str | None:
    """`entry` with $ORIGIN put in; None when it holds a token whose value only the host's loader knows."""
    if set(tokens(entry)) - {"ORIGIN"}:
        return None
    # A function, since the folder's name may hold backslashes that a replacement text would interpret.
    return _TOKEN.sub(lambda _: str(origin), entry)


def inside(path: Path, folder: Path) -> bool:
    """True if `path`, normalised without looking at any file, is `folder` or lies in it."""
    normal = Path(os.path.normpath(os.path.abspath(path)))  # noqa: PTH100 - resolve() would follow links
    return normal.is_relative_to(os.path.normpath(os.path.abspath(folder)))  # noqa: PTH100


def follow(path: Path, confine: Path | None = None) -> tuple[Path, tuple[Path, ...]]:
    """The file that `path` stands for, and the links on the way (the last component's, in order).

    Raises `LinkError` when the chain loops, dangles, or passes a place outside `confine`.
    """
    links: list[Path] = []
    at = path
    while at.is_symlink():
        if len(links) >= MAX_LINKS:
            raise LinkError("the chain of links is too long or loops", where=str(path))
        links.append(at)
        at = at.parent / at.readlink()
        if confine is not None and not inside(at, confine):
            raise LinkError("a link leaves the folder", where=str(links[-1]), why=f"it leads to {at}")
    try:
        real = at.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DanglingError("a link leads nowhere", where=str(path), why=f"{at}: {error.strerror}") from None
    except OSError as error:
        raise LinkError("the file cannot be reached", where=str(at), why=error.strerror) from None
    except RuntimeError:
        raise LinkError("the chain of links loops", where=str(path)) from None
    if confine is not None and not real.is_relative_to(confine.resolve()):
        raise LinkError(
            "the path leaves the folder through a link", where=str(path), why=f"it leads to {real}"
        )
    return real, tuple(links)
