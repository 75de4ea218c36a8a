"""`kernels` and `disasm`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aimabuild.base.errors import UsageError
from aimabuild.base.reporter import Reporter
from aimabuild.cli.build import (
    DEFAULT_RECIPE,
    counted,
    find_recipe,
    json_option,
    load_plan,
    recipe_argument,
)

if TYPE_CHECKING:
    from aimabuild.plan import Plan


def _built(recipe: Path, reporter: Reporter) -> tuple[Plan, Path, dict[str, Any]]:
    """(today's plan, build/<recipe>, its kernel table). Warns when the recipe has changed since."""
    from aimabuild.compile.report import load_table
    from aimabuild.schema.project import find_root

    recipe = find_recipe(recipe)
    plan = load_plan(recipe)
    if not plan.kernels:
        raise UsageError("this recipe has no kernels", where=str(recipe))
    folder = find_root(recipe) / "build" / plan.recipe
    table = load_table(folder / "kernels.json", recipe)
    if {kernel.id for kernel in plan.kernels} != {kernel["id"] for kernel in table["kernels"]}:
        reporter.warn(f"{folder} is older than the recipe; run `aimabuild build {recipe}` to renew it")
    return plan, folder, table


@click.command()
@recipe_argument
@json_option
@click.option("--op", help="Only kernels of this operation.")
@click.pass_obj
def kernels(reporter: Reporter, recipe: Path, as_json: bool, op: str | None) -> None:
    """Resource report of the compiled kernels.

    Registers are per lane, scratch is bytes per lane, LDS is bytes per workgroup with what is asked for at
    launch, waves/SIMD is how many waves fit and `limiter` what keeps more away.
    """
    from aimabuild.compile.report import HEADER, RIGHT, SCHEMA_REPORT, natural, report, row
    from aimabuild.graph.budgets import budget_of
    from aimabuild.schema.document import suggest

    plan, _, table = _built(recipe, reporter)
    objects_of = {item.id: item for item in plan.objects}
    budgets = {kernel.id: budget_of(objects_of[kernel.object]) for kernel in plan.kernels}
    known = sorted({kernel["op"] for kernel in table["kernels"]})
    if op is not None and op not in known:
        why = f"operations here: {', '.join(known)}"
        raise UsageError(f"no kernel of the operation `{op}`", why=why, hint=suggest(op, known))
    items = sorted(report(table, budgets), key=lambda item: natural(item["id"]))
    items = [item for item in items if op in {None, item["op"]}]
    if as_json:
        reporter.json({"schema": SCHEMA_REPORT, "target": table["target"], "kernels": items})
        return
    reporter.table(list(HEADER), [row(item) for item in items], right=RIGHT)
    objects = {item["object"]: item["bytes"] for item in items}
    made = f"{counted(len(items), 'kernel')} in {counted(len(objects), 'object')}"
    reporter.result(f"{made} for {table['target']}, {sum(objects.values())} bytes")


def _disassembly(folder: Path, kernel: dict[str, Any], target: str, reporter: Reporter) -> str:
    from aimabuild.compile.isa import nvdisasm_text, objdump_text
    from aimabuild.compile.triton_aot import nvdisasm
    from aimabuild.schema.targets import TARGETS
    from aimabuild.toolchain import open_toolchain

    root = folder.parent.parent
    image = folder / "kernels" / kernel["object"] / "kernel.co"
    if TARGETS[target].vendor == "nvidia":
        tools = open_toolchain(root, reporter=reporter, parts=["triton"])
        return nvdisasm_text(nvdisasm(tools.triton_site), image)
    tools = open_toolchain(root, reporter=reporter, parts=["ziglang", "llvm-tools", "hip-runtime"])
    return objdump_text(tools.llvm_objdump(), image, kernel["symbol"])


@click.command()
@click.argument("kernel")
@click.option(
    "--recipe", type=click.Path(path_type=Path), default=DEFAULT_RECIPE, show_default=True, help="Its recipe."
)
@click.option("--counts", is_flag=True, help="Count instructions by name instead of printing them.")
@json_option
@click.pass_obj
def disasm(reporter: Reporter, kernel: str, recipe: Path, counts: bool, as_json: bool) -> None:
    """Disassemble one kernel, named by its id or the start of it."""
    from aimabuild.compile.isa import mnemonics
    from aimabuild.compile.report import pick

    _, folder, table = _built(recipe, reporter)
    item = dict(pick(table["kernels"], kernel))
    text = _disassembly(folder, item, table["target"], reporter)
    counted: Counter[str] = mnemonics(text)
    if as_json:
        value = {"schema": "aimabuild/disasm/v1", "id": item["id"], "symbol": item["symbol"]}
        reporter.json({**value, "counts": dict(counted.most_common()), "text": text})
    elif counts:
        rows = [[name, str(count)] for name, count in counted.most_common()]
        reporter.table(["instruction", "count"], rows, right=frozenset({"count"}))
    else:
        reporter.out.file.write(text)
