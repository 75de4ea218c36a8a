"""The JSON beside each rendered source (schema aimabuild/kernel-spec/v1): what is compiled and launched.

An object's spec is what its compiler reads. A kernel whose dimensions are all compiled in *is* its object:
one id, one spec. A kernel that shares an object (dimensions as run-time arguments) has a spec of its own, for
the table alone, whose `object` names the object's id. No budget is in a spec: nothing is made from it.
"""

from __future__ import annotations

import json
from typing import Any

from aimabuild.plan import Plan, PlannedAxis, PlannedKernel, PlannedObject

SCHEMA = "aimabuild/kernel-spec/v1"


def _grid(axes: tuple[PlannedAxis, ...] | None) -> list[dict[str, Any]] | None:
    if axes is None:
        return None
    return [{"var": axis.var, "mul": axis.mul, "add": axis.add, "div": axis.div} for axis in axes]


def _args(item: PlannedObject) -> list[dict[str, Any]]:
    args: list[dict[str, Any]] = []
    for arg in item.args:
        entry: dict[str, Any] = {"name": arg.name, "kind": arg.kind, "divisibility": arg.divisibility}
        if arg.dtype is not None:
            entry["dtype"] = arg.dtype
        if arg.size is not None:
            entry["size"] = arg.size
        args.append(entry)
    return args


def source_name(item: PlannedObject) -> str:
    """What the rendered source is called."""
    return "kernel.py" if item.template.compiler == "triton" else "kernel.hip"


def _common(item: PlannedObject) -> dict[str, Any]:
    fill = {"source": "host.cpp", "symbol": item.fill_symbol} if item.fill_symbol else None
    return {
        "template": item.template.name,
        "compiler": item.template.compiler,
        "target": item.target,
        "source": source_name(item),
        "symbol": item.symbol,
        "dtype": item.dtype,
        "out": item.out,
        "tile": dict(item.tile),
        "args": _args(item),
        "constants": dict(item.constants),
        "options": dict(item.options),
        "fill": fill,
    }


def kernel_spec(kernel: PlannedKernel, item: PlannedObject) -> dict[str, Any]:
    """The spec of one table entry."""
    return {
        "schema": SCHEMA,
        "id": kernel.id,
        "object": item.id,
        "op": kernel.op,
        **_common(item),
        "dims": dict(kernel.dims),
        "tokens": list(kernel.tokens),
        "primary": kernel.primary,
        "grid": _grid(kernel.grid),
    }


def object_spec(item: PlannedObject) -> dict[str, Any]:
    """The spec of an object that several kernels may share: only what is compiled in."""
    return {
        "schema": SCHEMA,
        "id": item.id,
        "object": item.id,
        "op": item.template.op,
        **_common(item),
        "dims": dict(item.dims),
        "tokens": list(item.tokens),
        "primary": True,
        "grid": None,
    }


def specs(plan: Plan) -> dict[str, dict[str, Any]]:
    """Every spec of a plan by id: all kernels, then the objects that no single kernel owns."""
    items = {item.id: item for item in plan.objects}
    found = {kernel.id: kernel_spec(kernel, items[kernel.object]) for kernel in plan.kernels}
    for item in plan.objects:
        found.setdefault(item.id, object_spec(item))
    return found


def spec_bytes(spec: dict[str, Any]) -> bytes:
    """The file's content: stable key order, one final newline."""
    return (json.dumps(spec, indent=1) + "\n").encode()
