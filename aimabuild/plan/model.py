"""What a plan consists of: objects, each compiled once, and kernels, each an entry of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aimabuild.schema.document import Location
from aimabuild.schema.shapes import Budget
from aimabuild.schema.template import Template


@dataclass(frozen=True)
class PlannedArg:
    """One kernel argument with its dtype decided."""

    name: str
    kind: str
    dtype: str | None
    divisibility: int
    size: int | None


@dataclass(frozen=True)
class PlannedAxis:
    """Workgroups along one axis: ceil_div(var * mul + add, div); var is `tokens` or `one`."""

    var: str
    mul: int
    add: int
    div: int


@dataclass(frozen=True)
class PlannedObject:
    """One code object. `key` is the SHA-256 of everything that its rendered source and options follow from.

    `dims` holds only the dimensions that are compiled in: kernels that differ in others share the object.
    `tokens` is the range of the kernel it belongs to, or all when several kernels share it. `asked_by` is the
    shapes file that first asks for it.
    """

    id: str
    key: str
    symbol: str
    fill_symbol: str | None
    template: Template
    target: str
    dtype: str
    out: str
    dims: Mapping[str, int]
    tile: Mapping[str, int]
    constants: Mapping[str, int]
    options: Mapping[str, int]
    args: tuple[PlannedArg, ...]
    tokens: tuple[int, int]
    budget: Budget | None
    asked_by: str


@dataclass(frozen=True)
class PlannedKernel:
    """One entry of the kernel table: an operation at fixed dimensions for a range of tokens.

    `name` is the id without its digest: stable under retuning. `location`: where the shapes ask for it.
    """

    id: str
    name: str
    object: str
    op: str
    template: str
    dims: Mapping[str, int]
    dtype: str
    out: str
    tokens: tuple[int, int]
    primary: bool
    grid: tuple[PlannedAxis, ...] | None
    location: Location


@dataclass(frozen=True)
class Plan:
    """What a recipe compiles, in a fixed order. `digest` changes with anything in it."""

    recipe: str
    target: str | None
    kernels: tuple[PlannedKernel, ...]
    objects: tuple[PlannedObject, ...]
    digest: str

    def object_of(self, kernel: PlannedKernel) -> PlannedObject:
        """The object that a kernel of this plan lives in."""
        return next(item for item in self.objects if item.id == kernel.object)
