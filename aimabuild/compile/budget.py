"""A kernel against its budget: what the shapes file allows it to use.

A budget states the measured value. So a limit must hold, and a limit on spills, scratch or occupancy that
is looser than what the kernel uses needs a `reason`: else a later compiler could make the kernel worse and
nobody would see it. Matrix instructions and registers change with unrolling alone, and one budget serves
several dimensions: there the limit only has to hold.

No compile reads a budget: it is compared after a build, so that a new figure compiles nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aimabuild.base.errors import CheckFailedError
from aimabuild.compile.resources import Resources

_TIGHT = frozenset({"spills", "scratch", "occupancy"})


@dataclass(frozen=True)
class Line:
    """One limit and what was measured."""

    name: str
    limit: int
    measured: float
    at_least: bool

    @property
    def holds(self) -> bool:
        """The limit is kept."""
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    @property
    def loose(self) -> bool:
        """The limit would let the kernel get worse than it is."""
        return self.name in _TIGHT and self.holds and self.limit != int(self.measured)

    def __str__(self) -> str:
        relation = "at least" if self.at_least else "at most"
        text = f"{self.name} is {self.measured:g}, the budget says {relation} {self.limit}"
        return f"{text}, which is loose" if self.loose else text


def compare(budget: Mapping[str, int | str], resources: Resources) -> tuple[Line, ...]:
    """Every limit of a budget beside the measured value."""
    measured: dict[str, tuple[float, bool]] = {
        "spills": (resources.vgpr_spills + resources.sgpr_spills, False),
        "scratch": (resources.scratch, False),
        "vgpr_max": (resources.vgpr, False),
        "occupancy": (resources.occupancy, True),
        "wmma_min": (resources.wmma, True),
    }
    lines: list[Line] = []
    for name, limit in budget.items():
        if isinstance(limit, int):
            value, at_least = measured[name]
            lines.append(Line(name, limit, value, at_least))
    return tuple(lines)


def check_group_memory(kernel: str, resources: Resources, *, lds_max: int) -> None:
    """Raise `CheckFailedError` for a workgroup that no launch can serve.

    lds_max: bytes that the target can give to one workgroup.
    """
    if resources.lds > lds_max:
        raise CheckFailedError(
            f"the workgroup needs {resources.lds} bytes of group-shared memory, the target has {lds_max}",
            where=kernel,
            hint="choose a smaller tile or fewer stages in the shapes file",
        )


def faults(budget: Mapping[str, int | str], resources: Resources) -> tuple[Line, ...]:
    """The limits that are broken, and those that are loose without a `reason`."""
    excused = bool(budget.get("reason"))
    return tuple(
        line for line in compare(budget, resources) if not line.holds or (line.loose and not excused)
    )


def stated(budget: Mapping[str, int | str], measured: Sequence[Resources]) -> str:
    """The budget as the shapes file would state it: the worst measured value for each of its limits.

    A reason is kept, and asked for where one budget serves kernels that measure differently.
    """
    lines = [compare(budget, resources) for resources in measured]
    words: list[str] = []
    for same in zip(*lines, strict=True):
        values = [int(line.measured) for line in same]
        words.append(f"{same[0].name}: {min(values) if same[0].at_least else max(values)}")
    reason = budget.get("reason")
    if not reason and any(
        same[0].name in _TIGHT and len({int(line.measured) for line in same}) > 1
        for same in zip(*lines, strict=True)
    ):
        reason = "say why its kernels measure differently"
    return "{" + ", ".join([*words, *([f"reason: {json.dumps(reason)}"] if reason else [])]) + "}"
