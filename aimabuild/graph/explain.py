"""What changed in a plan since the last build: kernels new, gone, or with another tile, source or budget."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aimabuild.base.files import sha256_bytes, write_if_changed
from aimabuild.plan import Plan

SCHEMA = "aimabuild/last-plan/v1"


def facts(plan: Plan) -> dict[str, dict[str, Any]]:
    """Kernel name -> what its compile follows from, and where the shapes ask for it."""
    items = {item.id: item for item in plan.objects}
    found: dict[str, dict[str, Any]] = {}
    for kernel in plan.kernels:
        item = items[kernel.object]
        template = item.template
        found[kernel.name] = {
            "id": kernel.id,
            "at": str(kernel.location),
            "tile": dict(item.tile),
            "tokens": f"{kernel.tokens[0]}-{kernel.tokens[1]}",
            "texts": {
                f"templates/{name}": sha256_bytes(text.encode())
                for name, text in (
                    (template.source_name, template.source),
                    (template.host_name, template.host),
                )
                if name is not None and text is not None
            },
            "constants": dict(item.constants),
            "options": dict(item.options),
            "arguments": [[arg.name, arg.kind, arg.dtype, arg.divisibility, arg.size] for arg in item.args],
            "grid": [[axis.var, axis.mul, axis.add, axis.div] for axis in kernel.grid or ()],
            "budget": item.budget.limits() if item.budget else {},
            "primary": kernel.primary,
        }
    return found


def save(path: Path, plan: Plan) -> None:
    """Remember the plan of a build that succeeded."""
    write_if_changed(path, (json.dumps({"schema": SCHEMA, "kernels": facts(plan)}, indent=1) + "\n").encode())


def load(path: Path) -> dict[str, dict[str, Any]] | None:
    """The facts of the last build; None when there is none, or when it was written by another version."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value["kernels"] if isinstance(value, dict) and value.get("schema") == SCHEMA else None


def _values(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    names = [*new, *(name for name in old if name not in new)]
    return [
        f"{name} {old.get(name, 'unset')} -> {new.get(name, 'unset')}"
        for name in names
        if old.get(name) != new.get(name)
    ]


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two facts of one kernel."""
    found = _values(old["tile"], new["tile"])
    if old["tokens"] != new["tokens"]:
        found.append(f"tokens {old['tokens']} -> {new['tokens']}")
    found += [f"{name} changed" for name, digest in new["texts"].items() if old["texts"].get(name) != digest]
    found += [f"budget: {text}" for text in _values(old["budget"], new["budget"])]
    found += [f"{part} changed" for part in ("arguments", "primary") if old[part] != new[part]]
    if not found:  # what follows from the tile is worth a word only when the tile is not the cause
        for part in ("options", "constants"):
            found += [f"{part}: {text}" for text in _values(old[part], new[part])]
        found += ["grid changed"] if old["grid"] != new["grid"] else []
    return found


def plan_changes(old: Mapping[str, dict[str, Any]] | None, plan: Plan) -> list[str]:
    """Lines that say what a plan changes since the last build."""
    if old is None:
        return []
    new = facts(plan)
    lines = [f"{name}: not in the plan any more" for name in old if name not in new]
    for name, fact in new.items():
        if name not in old:
            lines.append(f"{name}: new, asked for at {fact['at']}")
        elif found := changes(old[name], fact):
            lines.append(f"{name}: {', '.join(found)} ({fact['at']})")
    return lines
