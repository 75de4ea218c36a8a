"""What of the toolchain is there, how large it is, and whether the cache still holds what the lock says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aimabuild.base.files import sha256_file
from aimabuild.schema.lock import Lock
from aimabuild.toolchain.cache import Cache
from aimabuild.toolchain.parts import PARTS, Part, PartSpec, describe, files_of, tree_key
from aimabuild.toolchain.trees import verify_tree


@dataclass(frozen=True)
class PartState:
    """One part on this host: its tree, whether it is there, the bytes that a sync would fetch for it."""

    part: Part
    why: str
    tree: Path
    present: bool
    missing_bytes: int
    packages: tuple[str, ...]


def inspect(lock: Lock, cache: Cache, specs: Sequence[PartSpec] = PARTS) -> list[PartState]:
    """The state of every part, in the table's order."""
    states = []
    for spec in specs:
        files = files_of(spec, lock)
        tree = cache.tree(spec.name, tree_key(spec, lock))
        present = tree.is_dir()
        absent = [file for file in files if not cache.has_file(file.sha256, file.size)]
        missing = 0 if present else sum(file.size for file in absent)
        packages = tuple(f"{file.name} {file.version}" for file in files)
        states.append(PartState(describe(spec, lock), spec.why, tree, present, missing, packages))
    return states


def verify(lock: Lock, cache: Cache, specs: Sequence[PartSpec] = PARTS) -> list[str]:
    """Hash every cached file and tree of the lock again; returns what is wrong. Absence is no error."""
    problems = []
    for spec in specs:
        problems += _verify_files(spec, lock, cache)
        key = tree_key(spec, lock)
        if cache.tree(spec.name, key).is_dir():
            problems += verify_tree(cache.tree(spec.name, key), cache.index(spec.name, key))
    return problems


def _verify_files(spec: PartSpec, lock: Lock, cache: Cache) -> list[str]:
    problems = []
    for file in files_of(spec, lock):
        path = cache.file(file.sha256)
        if not path.is_file():
            continue
        name = f"{file.name} {file.version}"
        if path.stat().st_size != file.size:
            problems.append(f"{path}: {path.stat().st_size} bytes, expected {file.size} ({name})")
        elif sha256_file(path) != file.sha256:
            problems.append(f"{path}: its content has changed ({name})")
    return problems
