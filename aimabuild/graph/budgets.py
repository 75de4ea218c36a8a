"""The budgets of a plan against what a build measured: one report of all, after everything compiled."""

from __future__ import annotations

from pathlib import Path

from aimabuild.base.errors import CheckFailedError
from aimabuild.compile.budget import faults, stated
from aimabuild.compile.record import read_record
from aimabuild.graph.layout import Layout
from aimabuild.plan import Plan, PlannedObject
from aimabuild.schema.shapes import Budget


def budget_of(item: PlannedObject) -> dict[str, int | str]:
    """An object's limits, and the reason beside them; empty without a budget."""
    if item.budget is None:
        return {}
    return {**item.budget.limits(), **({"reason": item.budget.reason} if item.budget.reason else {})}


def check_budgets(plan: Plan, layout: Layout, root: Path, recipe: str) -> None:
    """Raise one `CheckFailedError` with every budget of `plan` that its compiled objects do not meet.

    For each place in the shapes files: all broken and loose values, and the budget as it would have to read.
    recipe: what the reader calls the recipe, for the hint.
    """
    places: dict[str, tuple[Budget, list[PlannedObject]]] = {}
    for item in plan.objects:
        if item.budget is not None:
            places.setdefault(str(item.budget.location), (item.budget, []))[1].append(item)
    texts: list[str] = []
    count = 0
    for place, (_, items) in places.items():
        limits = budget_of(items[0])
        measured = [read_record(root / layout.record(item.id)).resources for item in items]
        wrong = [(item, faults(limits, found)) for item, found in zip(items, measured, strict=True)]
        lines = [f"  {item.id}: {'; '.join(map(str, found))}" for item, found in wrong if found]
        if lines:
            texts += [f"{place}: {items[0].template.name}", *lines]
            texts.append(f"  measured: {items[0].target}: {stated(limits, measured)}")
            count += len(lines)
    if texts:
        raise CheckFailedError(
            f"{count} compiled objects miss their budget"
            if count > 1
            else "1 compiled object misses its budget",
            where=plan.recipe,
            why="\n    ".join(texts),
            hint=f"choose another tile, or state what is measured; `aimabuild kernels {recipe}` shows all",
        )
