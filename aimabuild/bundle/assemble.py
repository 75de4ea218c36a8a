"""From inputs to a complete folder: collect, write, audit, account for every name and owner, list."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aimabuild.base.errors import CheckFailedError
from aimabuild.base.files import sha256_file, write_text
from aimabuild.bundle.contents import (
    LAUNCHER,
    LOADER,
    Contents,
    Item,
    collect,
    licence_items,
    owners_of,
    rules_of,
    unresolved,
)
from aimabuild.bundle.entries import FILE, FOLDER, JSON_LIST, TEXT_LIST, Entry, list_text
from aimabuild.bundle.inputs import Inputs
from aimabuild.bundle.ledger import Classified, classify
from aimabuild.bundle.loader import LoaderRecord, neutralise
from aimabuild.bundle.tree import scan, write_items
from aimabuild.elf.audit import AuditReport, audit_tree
from aimabuild.elf.image import ElfImage
from aimabuild.elf.parse import is_elf, parse
from aimabuild.elf.strings import library_names

CLOSURE = "share/aima/closure.json"


@dataclass(frozen=True)
class Assembled:
    """A finished folder and everything in it, the lists included."""

    root: Path
    name: str
    entries: Mapping[str, Entry]
    loader: LoaderRecord | None


def assemble(inputs: Inputs, root: Path) -> Assembled:
    """Write the bundle of `inputs` to the new folder `root`.

    Raises `CheckFailedError` when the closure, the audit, the ledger or a licence does not hold, with every
    finding listed.
    """
    contents = collect(inputs)
    for item in licence_items(
        [*inputs.owners(), *owners_of(contents.items).values()], inputs.ours, inputs.notice
    ):
        contents.add(item)
    write_items(contents.items.values(), root)
    record = _add_loader(contents, inputs, root)
    report = audit_tree(root, rules_of(inputs))
    if report.problems:
        raise unresolved(report.problems)
    images = _images(contents, root)
    names = _account(contents, images)
    closure = _closure_json(contents, images, names, report)
    _write_json(contents, inputs, root, CLOSURE, closure, "says what each library loads and why it is here")
    entries = scan(root)
    manifest = _manifest_json(inputs, contents, entries, record)
    _write_json(
        contents, inputs, root, JSON_LIST, manifest, "lists every entry with owner, licence and reason"
    )
    entries[JSON_LIST] = _file_entry(root, JSON_LIST)
    write_text(root / TEXT_LIST, list_text(entries.values()))
    entries[TEXT_LIST] = _file_entry(root, TEXT_LIST)
    return Assembled(root, inputs.name, entries, record)


def _file_entry(root: Path, path: str) -> Entry:
    return Entry(path, FILE, 0o644, (root / path).stat().st_size, sha256_file(root / path))


def _add_loader(contents: Contents, inputs: Inputs, root: Path) -> LoaderRecord | None:
    if inputs.runtime is None:
        return None
    owner = inputs.runtime.owner(inputs.runtime.loader)
    record = neutralise(inputs.runtime.loader, root / LOADER, f"{owner.name} {owner.version}", inputs.engine)
    why = ("is the program's loader",)
    contents.add(Item(LOADER, FILE, owner, why, 0o755, source=inputs.runtime.loader))
    return record


def _images(contents: Contents, root: Path) -> dict[str, ElfImage]:
    """Every ELF file of the bundle but the launcher, by path."""
    files = sorted(path for path, item in contents.items.items() if item.kind == FILE and path != LAUNCHER)
    return {path: parse(root / path) for path in files if is_elf(root / path)}


def _account(contents: Contents, images: Mapping[str, ElfImage]) -> dict[str, list[Classified]]:
    """Classify every library name in the text of every object; `CheckFailedError` lists the unknown ones."""
    bundled = contents.libraries()
    found: dict[str, list[Classified]] = {}
    unknown: list[str] = []
    for path, image in images.items():
        owner = image.soname or path.rpartition("/")[2]
        names = set(library_names(image.path)) - set(image.needed) - {image.soname}
        found[path], missing = classify(owner, sorted(filter(None, names)), bundled)
        unknown += [f"{path}: {name}" for name in missing]
    if unknown:
        raise CheckFailedError(
            f"{len(unknown)} libraries are named by an object and nobody has said what becomes of them",
            why="\n    ".join(unknown),
            hint="add each to the recipe's `bundle: roots`, or to aimabuild/bundle/ledger.py with a reason",
        )
    return found


def _closure_json(
    contents: Contents,
    images: Mapping[str, ElfImage],
    names: Mapping[str, list[Classified]],
    report: AuditReport,
) -> dict[str, Any]:
    """Schema aima/closure/v1: objects, who provides what each needs, and the names that each may open."""
    providers = {
        (str(loaded.image.path), name): str(provider.image.path)
        for process in report.processes
        for loaded in process.objects
        for name, provider in loaded.needs
        if provider is not None
    }
    paths = {str(image.path.resolve()): path for path, image in images.items()}
    objects = []
    for path, image in images.items():
        real = str(image.path.resolve())
        versions: dict[str, list[str]] = {}
        for need in image.versions_needed:
            versions.setdefault(need.file, []).append(need.name)
        objects.append(
            {
                "path": path,
                "soname": image.soname,
                "build_id": image.build_id,
                "needed": [
                    {"name": name, "provider": paths.get(providers.get((real, name), ""), "host")}
                    for name in image.needed
                ],
                "versions": {file: sorted(found) for file, found in sorted(versions.items())},
                "opened_by_name": [
                    {"name": n.name, "verdict": n.verdict, "reason": n.reason} for n in names[path]
                ],
                "why": list(contents.items[path].why),
            }
        )
    return {"schema": "aima/closure/v1", "objects": objects}


def _write_json(
    contents: Contents, inputs: Inputs, root: Path, path: str, value: dict[str, Any], why: str
) -> None:
    contents.add(Item(path, FILE, inputs.ours, (why,)))
    write_text(root / path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def _manifest_json(
    inputs: Inputs, contents: Contents, entries: Mapping[str, Entry], record: LoaderRecord | None
) -> dict[str, Any]:
    """Schema aima/manifest/v1: everything but the two lists themselves."""
    listed = []
    for path in sorted(entries, key=str.encode):
        entry = entries[path]
        value: dict[str, Any] = {"path": path, "type": entry.kind, "mode": f"{entry.mode:04o}"}
        if entry.kind == FILE:
            value |= {"size": entry.size, "sha256": entry.sha256}
        if entry.target is not None:
            value["target"] = entry.target
        item = contents.items.get(path)
        if item is not None and entry.kind != FOLDER:
            value |= {"owner": item.owner.name, "licence": item.owner.licence, "why": list(item.why)}
            value |= {"contains": list(item.contains)} if item.contains else {}
        listed.append(value)
    owners = {owner.name: owner for owner in (*inputs.owners(), *owners_of(contents.items).values())}
    return {
        "schema": "aima/manifest/v1",
        "name": inputs.name,
        "version": inputs.version,
        "recipe": inputs.recipe,
        "target": inputs.target,
        "libc": inputs.bundle.libc,
        "edits": [record.as_json()] if record is not None else [],
        "owners": [
            {"name": o.name, "version": o.version, "licence": o.licence, "text": f"licenses/{o.name}"}
            for o in sorted(owners.values(), key=lambda o: o.name)
        ],
        "toolchain": dict(inputs.toolchain),
        "entries": listed,
    }
