"""Recipe, shapes and templates -> plan. Pure: reads nothing but its arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from aimabuild.base.errors import UsageError
from aimabuild.base.files import sha256_bytes
from aimabuild.plan.checks import check_cover, check_dims, check_kind, check_rules, resolve_tile
from aimabuild.plan.model import Plan, PlannedArg, PlannedAxis, PlannedKernel, PlannedObject
from aimabuild.schema.expression import Expression
from aimabuild.schema.recipe import KernelChoice, Recipe
from aimabuild.schema.shapes import MAX_TOKENS, KernelShape, Shapes, Variant
from aimabuild.schema.targets import TARGETS, Target
from aimabuild.schema.template import GridAxis, Template

KEY_FORMAT = 1  # change it when rendering changes in a way that the templates do not show


def digest_of(value: Any) -> str:
    """SHA-256 of a JSON value in its one canonical spelling."""
    return sha256_bytes(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def make_plan(recipe: Recipe, shapes: Iterable[Shapes], templates: Mapping[str, Template]) -> Plan:
    """Everything that the recipe compiles. Raises `UsageError` for what cannot be compiled as asked."""
    if recipe.target is None or recipe.kernels is None:
        return Plan(recipe.name, None, (), (), digest_of([]))
    target = TARGETS[recipe.target]
    objects: dict[str, PlannedObject] = {}
    kernels: list[PlannedKernel] = []
    places: dict[tuple[Any, ...], KernelShape] = {}
    offered: set[str] = set()
    for shape in (kernel for file in shapes for kernel in file.kernels):
        offered.update(shape.templates)
        _once(shape, places)
        for name, primary in _chosen(shape, recipe.kernels, recipe.file):
            template = templates[name]
            check_kind(shape, template, target)
            check_dims(shape, template)
            variants = [v for v in shape.templates[name] if not v.targets or target.name in v.targets]
            check_cover(shape, template, variants, whole=primary)
            kernels.extend(
                _kernel(shape, template, target, variant, objects, primary=primary) for variant in variants
            )
    for name in recipe.kernels.alternatives:
        if name not in offered:
            what = f"no shape offers the alternative `{name}`"
            raise UsageError(what, where=str(recipe.kernels.location))
    digest = digest_of([[_entry(kernel) for kernel in kernels], [item.key for item in objects.values()]])
    return Plan(recipe.name, target.name, tuple(kernels), tuple(objects.values()), digest)


def _once(shape: KernelShape, places: dict[tuple[Any, ...], KernelShape]) -> None:
    key = (shape.op, tuple(sorted(shape.dims.items())), shape.dtype, shape.out)
    if key in places:
        dims = ", ".join(f"{name} = {value}" for name, value in shape.dims.items())
        raise UsageError(
            f"`{shape.op}` for {dims} stands twice",
            where=str(shape.location),
            why=f"first at {places[key].location}",
        )
    places[key] = shape


def _chosen(shape: KernelShape, choice: KernelChoice, recipe_file: str) -> list[tuple[str, bool]]:
    """The templates to build for a shape, the primary one first."""
    if shape.op not in choice.serve:
        raise UsageError(
            f"the recipe names no template for the operation `{shape.op}`",
            where=str(choice.location),
            why=f"needed at {shape.location}",
            hint=f"add it under `serve` in {recipe_file}",
        )
    wanted = choice.serve[shape.op]
    primary = next((name for name in wanted if name in shape.templates), None)
    if primary is None:
        dims = ", ".join(f"{name} = {value}" for name, value in shape.dims.items())
        raise UsageError(
            f"`{shape.op}` for {dims} offers none of {', '.join(f'`{name}`' for name in wanted)}",
            where=str(shape.location),
            why=f"it offers {', '.join(shape.templates)}; the recipe's choice is at "
            f"{choice.serve_locations[shape.op]}",
        )
    others = [name for name in choice.alternatives if name in shape.templates and name != primary]
    return [(primary, True), *((name, False) for name in others)]


def _slug(dims: Mapping[str, int], dtype: str, out: str) -> list[str]:
    parts = [f"{name}{value}" for name, value in dims.items()]
    return [*parts, dtype] if out == dtype else [*parts, dtype, out]


def _kernel(
    shape: KernelShape,
    template: Template,
    target: Target,
    variant: Variant,
    objects: dict[str, PlannedObject],
    *,
    primary: bool,
) -> PlannedKernel:
    tile = resolve_tile(variant, template)
    dims = {name: shape.dims[name] for name in template.dims}
    values = {**dims, **tile, **target.values()}
    check_rules(shape, variant, template, values)
    item = _object(shape, template, target, variant, tile, values)
    _add(item, objects)
    tokens = (variant.token_min, variant.token_max)
    grid = _grid(template.grid, values) if template.grid is not None else None
    name = "-".join(
        [template.op, template.directory, *_slug(dims, shape.dtype, shape.out), f"t{variant.token_min}"]
    )
    whole = item.dims == dims
    key = digest_of([item.key, dims, tokens, [[a.var, a.mul, a.add, a.div] for a in grid or ()]])
    return PlannedKernel(
        id=item.id if whole else f"{name}-{key[:8]}",
        name=name,
        object=item.id,
        op=template.op,
        template=template.name,
        dims=dims,
        dtype=shape.dtype,
        out=shape.out,
        tokens=tokens,
        primary=primary,
        grid=grid,
        location=variant.location,
    )


def _object(
    shape: KernelShape,
    template: Template,
    target: Target,
    variant: Variant,
    tile: Mapping[str, int],
    values: Mapping[str, int],
) -> PlannedObject:
    compiled = [*template.constants.values(), *template.options.values()]
    read = frozenset[str]().union(*(part.names for part in compiled))
    dims = {name: shape.dims[name] for name in template.dims if name in read}
    slug = _slug(dims, shape.dtype, shape.out)
    if whole := len(dims) == len(template.dims):
        slug.append(f"t{variant.token_min}")
    parts = [template.op, template.directory, *slug]
    item = PlannedObject(
        id="",
        key="",
        symbol="_".join(["aima", *parts]),
        fill_symbol=None,
        template=template,
        target=target.name,
        dtype=shape.dtype,
        out=shape.out,
        dims=dims,
        tile=tile,
        constants={name: part.integer(values) for name, part in template.constants.items()},
        options={name: part.integer(values) for name, part in template.options.items()},
        args=_args(template, shape),
        tokens=(variant.token_min, variant.token_max) if whole else (1, MAX_TOKENS),
        budget=variant.budget.get(target.name),
        asked_by=shape.location.file,
    )
    key = _object_key(item)
    fill = f"aima_fill_{template.op}_{template.directory}_{key[:8]}" if template.fill else None
    return replace(item, id=f"{'-'.join(parts)}-{key[:8]}", key=key, fill_symbol=fill)


def _object_key(item: PlannedObject) -> str:
    """The digest of all that the object's bytes follow from: neither its budget nor who asks for it."""
    template = item.template
    return digest_of(
        {
            "format": KEY_FORMAT,
            "template": template.name,
            "compiler": template.compiler,
            "source": sha256_bytes(template.source.encode()),
            "host": sha256_bytes((template.host or "").encode()),
            "target": item.target,
            "dtype": [item.dtype, item.out],
            "symbol": item.symbol,
            "dims": dict(item.dims),
            "tile": dict(item.tile),
            "constants": dict(item.constants),
            "options": dict(item.options),
            "args": [[arg.name, arg.kind, arg.dtype, arg.divisibility, arg.size] for arg in item.args],
        }
    )


def _args(template: Template, shape: KernelShape) -> tuple[PlannedArg, ...]:
    dtypes = {"dtype": shape.dtype, "out": shape.out}
    return tuple(
        PlannedArg(arg.name, arg.kind, dtypes.get(arg.dtype or "", arg.dtype), arg.divisibility, arg.size)
        for arg in template.args
    )


def _add(item: PlannedObject, objects: dict[str, PlannedObject]) -> None:
    """Share an object that is there already; its budget must be the same."""
    other = objects.setdefault(item.id, item)
    if other.key != item.key:
        raise UsageError(f"two objects have the id `{item.id}`", where=str(item.template.location))
    mine, theirs = item.budget, other.budget
    if (mine.limits() if mine else None) != (theirs.limits() if theirs else None):
        places = [str(budget.location) for budget in (mine, theirs) if budget]
        raise UsageError(
            f"`{item.template.name}`: one object (dimensions are run-time arguments) has two budgets",
            where=places[0],
            why=f"the other is at {places[1]}" if len(places) > 1 else "another use of this tile states none",
        )


def _grid(axes: tuple[GridAxis, ...], values: Mapping[str, int]) -> tuple[PlannedAxis, ...]:
    """Three axes, the missing ones 1. Raises `UsageError` for numbers that the table cannot hold."""
    planned = [_axis(axis, values) for axis in axes]
    return (*planned, *([PlannedAxis("one", 1, 0, 1)] * (3 - len(planned))))


def _axis(axis: GridAxis, values: Mapping[str, int]) -> PlannedAxis:
    def number(part: Expression | None, otherwise: int, minimum: int) -> int:
        if part is None:
            return otherwise
        value = part.integer(values)
        if not minimum <= value < 1 << 31:
            what = f"`{part.text}` gives {value}, a grid takes {minimum} to 2^31 - 1"
            raise UsageError(what, where=str(part.location))
        return value

    if axis.var is None:
        return PlannedAxis("one", number(axis.count, 1, 1), 0, 1)
    return PlannedAxis(axis.var, number(axis.mul, 1, 1), number(axis.add, 0, 0), number(axis.div, 1, 1))


def _entry(kernel: PlannedKernel) -> list[Any]:
    return [kernel.id, kernel.object, list(kernel.tokens), kernel.primary]
