"""Recipes: what one build makes (`recipes/<name>.yaml`, schema aimabuild/recipe/v1)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from aimabuild.base.errors import UsageError
from aimabuild.schema.bundle import Bundle, read_bundle
from aimabuild.schema.document import Document, Location, Node, SequenceNode
from aimabuild.schema.targets import TARGETS

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*\Z", re.ASCII)
_GLIBC = re.compile(r"2\.[0-9]{1,2}\Z", re.ASCII)
MATHS = ("bf16", "f32")


@dataclass(frozen=True)
class KernelChoice:
    """Which template serves each operation (the first that a shape offers), and what is built to compare."""

    serve: Mapping[str, tuple[str, ...]]
    serve_locations: Mapping[str, Location]
    alternatives: tuple[str, ...]
    location: Location


@dataclass(frozen=True)
class EngineOptions:
    """How the engine is built. `glibc`: the oldest C library that it runs with."""

    glibc: str


@dataclass(frozen=True)
class Recipe:
    """One build. `target` None: no GPU kernels, the engine alone."""

    name: str
    file: str
    summary: str
    target: str | None
    target_location: Location
    shapes: tuple[str, ...]
    shapes_locations: tuple[Location, ...]
    math: str
    kernels: KernelChoice | None
    engine: EngineOptions
    bundle: Bundle


def _relative(node: Node) -> str:
    """A path inside the project: relative, without `..`."""
    path = PurePosixPath(node.text())
    if path.is_absolute() or ".." in path.parts:
        node.fail("expected a path inside the project", hint="relative to the project's root, without `..`")
    return str(path)


def _kernels(node: Node) -> KernelChoice:
    fields = node.mapping().only(("serve",), ("alternatives",))
    serve = fields["serve"].mapping()
    if not serve.entries:
        serve.fail("no operation is served")
    chosen: dict[str, tuple[str, ...]] = {}
    for op, value in serve.entries.items():
        chosen[op] = (value.text(),) if not isinstance(value, SequenceNode) else value.texts(minimum=1)
    alternatives = fields.get("alternatives")
    return KernelChoice(
        chosen,
        {op: value.location for op, value in serve.entries.items()},
        alternatives.texts() if alternatives else (),
        node.location,
    )


def _engine(node: Node | None) -> EngineOptions:
    glibc = node.mapping().only((), ("glibc",)).get("glibc") if node is not None else None
    if glibc is not None and not _GLIBC.match(glibc.text()):
        glibc.fail(f"`{glibc.text()}` is not a glibc version", hint='for example "2.28", in quotes')
    return EngineOptions(glibc.text() if glibc is not None else "2.28")


def recipe_from(document: Document) -> Recipe:
    """The recipe of a document. Raises `UsageError` with the place of what is wrong."""
    fields = document.expect("recipe").only(
        ("schema", "name", "summary", "target", "math", "bundle"), ("shapes", "kernels", "engine")
    )
    name = fields["name"].text()
    if not _NAME.match(name):
        fields["name"].fail(
            f"`{name}` cannot be a recipe's name", hint="lower-case letters, digits, `.`, `_`, `-`"
        )
    target = fields["target"].choice((*TARGETS, "none"), "target")
    wanted = ("schema", "name", "summary", "target", "math", "bundle", "shapes", "kernels")
    if target != "none":
        fields.only(wanted, ("engine",))
    for key in ("shapes", "kernels") if target == "none" else ():
        if key in fields.keys:
            raise UsageError(f"`{key}` needs a target", where=str(fields.keys[key]), why="`target` is `none`")
    shapes, kernels = fields.get("shapes"), fields.get("kernels")
    shape_nodes = shapes.sequence(minimum=1) if shapes else ()
    return Recipe(
        name=name,
        file=document.name,
        summary=fields["summary"].text(),
        target=None if target == "none" else target,
        target_location=fields["target"].location,
        shapes=tuple(_relative(item) for item in shape_nodes),
        shapes_locations=tuple(item.location for item in shape_nodes),
        math=fields["math"].choice(MATHS, "math"),
        kernels=_kernels(kernels) if kernels else None,
        engine=_engine(fields.get("engine")),
        bundle=read_bundle(fields["bundle"]),
    )
