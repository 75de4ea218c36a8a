"""Renders a template of the project and runs it in Triton's interpreter, in a child process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aimabuild.plan import PlannedObject, make_plan
from aimabuild.render import render_object
from aimabuild.schema.project import load_project

Array = NDArray[Any]
ROOT = Path(__file__).resolve().parents[2]
RECIPE = """\
schema: aimabuild/recipe/v1
name: one
summary: One kernel.
target: {target}
math: bf16
shapes: [shapes/one.yaml]
kernels: {{serve: {{{op}: {template}}}}}
bundle: {{libc: host, runtime: none}}
"""


@dataclass(frozen=True)
class Launch:
    """One launch: arrays by argument name (bf16 as uint16), changed in place; scalars by name."""

    arrays: dict[str, Array]
    scalars: dict[str, int | float]
    grid: tuple[int, int, int] = field(default=(1, 1, 1))


def planned(
    folder: Path,
    template: str,
    dims: dict[str, int],
    tile: dict[str, int],
    *,
    dtype: str,
    out: str,
    target: str = "gfx1151",
    tokens: int = 8192,
) -> PlannedObject:
    """The project's template with these dimensions and this tile, planned by the project's own code."""
    op = template.split("/")[1]
    variant = {"tokens": [1, tokens], "tile": tile}
    kernel = {"op": op, "dims": dims, "dtype": dtype, "out": out, "templates": {template: [variant]}}
    shapes = {"schema": "aimabuild/shapes/v1", "name": "one", "model": {"x": 1}, "kernels": [kernel]}
    for name in ("shapes", "recipes"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("templates", "native"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    (folder / "shapes/one.yaml").write_text(json.dumps(shapes))
    recipe = folder / "recipes/one.yaml"
    recipe.write_text(RECIPE.format(target=target, op=op, template=template))
    project = load_project(recipe)
    return make_plan(project.recipe, project.shapes, project.templates).objects[0]


def grid(item: PlannedObject, tokens: int, dims: dict[str, int]) -> tuple[int, int, int]:
    """Workgroups by the template's own formula."""
    values = {**dims, **item.tile}
    sizes = []
    for axis in item.template.grid or ():
        if axis.count is not None:
            sizes.append(axis.count.integer(values))
        else:
            mul, add, div = (
                default if part is None else part.integer(values)
                for part, default in ((axis.mul, 1), (axis.add, 0), (axis.div, 1))
            )
            sizes.append(-(-(tokens * mul + add) // div))
    return tuple([*sizes, 1, 1][:3])  # type: ignore[return-value]


def interpret(folder: Path, item: PlannedObject, launches: list[Launch], site: Path) -> None:
    """Run the launches; their arrays then hold what the kernel left in memory."""
    source = folder / "kernel.py"
    source.write_text(render_object(item)["kernel.py"])
    entries = []
    for i, launch in enumerate(launches):
        path = folder / f"launch{i}.npz"
        np.savez(path, **launch.arrays)
        entries.append({"arrays": str(path), "scalars": launch.scalars, "grid": launch.grid})
    request = {
        "site": str(site),
        "source": str(source),
        "symbol": item.symbol,
        "args": [{"name": a.name, "kind": a.kind, "dtype": a.dtype} for a in item.args],
        "constants": dict(item.constants),
        "launches": entries,
    }
    (folder / "request.json").write_text(json.dumps(request))
    child = Path(__file__).with_name("interpreter_child.py")
    done = subprocess.run(
        [sys.executable, "-I", "-B", str(child), str(folder / "request.json")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={"PATH": os.defpath, "HOME": str(folder), "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    for launch, entry in zip(launches, entries, strict=True):
        with np.load(str(entry["arrays"])) as file:
            for name in launch.arrays:
                launch.arrays[name][...] = file[name]
