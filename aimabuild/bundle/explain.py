"""Why a file is in a bundle: the chain that leads to it, its owner and licence, and what others ask of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.bundle.assemble import CLOSURE
from aimabuild.bundle.entries import FILE, JSON_LIST, LINK
from aimabuild.bundle.verify import Found
from aimabuild.schema.document import suggest


@dataclass(frozen=True)
class Explanation:
    """The facts about one entry. needed_by: object -> the name it asks for and the versions it wants."""

    path: str
    entry: Mapping[str, Any]
    owner: Mapping[str, Any] | None
    needed_by: Mapping[str, tuple[str, tuple[str, ...]]]
    opened_by: tuple[str, ...]
    edits: tuple[Mapping[str, Any], ...]

    def as_json(self) -> dict[str, Any]:
        """Schema aimabuild/explain/v1."""
        return {
            "schema": "aimabuild/explain/v1",
            "path": self.path,
            "entry": dict(self.entry),
            "owner": self.owner,
            "needed_by": [
                {"object": name, "as": asked, "versions": list(versions)}
                for name, (asked, versions) in self.needed_by.items()
            ],
            "opened_by": list(self.opened_by),
            "edits": [dict(edit) for edit in self.edits],
        }


def explain(found: Found, wanted: str) -> Explanation:
    """Explain the entry `wanted` (a path in the bundle, or a name that only one entry has).

    UsageError when there is none, AimaError when the bundle's lists are not what they should be.
    """
    try:
        return _explain(found, wanted)
    except (KeyError, TypeError, AttributeError, ValueError):
        why = "they lack what aimabuild writes there"
        raise AimaError(
            "the lists of the bundle are damaged",
            where=found.name,
            why=why,
            hint="run `aimabuild verify` on it",
        ) from None


def _explain(found: Found, wanted: str) -> Explanation:
    manifest = found.document(JSON_LIST)
    entries = {entry["path"]: entry for entry in manifest["entries"]}
    path = _find(wanted, entries)
    entry = entries[path]
    real = path
    if entry["type"] == LINK:
        real = f"{path.rpartition('/')[0]}/{entry['target']}"
        seen = {path}
        while real in entries and entries[real]["type"] == LINK and real not in seen:
            seen.add(real)
            real = f"{real.rpartition('/')[0]}/{entries[real]['target']}"
    owners = {owner["name"]: owner for owner in manifest["owners"]}
    objects = found.document(CLOSURE)["objects"] if CLOSURE in found.texts else []
    needed_by: dict[str, tuple[str, tuple[str, ...]]] = {}
    opened_by: list[str] = []
    name = path.rpartition("/")[2]
    for item in objects:
        for need in item["needed"]:
            if need["provider"] == real:
                needed_by[item["path"]] = (need["name"], tuple(item["versions"].get(need["name"], ())))
        if any(
            opened["name"] == name and opened["verdict"] in {"bundled", "alias"}
            for opened in item["opened_by_name"]
        ):
            opened_by.append(item["path"])
    edits = tuple(edit for edit in manifest.get("edits", ()) if edit["file"] == path)
    return Explanation(path, entry, owners.get(entry.get("owner", "")), needed_by, tuple(opened_by), edits)


def _find(wanted: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
    if wanted in entries:
        return wanted
    named = [path for path in entries if path.rpartition("/")[2] == wanted]
    if len(named) == 1:
        return named[0]
    if named:
        raise UsageError(
            f"`{wanted}` is several files", why=", ".join(named), hint="give the path in the bundle"
        )
    names = [path for path, entry in entries.items() if entry["type"] in {FILE, LINK}]
    hint = suggest(wanted, [*names, *(path.rpartition("/")[2] for path in names)])
    raise UsageError(f"`{wanted}` is not in the bundle", hint=hint)
