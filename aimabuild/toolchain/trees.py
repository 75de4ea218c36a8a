"""Unpacked parts: made in a scratch folder, listed, renamed into place, never changed again."""

from __future__ import annotations

import io
import json
import py_compile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from aimabuild.base.errors import AimaError
from aimabuild.base.files import sha256_file, write_text
from aimabuild.schema.lock import DebianPackage, Wheel
from aimabuild.toolchain.cache import Cache
from aimabuild.toolchain.parts import PartSpec
from aimabuild.toolchain.unpack import Entry, TreeWriter, remove_tree, unpack_deb, unpack_wheel

INDEX_SCHEMA = "aimabuild/tree/v1"


class DamagedError(Exception):
    """A cached file's content is not what its name says; it has been removed."""


def make_tree(spec: PartSpec, files: Sequence[DebianPackage | Wheel], key: str, cache: Cache) -> Path:
    """Unpack the part's cached files, unless another process has. DamagedError when one is damaged."""
    final = cache.tree(spec.name, key)
    with cache.lock(f"{spec.name}-{key}"):
        if final.is_dir():
            return final
        for file in files:
            path = cache.file(file.sha256)
            if sha256_file(path) != file.sha256:
                path.unlink()
                raise DamagedError(file.name)
        with cache.scratch() as scratch:
            root = scratch / "tree"
            root.mkdir()
            writer = TreeWriter(root)
            for file in files:
                unpack = unpack_deb if isinstance(file, DebianPackage) else unpack_wheel
                unpack(cache.file(file.sha256), writer, spec.wants, f"{file.name} {file.version}")
            if not writer.entries:
                raise AimaError(
                    f"nothing of the part `{spec.name}` was unpacked", why="its file list has no wanted path"
                )
            for name, text in spec.extra:
                writer.file(name, 0o755, io.BytesIO(text.encode()), "aimabuild")
            if spec.per_python:
                _byte_compile(root)
            write_index(cache.index(spec.name, key), writer.entries)
            root.rename(final)
    return final


def _byte_compile(root: Path) -> None:
    """Compile the modules once, without time stamps, so that no import writes into the tree later.

    The import system replaces the path recorded here by the real one.
    """
    for path in sorted(root.rglob("*.py")):
        py_compile.compile(
            str(path),
            dfile=path.relative_to(root).as_posix(),
            doraise=True,
            quiet=1,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )


def write_index(path: Path, entries: dict[str, Entry]) -> None:
    """Write the list of a tree's files beside it."""
    value = {"schema": INDEX_SCHEMA, "entries": {name: asdict(entries[name]) for name in sorted(entries)}}
    write_text(path, json.dumps(value, separators=(",", ":")))


def read_index(path: Path) -> dict[str, Entry]:
    """The files and links of a tree by path. AimaError when the list is gone or damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return {name: Entry(**entry) for name, entry in value["entries"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "remove the tree beside it, and run `aimabuild toolchain sync`"
        raise AimaError(
            "the list of a tree's files cannot be read", where=str(path), why=str(error), hint=hint
        ) from error


def verify_tree(tree: Path, index: Path) -> list[str]:
    """Compare a tree with its list; returns what differs. Byte-compiled modules are not listed."""
    expected = read_index(index)
    problems = []
    for name, entry in expected.items():
        path = tree / name
        if entry.target:
            if not path.is_symlink() or str(path.readlink()) != entry.target:
                problems.append(f"{path}: is not the link to {entry.target}")
        elif not path.is_file() or path.is_symlink():
            problems.append(f"{path}: is missing")
        elif path.stat().st_mode & 0o777 != entry.mode:
            problems.append(f"{path}: its mode is not {entry.mode:o}")
        elif path.stat().st_size != entry.size or sha256_file(path) != entry.sha256:
            problems.append(f"{path}: its content has changed")
    for path in tree.rglob("*"):
        name = path.relative_to(tree).as_posix()
        if (path.is_symlink() or path.is_file()) and name not in expected and "__pycache__" not in name:
            problems.append(f"{path}: does not belong there")
    return problems


def discard_tree(spec: PartSpec, key: str, cache: Cache) -> None:
    """Remove a tree, so that the next sync makes it again: renamed first, so that nobody sees half of it."""
    tree = cache.tree(spec.name, key)
    with cache.lock(f"{spec.name}-{key}"), cache.scratch() as scratch:
        if tree.is_dir():
            tree.rename(scratch / "old")
        remove_tree(scratch / "old")
        cache.index(spec.name, key).unlink(missing_ok=True)
