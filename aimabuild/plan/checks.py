"""The rules between a shapes file and a template, checked before anything is rendered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aimabuild.base.errors import UsageError
from aimabuild.schema.document import suggest
from aimabuild.schema.shapes import MAX_TOKENS, KernelShape, Variant
from aimabuild.schema.targets import Target
from aimabuild.schema.template import Template


def check_kind(shape: KernelShape, template: Template, target: Target) -> None:
    """The template serves this operation, target and dtypes."""
    where = str(shape.template_locations[template.name])
    rule = f"{template.location.file} says so"
    if template.op != shape.op:
        raise UsageError(f"`{template.name}` serves `{template.op}`, not `{shape.op}`", where=where, why=rule)
    if target.name not in template.targets:
        known = f"its targets: {', '.join(template.targets)} ({template.location.file})"
        raise UsageError(f"`{template.name}` cannot be compiled for {target.name}", where=where, why=known)
    for dtype, known_dtypes, what in (
        (shape.dtype, template.dtypes, "inputs"),
        (shape.out, template.outs, "results"),
    ):
        if dtype not in known_dtypes:
            known = f"it takes {', '.join(known_dtypes)} ({template.location.file})"
            raise UsageError(f"`{template.name}` has no {dtype} {what}", where=where, why=known)


def check_dims(shape: KernelShape, template: Template) -> None:
    """The shape names the template's dimensions, all of them, with values that it takes."""
    for name, location in shape.dim_locations.items():
        if name and name not in template.dims:
            raise UsageError(
                f"`{template.name}` has no dimension `{name}`",
                where=str(location),
                why=f"its dimensions: {', '.join(template.dims)} ({template.location.file})",
                hint=suggest(name, [known for known in template.dims if known not in shape.dims]),
            )
    for name, rule in template.dims.items():
        if name not in shape.dims:
            where = str(shape.dim_locations[""])
            raise UsageError(f"`{template.name}` needs the dimension `{name}`", where=where)
        if why := rule.refuses(shape.dims[name]):
            raise UsageError(
                f"`{template.name}` cannot take {name} = {shape.dims[name]}",
                where=str(shape.dim_locations[name]),
                why=f"it {why} ({rule.location})",
            )


def resolve_tile(variant: Variant, template: Template) -> dict[str, int]:
    """The variant's tile with defaults filled in, in the template's order."""
    for name, location in variant.tile_locations.items():
        if name and name not in template.tile:
            raise UsageError(
                f"`{template.name}` has no tile parameter `{name}`",
                where=str(location),
                why=f"its tile: {', '.join(template.tile)} ({template.location.file})",
                hint=suggest(name, [known for known in template.tile if known not in variant.tile]),
            )
    tile: dict[str, int] = {}
    for name, rule in template.tile.items():
        value = variant.tile.get(name, rule.default)
        where = variant.tile_locations.get(name, variant.tile_locations[""])
        if value is None:
            raise UsageError(f"`{template.name}` needs the tile parameter `{name}`", where=str(where))
        if why := rule.refuses(value):
            what = f"`{template.name}` cannot take {name} = {value}"
            raise UsageError(what, where=str(where), why=f"it {why} ({rule.location})")
        tile[name] = value
    return tile


def check_rules(shape: KernelShape, variant: Variant, template: Template, values: Mapping[str, int]) -> None:
    """Every rule of the template holds for these dimensions, this tile and target."""
    for rule in template.rules:
        if not rule.require.truth(values):
            given = ", ".join(f"{name} = {values[name]}" for name in sorted(rule.require.names))
            dims = ", ".join(f"{name} = {value}" for name, value in shape.dims.items())
            raise UsageError(
                f"`{template.name}` does not allow this tile for {dims}: `{rule.require.text}` is false",
                where=str(variant.location),
                why=f"{rule.why} ({given}; rule at {rule.require.location})",
            )


def check_cover(shape: KernelShape, template: Template, variants: Sequence[Variant], *, whole: bool) -> None:
    """Ranges of tokens do not overlap; with `whole`, they leave no hole up to the most a launch takes."""
    ordered = sorted(variants, key=lambda variant: variant.token_min)
    dims = ", ".join(f"{name} = {value}" for name, value in shape.dims.items())
    most = template.max_tokens or MAX_TOKENS
    upto, before = 0, None
    for variant in ordered:
        span = f"[{variant.token_min}, {variant.token_max}]"
        if variant.token_max > most:
            what = f"`{template.name}` takes {most} token{'s' if most > 1 else ''} at most, not {span}"
            raise UsageError(what, where=str(variant.location), why=f"{template.location.file} says so")
        if before is not None and variant.token_min <= upto:
            other = f"[{before.token_min}, {before.token_max}] at {before.location}"
            what = f"`{template.name}` for {dims}: the token ranges {span} and {other} overlap"
            raise UsageError(what, where=str(variant.location))
        if whole and variant.token_min != upto + 1:
            _hole(shape, template, dims, upto + 1, variant.token_min - 1)
        upto, before = variant.token_max, variant
    if whole and upto != most:
        _hole(shape, template, dims, upto + 1, most)


def _hole(shape: KernelShape, template: Template, dims: str, first: int, last: int) -> None:
    most = template.max_tokens or MAX_TOKENS
    raise UsageError(
        f"`{template.name}` for {dims}: no variant serves {first} to {last} tokens",
        where=str(shape.template_locations[template.name]),
        why=f"the recipe's choice for an operation must serve 1 to {most} tokens",
    )
