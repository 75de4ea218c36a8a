"""What changed between two bundles: entries, and the resources of their kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.bundle.entries import FILE, JSON_LIST, TEXT_LIST, Entry
from aimabuild.bundle.verify import Found

KERNELS = "share/aima/kernels.json"
CLOSURE = "share/aima/closure.json"
_SCHEMAS = {KERNELS: "aimabuild/kernels/v1", CLOSURE: "aima/closure/v1"}
# These differ with any other change and say nothing by themselves.
_LISTS = {TEXT_LIST, JSON_LIST}


@dataclass(frozen=True)
class Change:
    """One entry or kernel: `what` is "added", "removed" or "changed"; details as "name: before -> after".

    object: the code object that a kernel lives in, before and after; several kernels may share one.
    """

    what: str
    name: str
    details: tuple[str, ...] = ()
    object: tuple[str | None, str | None] = (None, None)

    def as_json(self) -> dict[str, Any]:
        """The change as data."""
        return {"what": self.what, "name": self.name, "details": list(self.details)}


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
            "files": [change.as_json() for change in self.files],
            "kernels": [change.as_json() for change in self.kernels],
            "lists": list(self.lists),
        }


def compare_bundles(old: Found, new: Found) -> Difference:
    """The difference from `old` to `new`. Modes taken away by a umask at extraction are no difference.

    UsageError for what is no bundle, AimaError for a bundle whose documents are damaged.
    """
    for found in (old, new):
        _check(found)
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


def by_object(changes: Iterable[Change]) -> list[list[Change]]:
    """Changes of kernels, those together that share an object and changed alike."""
    groups: dict[tuple[Any, ...], list[Change]] = {}
    for change in changes:
        shared = change.object if change.object != (None, None) else change.name
        groups.setdefault((change.what, change.details, shared), []).append(change)
    return list(groups.values())


def _check(found: Found) -> None:
    if TEXT_LIST not in found.texts:
        raise UsageError("this is no bundle", where=found.name, why=f"it holds no {TEXT_LIST}")
    for path, schema in _SCHEMAS.items():
        if path in found.texts and found.document(path).get("schema") != schema:
            raise AimaError(
                "a document of the bundle is of another kind",
                where=f"{found.name}/{path}",
                why=f"its schema is not {schema}",
            )


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
            changes.append(Change("added" if left is None else "removed", key, (), _objects(left, right)))
        elif details := _numbers(left, right):
            changes.append(Change("changed", key, details, _objects(left, right)))
    return changes


def _objects(
    left: Mapping[str, Any] | None, right: Mapping[str, Any] | None
) -> tuple[str | None, str | None]:
    before, after = (
        str(kernel["object"]) if kernel and "object" in kernel else None for kernel in (left, right)
    )
    return before, after


def _by_use(found: Found) -> dict[str, Mapping[str, Any]]:
    """Kernels by what they serve, which stays the same when they are tuned."""
    if KERNELS not in found.texts:
        return {}
    try:
        return _kernels_of(found)
    except (AttributeError, TypeError, ValueError):
        raise AimaError(
            "a document of the bundle is damaged",
            where=f"{found.name}/{KERNELS}",
            why="it is no table of kernels",
        ) from None


def _kernels_of(found: Found) -> dict[str, Mapping[str, Any]]:
    kernels: dict[str, Mapping[str, Any]] = {}
    for kernel in found.document(KERNELS).get("kernels", []):
        words = [kernel.get("op"), kernel.get("dtype")]
        words += [f"{name}={value}" for name, value in kernel.get("dims", {}).items()]
        first, last = kernel.get("tokens", ["?", "?"])
        words += [f"tokens {first}-{last}", f"({kernel.get('template')})"]
        if not all(isinstance(kernel.get(name, {}), dict) for name in ("resources", "tile")):
            raise ValueError("resources and tile are objects")
        kernels[" ".join(map(str, words))] = kernel
    return kernels


def _numbers(left: Mapping[str, Any], right: Mapping[str, Any]) -> tuple[str, ...]:
    old, new = left.get("resources", {}), right.get("resources", {})
    details = [f"{n}: {old.get(n)} -> {new.get(n)}" for n in sorted({*old, *new}) if old.get(n) != new.get(n)]
    before, after = left.get("tile", {}), right.get("tile", {})
    details += [
        f"{name} {before.get(name, 'unset')} -> {after.get(name, 'unset')}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]
    if not details and left.get("sha256") != right.get("sha256"):
        details.append("code: other bytes with the same resources")
    return tuple(details)
