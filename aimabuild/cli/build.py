"""`plan`, `render` and `build`."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aimabuild.base.errors import UsageError
from aimabuild.base.reporter import Reporter

if TYPE_CHECKING:
    from aimabuild.plan import Plan, PlannedKernel

DEFAULT_RECIPE = "recipes/gfx1151-bf16.yaml"
TARGETS = ("engine", "launcher", "kernels", "native-tests", "bindings", "tests")
recipe_argument = click.argument("recipe", type=click.Path(path_type=Path), default=DEFAULT_RECIPE)
JOBS_HELP = "Commands at once (default: one for each processor, fewer where memory is short)."
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def counted(number: int, noun: str) -> str:
    """`1 kernel`, `2 kernels`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def find_recipe(given: Path) -> Path:
    """The recipe file that the reader means: as given, or with `recipes/` before and `.yaml` behind.

    Raises `UsageError` with what there is.
    """
    name = given if given.suffix == ".yaml" else given.with_name(f"{given.name}.yaml")
    for path in (given, name, "recipes" / given, "recipes" / name):
        if os.path.lexists(path) and not path.is_dir():
            return path
    if not Path("recipes").is_dir() and not Path("templates").is_dir():
        raise UsageError(
            "no such recipe, and this is no project",
            where=str(given),
            why=f"{Path.cwd()} holds no recipes/",
            hint="run aimabuild in the project's folder, or give the whole path of a recipe",
        )
    if str(given) in TARGETS:
        hint = f"name the recipe first: aimabuild build {DEFAULT_RECIPE} {given}"
    else:
        known = {path.stem: str(path) for path in sorted(Path("recipes").glob("*.yaml"))}
        near = difflib.get_close_matches(given.stem, known, n=1, cutoff=0.5)
        hint = f"did you mean `{known[near[0]]}`?" if near else f"recipes: {', '.join(known.values())}"
    raise UsageError("no such recipe", where=str(given), hint=hint)


def load_plan(recipe: Path) -> Plan:
    """The plan of a recipe file, as `find_recipe` finds it."""
    from aimabuild.plan import make_plan
    from aimabuild.schema.project import load_project

    project = load_project(find_recipe(recipe))
    return make_plan(project.recipe, project.shapes, project.templates)


def _words(values: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _print_reasons(reporter: Reporter, made: Plan) -> None:
    """The kernels below the line of the shapes file that asks for them."""
    items = {item.id: item for item in made.objects}
    uses = Counter(kernel.object for kernel in made.kernels)
    groups: dict[tuple[str, str, bool], list[PlannedKernel]] = {}
    for kernel in made.kernels:
        groups.setdefault((str(kernel.location), kernel.template, kernel.primary), []).append(kernel)
    for (place, template, primary), kernels in groups.items():
        item = items[kernels[0].object]
        role = "the recipe's choice for its operation" if primary else "an alternative, to compare"
        budget = _words(item.budget.limits()) if item.budget else "none"
        tokens = f"{kernels[0].tokens[0]}-{kernels[0].tokens[1]}"
        reporter.result(f"{place} asks for {template}, {role}")
        reporter.result(f"  tokens {tokens}, tile {_words(item.tile)}, budget {budget}")
        for kernel in kernels:
            shared = uses[kernel.object]
            note = f"  (object {kernel.object} serves {shared} kernels)" if shared > 1 else ""
            reporter.result(f"    {kernel.id}{note}")
    reporter.result(_total(made))


def _total(made: Plan) -> str:
    total = f"{counted(len(made.kernels), 'kernel')} from {counted(len(made.objects), 'object')}"
    return f"{made.recipe}: {total} for {made.target or 'no GPU target'}"


def _plan_json(plan: Plan) -> dict[str, Any]:
    from aimabuild.graph.budgets import budget_of
    from aimabuild.render import specs

    found = specs(plan)
    items = {item.id: item for item in plan.objects}
    return {
        "schema": "aimabuild/plan/v1",
        "recipe": plan.recipe,
        "target": plan.target,
        "digest": plan.digest,
        "kernels": [
            {
                **{key: value for key, value in found[kernel.id].items() if key != "schema"},
                "budget": budget_of(items[kernel.object]),
                "asked_at": str(kernel.location),
            }
            for kernel in plan.kernels
        ],
        "objects": [{"id": item.id, "key": item.key, "symbol": item.symbol} for item in plan.objects],
    }


@click.command()
@recipe_argument
@json_option
@click.option("--why", is_flag=True, help="Say for each kernel who asks for it.")
@click.pass_obj
def plan(reporter: Reporter, recipe: Path, as_json: bool, why: bool) -> None:
    """Show what a recipe builds, before anything is compiled."""
    made = load_plan(recipe)
    if as_json:
        reporter.json(_plan_json(made))
        return
    if why:
        _print_reasons(reporter, made)
        return
    items = {item.id: item for item in made.objects}
    rows = []
    for kernel in made.kernels:
        item = items[kernel.object]
        budget = _words(item.budget.limits()) if item.budget else "none"
        role = "" if kernel.primary else " (alternative)"
        tokens = f"{kernel.tokens[0]}-{kernel.tokens[1]}"
        rows.append([kernel.id, kernel.template + role, tokens, _words(item.tile), budget])
    if rows:
        reporter.table(["kernel", "template", "tokens", "tile", "budget"], rows)
    reporter.result(_total(made))


@click.command()
@recipe_argument
@click.option(
    "--to", "folder", type=click.Path(path_type=Path), help="Write there (default: build/RECIPE/kernels)."
)
@click.option("--stdout", "wanted", metavar="ID", help="Print one kernel's sources instead of writing files.")
@json_option
@click.pass_obj
def render(reporter: Reporter, recipe: Path, folder: Path | None, wanted: str | None, as_json: bool) -> None:
    """Write the kernel sources that a recipe's templates render to."""
    from aimabuild.base.files import write_if_changed
    from aimabuild.render import render_plan
    from aimabuild.schema.project import find_root

    made = load_plan(recipe)
    if wanted is not None:
        _print_sources(reporter, made, wanted)
        return
    target = folder or find_root(find_recipe(recipe)) / "build" / made.recipe / "kernels"
    files = render_plan(made)
    written = [name for name, data in files.items() if write_if_changed(target / name, data)]
    if as_json:
        reporter.json(
            {"schema": "aimabuild/render/v1", "folder": str(target), "files": list(files), "written": written}
        )
        return
    reporter.result(f"{len(files)} files in {target}, {len(written)} of them new or changed")


def _print_sources(reporter: Reporter, made: Plan, wanted: str) -> None:
    from aimabuild.render import render_object
    from aimabuild.schema.document import suggest

    names = {kernel.id: kernel.object for kernel in made.kernels} | {
        item.id: item.id for item in made.objects
    }
    if wanted not in names:
        whole = [name for name in names if name.startswith(wanted)]
        if len(whole) != 1:
            raise UsageError(f"no kernel `{wanted}` in {made.recipe}", hint=suggest(wanted, names))
        wanted = whole[0]
    item = next(item for item in made.objects if item.id == names[wanted])
    for text in render_object(item).values():
        reporter.out.file.write(text)


@click.command()
@recipe_argument
@click.argument("targets", nargs=-1)
@click.option("-j", "--jobs", "jobs", type=click.IntRange(min=1), help=JOBS_HELP)
@click.option("--explain", is_flag=True, help="Say for each thing that is rebuilt which input changed.")
@click.option("--offline", is_flag=True, help="Fetch nothing.")
@click.option("--mirror", metavar="URL", help="Debian mirror for what is not in the cache.")
@click.option(
    "--rocm", type=click.Path(path_type=Path, exists=True), help="ROCm tree in place of the fetched one."
)
@click.option(
    "--ck", type=click.Path(path_type=Path, exists=True), help="Composable Kernel tree in place of it."
)
@json_option
@click.pass_obj
def build(
    reporter: Reporter,
    recipe: Path,
    targets: tuple[str, ...],
    jobs: int | None,
    explain: bool,
    offline: bool,
    mirror: str | None,
    rocm: Path | None,
    ck: Path | None,
    as_json: bool,
) -> None:
    """Compile kernels and engine, or only TARGETS.

    Targets: engine, launcher, kernels, native-tests, bindings (the Python module), tests (all of these).
    """
    from aimabuild.graph import build_plan, needed_parts, tools_of
    from aimabuild.plan import make_plan
    from aimabuild.schema.project import load_project
    from aimabuild.toolchain import open_toolchain

    project = load_project(find_recipe(recipe))
    planned = make_plan(project.recipe, project.shapes, project.templates)
    parts = needed_parts(planned, targets)
    toolchain = open_toolchain(
        project.root, reporter=reporter, offline=offline, mirror=mirror, rocm=rocm, ck=ck, parts=parts
    )
    tools = tools_of(toolchain, project.root, planned)
    result = build_plan(project, planned, tools, reporter, jobs=jobs, targets=targets, why=explain)
    made = {
        "engine": result.engine,
        "launcher": result.launcher,
        "kernels_library": result.kernels_library,
        "kernels_json": result.kernels_json,
        "native_tests": result.native_tests,
        "bindings": result.bindings,
        "build_info": result.build_info,
    }
    there = {name: str(path) for name, path in made.items() if path is not None and path.is_file()}
    if as_json:
        reporter.json(
            {"schema": "aimabuild/build/v1", "recipe": result.recipe, "ran": result.ran, "made": there}
        )
        return
    work = counted(result.ran, "command") if result.ran else "nothing to do"
    reporter.result(f"{result.recipe}: {work}; {result.folder}")
