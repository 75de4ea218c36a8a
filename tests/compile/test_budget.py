"""Budgets: limits hold, and loose ones need a reason."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from aimabuild.base.errors import CheckFailedError
from aimabuild.compile.budget import check_group_memory, compare, faults, stated
from aimabuild.compile.resources import Resources
from aimabuild.schema.document import parse_document

MEASURED = Resources(97, 22, 0, 0, 0, 0, 10240, 4, 12.0, "registers", 12, "f32_16x16x16_bf16", 100)
BUDGET = {"spills": 0, "scratch": 0, "occupancy": 12, "wmma_min": 12, "vgpr_max": 97}


def said(budget: dict[str, Any], measured: Resources) -> str:
    return "; ".join(map(str, faults(budget, measured)))


def test_the_measured_values_hold() -> None:
    assert not faults(BUDGET, MEASURED)
    assert not faults({}, MEASURED)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"vgpr_spills": 3}, "spills is 3, the budget says at most 0"),
        ({"sgpr_spills": 1}, "spills is 1, the budget says at most 0"),
        ({"scratch": 16}, "scratch is 16, the budget says at most 0"),
        ({"occupancy": 10.5}, "occupancy is 10.5, the budget says at least 12"),
        ({"wmma": 0}, "wmma_min is 0, the budget says at least 12"),
        ({"vgpr": 98}, "vgpr_max is 98, the budget says at most 97"),
    ],
)
def test_each_limit_is_checked(change: dict[str, Any], text: str) -> None:
    assert said(BUDGET, dataclasses.replace(MEASURED, **change)) == text


def test_broken_and_loose_limits_are_named_together() -> None:
    worse = dataclasses.replace(MEASURED, vgpr_spills=1, occupancy=16.0)
    text = (
        "spills is 1, the budget says at most 0; occupancy is 16, the budget says at least 12, which is loose"
    )
    assert said(BUDGET, worse) == text


@pytest.mark.parametrize("budget", [{"occupancy": 8}, {"spills": 4}, {"scratch": 16}])
def test_a_loose_limit_needs_a_reason(budget: dict[str, Any]) -> None:
    assert "which is loose" in said(budget, MEASURED)
    assert not faults({**budget, "reason": "other dimensions need it"}, MEASURED)


def test_registers_and_matrix_instructions_may_be_loose() -> None:
    assert not faults({"vgpr_max": 128, "wmma_min": 4}, MEASURED)


def test_the_measured_budget_can_be_pasted() -> None:
    other = dataclasses.replace(MEASURED, vgpr=120, scratch=8, wmma=20)
    assert stated({"spills": 9, "occupancy": 3, "vgpr_max": 1}, [MEASURED]) == (
        "{spills: 0, occupancy: 12, vgpr_max: 97}"
    )
    line = stated(BUDGET, [MEASURED, other])
    assert line.startswith("{spills: 0, scratch: 8, occupancy: 12, wmma_min: 12, vgpr_max: 120, reason: ")
    assert stated({"wmma_min": 1, "reason": "K: it\nvaries"}, [MEASURED, other]) == (
        '{wmma_min: 12, reason: "K: it\\nvaries"}'
    )
    document = parse_document(f"b: {line}".encode(), "x").root["b"].mapping()
    assert document["vgpr_max"].integer() == 120


def test_group_memory_is_checked() -> None:
    with pytest.raises(
        CheckFailedError, match="needs 10240 bytes of group-shared memory, the target has 8192"
    ):
        check_group_memory("k", MEASURED, lds_max=8192)
    check_group_memory("k", MEASURED, lds_max=10240)


def test_a_broken_limit_is_not_called_loose() -> None:
    (line,) = compare({"occupancy": 16}, MEASURED)
    assert not line.holds
    assert not line.loose
