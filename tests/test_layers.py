"""The layers of aimabuild/: a module imports from its own layer and those below, never from one above."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import aimabuild

PACKAGE = Path(aimabuild.__file__).parent
LAYERS = ("base", "schema", "toolchain", "plan", "render", "compile", "graph", "elf", "bundle", "cli")
# Beside the stack: what it may use, and who may use it.
BESIDE = {"demo": ({"base", "schema", "toolchain"}, {"bundle", "cli"})}
# Not in any layer: the version, `python -m aimabuild`, and the native module.
TOP = {"__init__", "__main__", "_native"}


def layer_of(module: str) -> str:
    """The layer of `aimabuild.x.y`; "" for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else ""


def imported(source: str, module: str) -> set[str]:
    """Modules of this program that `source`, the text of `module`, imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module.split(".")[: -node.level]) if node.level else ""
            whole = ".".join(part for part in (base, node.module) if part)
            found.add(whole)
            found.update(f"{whole}.{name.name}" for name in node.names)
    return {name for name in found if name.split(".")[0] == "aimabuild"}


def refused(source: str, module: str) -> list[str]:
    """The imports of a module that its layer does not allow."""
    here = layer_of(module)
    if here in BESIDE:
        allowed = BESIDE[here][0] | {here, ""}
    elif here in LAYERS:
        beside = {name for name, (_, users) in BESIDE.items() if here in users}
        allowed = {*LAYERS[: LAYERS.index(here) + 1], *beside, ""}
    else:
        raise AssertionError(f"{module} lies in no layer")
    return sorted(name for name in imported(source, module) if layer_of(name) not in allowed)


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if len(parts) == 2 and parts[1] in TOP:
            continue
        found.append((".".join(parts), path))
    return found


@pytest.mark.parametrize(
    ("module", "path"), modules(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_module_imports_nothing_from_above(module: str, path: Path) -> None:
    assert refused(path.read_text(), module) == []


def test_every_layer_is_there() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and not path.name.startswith("__")}
    assert folders == {*LAYERS, *BESIDE}


@pytest.mark.parametrize(
    ("source", "module", "bad"),
    [
        (
            "from aimabuild.graph import build",
            "aimabuild.plan.make",
            ["aimabuild.graph", "aimabuild.graph.build"],
        ),
        ("def f():\n    import aimabuild.cli", "aimabuild.base.files", ["aimabuild.cli"]),
        (
            "from ..render import spec",
            "aimabuild.schema.shapes",
            ["aimabuild.render", "aimabuild.render.spec"],
        ),
        ("from aimabuild.plan import x", "aimabuild.demo.model", ["aimabuild.plan", "aimabuild.plan.x"]),
        ("from aimabuild import graph", "aimabuild.elf.parse", []),
        ("from aimabuild import bundle", "aimabuild.elf.parse", ["aimabuild.bundle"]),
        ("from aimabuild.demo import model", "aimabuild.cli.demo", []),
        (
            "from aimabuild.demo import model",
            "aimabuild.plan.make",
            ["aimabuild.demo", "aimabuild.demo.model"],
        ),
    ],
)
def test_the_check_itself(source: str, module: str, bad: list[str]) -> None:
    assert refused(source, module) == bad
