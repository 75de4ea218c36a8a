"""What changed between two bundles: entries, and the resources of their kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aimabuild.bundle.entries import FILE, JSON_LIST, TEXT_LIST, Entry
from aimabuild.bundle.verify import Found

KERNELS = "share/aima/kernels.json"
# These differ with any other change and say nothing by themselves.
_LISTS = {TEXT_LIST, JSON_LIST}


@dataclass(frozen=True)
class Change:
    """One entry or kernel: `what` is "added", "removed" or "changed"; details as "name: before -> after"."""

    what: str
    name: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """Everything that differs. Empty lists: the same content."""

    files: tuple[Change, ...]
    kernels: tuple[Change, ...]
    lists: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Schema aimabuild/diff/v1."""
        return {
            "schema": "aimabuild/diff/v1",
            "same": not (self.files or self.kernels or self.lists),
            "files": [vars(change) | {"details": list(change.details)} for change in self.files],
            "kernels": [vars(change) | {"details": list(change.details)} for change in self.kernels],
            "lists": list(self.lists),
        }


def compare_bundles(old: Found, new: Found) -> Difference:
    """The difference from `old` to `new`. Modes taken away by a umask at extraction are no difference."""
    files: list[Change] = []
    lists: list[str] = []
    for path in sorted({*old.entries, *new.entries}):
        before, after = old.entries.get(path), new.entries.get(path)
        if path in _LISTS:
            lists += [path] if _details(before, after, old.umask | new.umask) else []
        elif before is None or after is None:
            files.append(Change("added" if before is None else "removed", path, _size(before or after)))
        elif details := _details(before, after, old.umask | new.umask):
            files.append(Change("changed", path, details))
    return Difference(tuple(files), tuple(_kernels(old, new)), tuple(lists))


def _size(entry: Entry | None) -> tuple[str, ...]:
    return (f"{entry.size} bytes",) if entry is not None and entry.kind == FILE else ()


def _details(before: Entry | None, after: Entry | None, umask: int) -> tuple[str, ...]:
    if before is None or after is None:
        return () if before is after else ("present: " + ("no -> yes" if before is None else "yes -> no"),)
    details: list[str] = []
    for name in ("kind", "size", "target"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            details.append(f"{name}: {old} -> {new}")
    if before.sha256 != after.sha256 and before.size == after.size:
        details.append("content: other bytes of the same size")
    if before.mode & ~umask != after.mode & ~umask:
        details.append(f"mode: {before.mode:04o} -> {after.mode:04o}")
    return tuple(details)


def _kernels(old: Found, new: Found) -> list[Change]:
    before, after = _by_use(old), _by_use(new)
    changes: list[Change] = []
    for key in sorted({*before, *after}):
        left, right = before.get(key), after.get(key)
        if left is None or right is None:
            changes.append(Change("added" if left is None else "removed", key))
        elif details := _numbers(left, right):
            changes.append(Change("changed", key, details))
    return changes


def _by_use(found: Found) -> dict[str, Mapping[str, Any]]:
    """Kernels by what they serve, which stays the same when they are tuned."""
    if KERNELS not in found.texts:
        return {}
    kernels: dict[str, Mapping[str, Any]] = {}
    for kernel in found.document(KERNELS).get("kernels", []):
        words = [kernel.get("op"), kernel.get("dtype")]
        words += [f"{name}={value}" for name, value in kernel.get("dims", {}).items()]
        first, last = kernel.get("tokens", ["?", "?"])
        words += [f"tokens {first}-{last}", f"({kernel.get('template')})"]
        kernels[" ".join(map(str, words))] = kernel
    return kernels


def _numbers(left: Mapping[str, Any], right: Mapping[str, Any]) -> tuple[str, ...]:
    old, new = left.get("resources", {}), right.get("resources", {})
    details = [f"{n}: {old.get(n)} -> {new.get(n)}" for n in sorted({*old, *new}) if old.get(n) != new.get(n)]
    tiles = left.get("tile"), right.get("tile")
    if tiles[0] != tiles[1]:
        details.append(f"tile: {tiles[0]} -> {tiles[1]}")
    if not details and left.get("sha256") != right.get("sha256"):
        details.append("code: other bytes with the same resources")
    return tuple(details)
