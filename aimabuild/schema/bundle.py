"""The `bundle:` section of a recipe: what the archive holds beside engine and kernels.

bundle:
  libc: bundled         # bundled: its own loader and C library; host: the host's (its driver needs them)
  runtime: hip          # hip: libraries from the locked HIP runtime; none: no GPU libraries
  roots: [libamdhip64.so.7, libamd_comgr.so.3]   # libraries opened by name at run time
  data:                 # files of the runtime that its libraries look for
    - {from: usr/share/libdrm/amdgpu.ids, to: share/libdrm/amdgpu.ids}
  isa: x86-64           # the highest level that any library may ask of the processor
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from aimabuild.schema.document import Node

LIBC = ("bundled", "host")
RUNTIME = ("hip", "none")
ISA = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")

_LIBRARY = re.compile(r"lib[A-Za-z0-9_+.-]+\.so(\.[0-9]+)*\Z", re.ASCII)
_PATH = re.compile(r"[A-Za-z0-9_.+@-]+(/[A-Za-z0-9_.+@-]+)*\Z", re.ASCII)
# Where data may be put: not among programs, nor where the packager writes its own files.
_DATA_FOLDERS = ("lib", "share")
_OWN_FOLDERS = ("share/aima",)


@dataclass(frozen=True)
class DataFile:
    """One file of the runtime tree and its place in the bundle, both relative."""

    source: PurePosixPath
    target: PurePosixPath


@dataclass(frozen=True)
class Bundle:
    """A recipe's `bundle:` section; a recipe without one gets these defaults."""

    libc: Literal["bundled", "host"] = "bundled"
    runtime: Literal["hip", "none"] = "none"
    roots: tuple[str, ...] = ()
    data: tuple[DataFile, ...] = ()
    isa: str = "x86-64"


def read_bundle(node: Node) -> Bundle:
    """The section as a `Bundle`. Raises `UsageError` with the place of what is wrong."""
    section = node.mapping().only((), ("libc", "runtime", "roots", "data", "isa"))
    libc = _choice(section.get("libc"), LIBC, "C library", "bundled")
    runtime = _choice(section.get("runtime"), RUNTIME, "runtime", "none")
    isa = _choice(section.get("isa"), ISA, "ISA level", "x86-64")
    roots_node, data_node = section.get("roots"), section.get("data")
    roots = _roots(roots_node) if roots_node is not None else ()
    data = tuple(_data(item) for item in data_node.sequence()) if data_node is not None else ()
    if libc == "host" and runtime != "none":
        section["libc"].fail(
            f"`libc: host` cannot stand with `runtime: {runtime}`",
            why="the runtime's libraries need the C library that they were built with",
        )
    if runtime == "none" and roots_node is not None and roots:
        roots_node.fail("`roots` need a runtime to come from", hint="say `runtime: hip`")
    if runtime == "none" and data_node is not None and data:
        data_node.fail("`data` needs a runtime to come from", hint="say `runtime: hip`")
    targets = [item.target for item in data]
    if data_node is not None and len(set(targets)) != len(targets):
        data_node.fail("two entries are put at the same place")
    # The choices were checked above; the literals are for readers and for mypy.
    return Bundle(
        "host" if libc == "host" else "bundled", "hip" if runtime == "hip" else "none", roots, data, isa
    )


def _choice(node: Node | None, known: Sequence[str], what: str, default: str) -> str:
    return default if node is None else node.choice(known, what)


def _roots(node: Node) -> tuple[str, ...]:
    names = node.texts()
    for item in node.sequence():
        if not _LIBRARY.match(item.text()):
            item.fail(
                f"`{item.text()}` is no library name", hint="write the name as it is opened: libNAME.so.N"
            )
    return names


def _data(node: Node) -> DataFile:
    entry = node.mapping().only(("from", "to"))
    source, target = (_relative(entry[key]) for key in ("from", "to"))
    folders = [str(parent) for parent in target.parents]
    if not any(folder in folders for folder in _DATA_FOLDERS) or any(own in folders for own in _OWN_FOLDERS):
        entry["to"].fail(
            f"`{target}` is no place for data", hint="put it under share/ or lib/, not share/aima/"
        )
    return DataFile(source, target)


def _relative(node: Node) -> PurePosixPath:
    text = node.text()
    if not _PATH.match(text) or any(part in {".", ".."} for part in text.split("/")):
        node.fail(f"`{text}` is not a plain relative path")
    return PurePosixPath(text)
