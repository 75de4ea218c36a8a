"""Shapes: a model's dimensions, the operations that it needs, and the tiles chosen for them.

`shapes/<name>.yaml`, schema aimabuild/shapes/v1. A kernel entry names an operation, its dimensions (numbers,
or expressions over `model`) and, for each template that may serve it, one variant for each range of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from aimabuild.base.errors import UsageError
from aimabuild.schema.document import Document, Location, Node, SequenceNode
from aimabuild.schema.expression import expression
from aimabuild.schema.targets import TARGETS
from aimabuild.schema.template import DTYPES

MAX_TOKENS = 8192  # the largest pass of the engine (its workspace plan)
_DIM_MAX = 1 << 31
_WORD = re.compile(r"[a-z][a-z0-9_]*\Z", re.ASCII)
_TEMPLATE = re.compile(r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*\Z", re.ASCII)


@dataclass(frozen=True)
class Budget:
    """What a compiled kernel may use; None: not limited. A looser figure than the measured has a `reason`.

    spills: registers spilled (vector and scalar together); scratch: bytes a lane; occupancy: waves on a SIMD,
    at least; wmma_min: matrix instructions, at least; vgpr_max: vector registers, at most.
    """

    location: Location
    spills: int | None
    scratch: int | None
    occupancy: int | None
    wmma_min: int | None
    vgpr_max: int | None
    reason: str | None

    def limits(self) -> dict[str, int]:
        """The limits that are set, by name."""
        names = ("spills", "scratch", "occupancy", "wmma_min", "vgpr_max")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


@dataclass(frozen=True)
class Variant:
    """One tile for passes of token_min..token_max tokens, on all targets or the ones listed."""

    location: Location
    token_min: int
    token_max: int
    tile: Mapping[str, int]
    tile_locations: Mapping[str, Location]
    targets: tuple[str, ...]
    budget: Mapping[str, Budget]


@dataclass(frozen=True)
class KernelShape:
    """One operation at fixed dimensions, with the templates that may serve it."""

    location: Location
    op: str
    dims: Mapping[str, int]
    dim_locations: Mapping[str, Location]
    dtype: str
    out: str
    templates: Mapping[str, tuple[Variant, ...]]
    template_locations: Mapping[str, Location]


@dataclass(frozen=True)
class Shapes:
    """A shapes file: the model's named dimensions and its kernels."""

    name: str
    file: str
    model: Mapping[str, int]
    kernels: tuple[KernelShape, ...]


def _budget(node: Node) -> Budget:
    limits = ("spills", "scratch", "occupancy", "wmma_min", "vgpr_max")
    fields = node.mapping().only((), (*limits, "reason"))
    values = {name: value.integer(minimum=0) for name in limits if (value := fields.get(name)) is not None}
    reason = fields.get("reason")
    if not values:
        node.fail("the budget limits nothing", hint=f"set some of {', '.join(limits)}")
    return Budget(
        location=node.location,
        spills=values.get("spills"),
        scratch=values.get("scratch"),
        occupancy=values.get("occupancy"),
        wmma_min=values.get("wmma_min"),
        vgpr_max=values.get("vgpr_max"),
        reason=reason.text() if reason is not None else None,
    )


def _variant(node: Node) -> Variant:
    fields = node.mapping().only(("tokens", "tile"), ("targets", "budget"))
    bounds = fields["tokens"].sequence()
    if len(bounds) != 2:
        fields["tokens"].fail(f"expected `[first, last]`, found {len(bounds)} items")
    first, last = (item.integer(minimum=1, maximum=MAX_TOKENS) for item in bounds)
    if first > last:
        fields["tokens"].fail(f"the range is empty: {first} is above {last}")
    tile = fields["tile"].mapping()
    targets = fields.get("targets")
    budget = fields.get("budget")
    entries = budget.mapping().only((), TARGETS).entries if budget else {}
    if targets:
        targets.texts(minimum=1)
    return Variant(
        node.location,
        first,
        last,
        {name: value.integer() for name, value in tile.entries.items()},
        {**tile.keys, "": tile.location},
        tuple(item.choice(TARGETS, "target") for item in targets.sequence()) if targets else (),
        {name: _budget(value) for name, value in entries.items()},
    )


def _dims(node: Node, model: Mapping[str, int]) -> tuple[dict[str, int], dict[str, Location]]:
    fields = node.mapping()
    values: dict[str, int] = {}
    for name, value in fields.entries.items():
        values[name] = expression(value).integer(model)
        if not 1 <= values[name] < _DIM_MAX:
            value.fail(f"the dimension is {values[name]}, it must be at least 1 and below 2^31")
    return values, {**fields.keys, "": fields.location}


def _templates(node: Node) -> tuple[dict[str, tuple[Variant, ...]], dict[str, Location]]:
    fields = node.mapping()
    if not fields.entries:
        node.fail("no template is named")
    for name, location in fields.keys.items():
        if not _TEMPLATE.match(name):
            raise UsageError(f"`{name}` is not a template name", where=str(location), hint="<folder>/<name>")
    variants = {
        name: tuple(_variant(item) for item in value.sequence(minimum=1))
        for name, value in fields.entries.items()
    }
    return variants, dict(fields.keys)


def _kernels(node: Node, model: Mapping[str, int]) -> list[KernelShape]:
    fields = node.mapping().only(("op", "dims", "dtype", "templates"), ("out",))
    op = fields["op"].text()
    if not _WORD.match(op):
        fields["op"].fail(f"`{op}` is not an operation's name", hint="lower-case letters, digits, `_`")
    dtype = fields["dtype"].choice(DTYPES, "dtype")
    out = fields.get("out")
    templates, locations = _templates(fields["templates"])
    dims = fields["dims"]
    # A list of dimensions is one kernel for each: the same tiles serve them all.
    each = dims.sequence(minimum=1) if isinstance(dims, SequenceNode) else (dims,)
    kernels: list[KernelShape] = []
    for item in each:
        values, places = _dims(item, model)
        kernels.append(
            KernelShape(
                item.location,
                op,
                values,
                places,
                dtype,
                out.choice(DTYPES, "dtype") if out is not None else dtype,
                templates,
                locations,
            )
        )
    return kernels


def shapes_from(document: Document) -> Shapes:
    """The shapes of a document. Raises `UsageError` with the place of what is wrong."""
    fields = document.expect("shapes").only(("schema", "name", "model", "kernels"), ("source",))
    model: dict[str, int] = {}
    for name, value in fields["model"].mapping().entries.items():
        model[name] = value.integer(minimum=1, maximum=_DIM_MAX - 1)
    kernels = [kernel for item in fields["kernels"].sequence(minimum=1) for kernel in _kernels(item, model)]
    source = fields.get("source")
    if source is not None:
        source.text()
    return Shapes(fields["name"].text(), document.name, model, tuple(kernels))
