"""The resource report of a build's kernels, from its kernels.json."""

from __future__ import annotations

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


def load_table(path: Path) -> dict[str, Any]:
    """kernels.json of a build. Raises `AimaError` when the recipe was not built."""
    if not path.is_file():
        raise AimaError("the kernels are not built", where=str(path), hint="run `aimabuild build` first")
    return read_json(path, SCHEMA)


def budget_state(budget: Mapping[str, int | str], resources: Resources) -> str:
    """`kept`, `loose` (kept, but the kernel is better than the budget), `broken`, or `none`."""
    lines = compare(budget, resources)
    if not lines:
        return "none"
    if not all(line.holds for line in lines):
        return "broken"
    return "loose" if any(line.loose for line in lines) else "kept"


def report(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The table's kernels with `lds` (dynamic included) and `budget_state` added to their resources."""
    items: list[dict[str, Any]] = []
    for kernel in table["kernels"]:
        resources = Resources(**kernel["resources"])
        state = budget_state(kernel["budget"], resources)
        facts = {**kernel["resources"], "lds": resources.lds}
        items.append({**kernel, "resources": facts, "budget_state": state})
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
    ids = ", ".join(kernel["id"] for kernel in found[:6])
    if found:
        raise UsageError(f"`{name}` fits {len(found)} kernels", why=ids, hint="give more of the id")
    raise UsageError(f"no kernel `{name}`", hint="`aimabuild kernels` lists them")
