"""`spec.json` (schema aimabuild/kernel-spec/v1): what is compiled, and what the table says of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aimabuild.base.errors import UsageError

SCHEMA = "aimabuild/kernel-spec/v1"
KIND_SIZES: Mapping[str, int] = {"pointer": 8, "i32": 4, "i64": 8, "f32": 4}


@dataclass(frozen=True)
class SpecArg:
    """One argument of the kernel's source. `size` in bytes; `dtype` is what a pointer points to."""

    name: str
    kind: str
    dtype: str | None
    divisibility: int
    size: int


@dataclass(frozen=True)
class SpecAxis:
    """Workgroups along one axis: ceil_div(var * mul + add, div); var is `tokens` or `one`."""

    var: str
    mul: int
    add: int
    div: int


@dataclass(frozen=True)
class KernelSpec:
    """One spec. `object` is the id of the code object that the kernel lives in (its own id, mostly)."""

    path: Path
    id: str
    object: str
    op: str
    template: str
    compiler: str
    target: str
    source: Path
    symbol: str
    dtype: str
    out: str
    dims: Mapping[str, int]
    tile: Mapping[str, int]
    tokens: tuple[int, int]
    primary: bool
    args: tuple[SpecArg, ...]
    constants: Mapping[str, int]
    options: Mapping[str, int]
    grid: tuple[SpecAxis, ...] | None
    fill_source: Path | None
    fill_symbol: str | None


def _arg(entry: Mapping[str, Any]) -> SpecArg:
    kind = entry["kind"]
    size = entry["size"] if kind == "struct" else KIND_SIZES[kind]
    return SpecArg(entry["name"], kind, entry.get("dtype"), entry.get("divisibility", 1), size)


def _spec(path: Path, value: Mapping[str, Any]) -> KernelSpec:
    fill, grid = value["fill"], value["grid"]
    first, last = value["tokens"]
    return KernelSpec(
        path=path,
        id=value["id"],
        object=value["object"],
        op=value["op"],
        template=value["template"],
        compiler=value["compiler"],
        target=value["target"],
        source=path.parent / value["source"],
        symbol=value["symbol"],
        dtype=value["dtype"],
        out=value["out"],
        dims=dict(value["dims"]),
        tile=dict(value["tile"]),
        tokens=(first, last),
        primary=value["primary"],
        args=tuple(_arg(entry) for entry in value["args"]),
        constants=dict(value["constants"]),
        options=dict(value["options"]),
        grid=tuple(SpecAxis(a["var"], a["mul"], a["add"], a["div"]) for a in grid) if grid else None,
        fill_source=path.parent / fill["source"] if fill else None,
        fill_symbol=fill["symbol"] if fill else None,
    )


def read_json(path: Path, schema: str) -> dict[str, Any]:
    """The object in a JSON file of this schema. Raises `UsageError`."""
    try:
        value = json.loads(path.read_text())
    except OSError as error:
        raise UsageError("cannot read the file", where=str(path), why=error.strerror) from None
    except ValueError as error:
        raise UsageError("not a JSON file", where=str(path), why=str(error)) from None
    if not isinstance(value, dict) or value.get("schema") != schema:
        raise UsageError(f"not a file of schema {schema}", where=str(path))
    return value


def read_spec(path: Path) -> KernelSpec:
    """Read one spec. Raises `UsageError` when it is not one."""
    value = read_json(path, SCHEMA)
    try:
        return _spec(path, value)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError("the spec is incomplete", where=str(path), why=repr(error)) from None
