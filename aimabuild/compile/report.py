"""The resource report of a build's kernels, from its kernels.json."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.compile.budget import compare
from aimabuild.compile.resources import Resources
from aimabuild.compile.spec import read_json
from aimabuild.compile.table import SCHEMA

SCHEMA_REPORT = "aimabuild/kernels-report/v1"
HEADER = (
    *("kernel", "tokens", "threads", "VGPR", "SGPR", "spills", "scratch", "LDS"),
    *("waves/SIMD", "limiter", "WMMA", "bytes", "budget"),
)
RIGHT = frozenset({"threads", "VGPR", "SGPR", "spills", "scratch", "LDS", "waves/SIMD", "WMMA", "bytes"})


def natural(text: str) -> list[tuple[int, str]]:
    """Sort key that counts: t33 before t257."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split("([0-9]+)", text)]


def load_table(path: Path, recipe: Path) -> dict[str, Any]:
    """kernels.json of a build. Raises `AimaError` when the recipe was not built."""
    if not path.is_file():
        raise AimaError(
            "the kernels are not built", where=str(path), hint=f"run `aimabuild build {recipe}` first"
        )
    return read_json(path, SCHEMA)


def budget_state(budget: Mapping[str, int | str], resources: Resources) -> str:
    """`kept`, `loose` (kept, but the kernel is better than the budget), `broken`, or `none`."""
    lines = compare(budget, resources)
    if not lines:
        return "none"
    if not all(line.holds for line in lines):
        return "broken"
    return "loose" if any(line.loose for line in lines) else "kept"


def report(table: Mapping[str, Any], budgets: Mapping[str, Mapping[str, int | str]]) -> list[dict[str, Any]]:
    """The table's kernels with `lds` (dynamic included), `budget` and `budget_state` added.

    budgets: kernel id -> budget of today's plan. A kernel that the plan no longer has is `stale`.
    """
    items: list[dict[str, Any]] = []
    for kernel in table["kernels"]:
        resources = Resources(**kernel["resources"])
        budget = budgets.get(kernel["id"])
        state = budget_state(budget, resources) if budget is not None else "stale"
        facts = {**kernel["resources"], "lds": resources.lds}
        items.append({**kernel, "resources": facts, "budget": dict(budget or {}), "budget_state": state})
    return items


def row(kernel: Mapping[str, Any]) -> list[str]:
    """One line of the printed table, in the order of `HEADER`."""
    r = kernel["resources"]
    first, last = kernel["tokens"]
    threads = kernel["block"][0] * kernel["block"][1] * kernel["block"][2]
    name = kernel["id"] if kernel["primary"] else f"{kernel['id']} (alternative)"
    wmma = f"{r['wmma']} {r['wmma_shape']}" if r["wmma"] else "0"
    numbers = (threads, r["vgpr"], r["sgpr"], r["vgpr_spills"] + r["sgpr_spills"], r["scratch"], r["lds"])
    return [
        *(name, f"{first}-{last}", *map(str, numbers)),
        *(f"{r['occupancy']:g}", r["limiter"], wmma, str(kernel["bytes"]), kernel["budget_state"]),
    ]


def pick(kernels: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    """The one kernel whose id is `name` or starts with it. Raises `UsageError` for none or several."""
    exact = [kernel for kernel in kernels if kernel["id"] == name]
    found = exact or [kernel for kernel in kernels if kernel["id"].startswith(name)]
    if len(found) == 1:
        return found[0]
    ids = ", ".join(
        [*(kernel["id"] for kernel in found[:6]), *(["\N{HORIZONTAL ELLIPSIS}"] if len(found) > 6 else [])]
    )
    if found:
        raise UsageError(f"`{name}` fits {len(found)} kernels", why=ids, hint="give more of the id")
    raise UsageError(f"no kernel `{name}`", hint="`aimabuild kernels` lists them")
