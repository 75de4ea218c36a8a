"""Loads what one build reads: the recipe, its shapes, and the templates that it names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aimabuild.base.errors import UsageError
from aimabuild.schema.document import Document, Location, load_document, read_input, suggest
from aimabuild.schema.recipe import Recipe, recipe_from
from aimabuild.schema.shapes import Shapes, shapes_from
from aimabuild.schema.template import Template, template_from

_SOURCES = (".py.j2", ".hip.j2", ".host.cpp.j2")


@dataclass(frozen=True)
class Project:
    """Everything that a plan is made from. `root` holds templates/, shapes/ and native/."""

    root: Path
    recipe: Recipe
    shapes: tuple[Shapes, ...]
    templates: Mapping[str, Template]


def _real(path: Path) -> Path:
    """`path` without links as far as they can be followed; a loop of links stays as it is."""
    return Path(os.path.realpath(path))


def find_root(recipe: Path) -> Path:
    """The project that a recipe belongs to: the nearest folder above it with templates/ and native/."""
    start = _real(recipe)
    for folder in start.parents:
        if (folder / "templates").is_dir() and (folder / "native").is_dir():
            return folder
    raise UsageError(
        "no project around this recipe",
        where=str(recipe),
        why="no folder above it holds templates/ and native/",
        hint="run from a checkout, or name a recipe inside one",
    )


def shown(path: Path, root: Path) -> str:
    """A path as messages name it: inside the project from its root, else as it is."""
    try:
        return _real(path).relative_to(_real(root)).as_posix()
    except ValueError:
        return str(path)


def _load(root: Path, path: Path) -> Document:
    return load_document(path, shown(path, root))


def template_names(root: Path) -> tuple[str, ...]:
    """Every template of the project, by name."""
    folder = root / "templates"
    return tuple(
        sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.glob("*/*.yaml"))
    )


def load_template(root: Path, name: str, *, named_at: Location | None = None) -> Template:
    """The template `name`; `named_at` is where an input file asks for it."""
    base = root / "templates" / name
    path = base.with_name(base.name + ".yaml")
    if not path.is_file():
        names = template_names(root)
        raise UsageError(
            f"there is no template `{name}`",
            where=str(named_at) if named_at else None,
            why=f"looked for {shown(path, root)}",
            hint=suggest(name, names),
        )
    texts: dict[str, str] = {}
    for suffix in _SOURCES:
        source = base.with_name(base.name + suffix)
        if source.is_file():
            texts[suffix] = _decode(read_input(source, shown(source, root)), shown(source, root))
    return template_from(_load(root, path), name, texts)


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError("not UTF-8 text", where=f"{name}:{line}") from None


def _check_template_names(root: Path, shapes: tuple[Shapes, ...]) -> None:
    """Every template that a shape offers is there: a misspelt one would look like one that is not chosen."""
    known = frozenset(template_names(root))
    for shape in (kernel for file in shapes for kernel in file.kernels):
        for name, location in shape.template_locations.items():
            if name not in known:
                hint = suggest(name, sorted(known))
                raise UsageError(f"there is no template `{name}`", where=str(location), hint=hint)


def _load_shapes(root: Path, name: str, named_at: Location) -> Document:
    path = root / name
    if not os.path.lexists(path):
        known = [found.relative_to(root).as_posix() for found in sorted((root / "shapes").glob("*.yaml"))]
        raise UsageError(f"there is no shapes file `{name}`", where=str(named_at), hint=suggest(name, known))
    return _load(root, path)


def load_project(recipe_path: Path, root: Path | None = None) -> Project:
    """Load a recipe and all that it names. Raises `UsageError` with the place of what is wrong."""
    if not recipe_path.is_file():
        if os.path.lexists(recipe_path):
            read_input(recipe_path, str(recipe_path))  # says what it is instead
        folder = (root or Path()) / "recipes"
        known = sorted(path.name for path in folder.glob("*.yaml"))
        near = suggest(recipe_path.name, known)
        raise UsageError("no such recipe", where=str(recipe_path), hint=near)
    home = root or find_root(recipe_path)
    recipe = recipe_from(_load(home, recipe_path))
    shapes = tuple(
        shapes_from(_load_shapes(home, name, named_at))
        for name, named_at in zip(recipe.shapes, recipe.shapes_locations, strict=True)
    )
    _check_template_names(home, shapes)
    templates: dict[str, Template] = {}
    if recipe.kernels is not None:
        for op, names in recipe.kernels.serve.items():
            for name in names:
                templates[name] = load_template(home, name, named_at=recipe.kernels.serve_locations[op])
        for name in recipe.kernels.alternatives:
            templates.setdefault(name, load_template(home, name, named_at=recipe.kernels.location))
    return Project(home, recipe, shapes, templates)
