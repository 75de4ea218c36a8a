"""A kernel against its budget: what the shapes file allows it to use.

A budget states the measured value. So a limit must hold, and a limit on spills, scratch or occupancy that
is looser than what the kernel uses needs a `reason`: else a later compiler could make the kernel worse and
nobody would see it. Matrix instructions and registers change with unrolling alone, and one budget serves
several dimensions: there the limit only has to hold.
"""

from __future__ import annotations

from collections.abc import Mapping
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
        return f"{self.name} is {self.measured:g}, the budget says {relation} {self.limit}"


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


def check(kernel: str, budget: Mapping[str, int | str], resources: Resources, *, lds_max: int) -> None:
    """Raise `CheckFailedError` when the kernel breaks a limit, or keeps a loose one without a reason.

    lds_max: bytes that the target can give to one workgroup.
    """
    if resources.lds > lds_max:
        raise CheckFailedError(
            f"the workgroup needs {resources.lds} bytes of group-shared memory, the target has {lds_max}",
            where=kernel,
            hint="choose a smaller tile or fewer stages in the shapes file",
        )
    lines = compare(budget, resources)
    broken = [str(line) for line in lines if not line.holds]
    if broken:
        raise CheckFailedError(
            "the kernel exceeds its budget",
            where=kernel,
            why="; ".join(broken),
            hint="choose another tile, or state the new figure in the shapes file",
        )
    loose = [str(line) for line in lines if line.loose]
    if loose and not budget.get("reason"):
        raise CheckFailedError(
            "the budget is looser than what the kernel uses, and gives no reason",
            where=kernel,
            why="; ".join(loose),
            hint="state the measured value in the shapes file, or add a `reason`",
        )
