"""Budgets: limits hold, and loose ones need a reason."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from aimabuild.base.errors import CheckFailedError
from aimabuild.compile.budget import check, compare
from aimabuild.compile.resources import Resources

MEASURED = Resources(97, 22, 0, 0, 0, 0, 10240, 4, 12.0, "registers", 12, "f32_16x16x16_bf16", 100)
BUDGET = {"spills": 0, "scratch": 0, "occupancy": 12, "wmma_min": 12, "vgpr_max": 97}
LDS_MAX = 65536


def test_the_measured_values_hold() -> None:
    check("k", BUDGET, MEASURED, lds_max=LDS_MAX)
    check("k", {}, MEASURED, lds_max=LDS_MAX)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vgpr_spills": 3}, "spills is 3, the budget says at most 0"),
        ({"sgpr_spills": 1}, "spills is 1, the budget says at most 0"),
        ({"scratch": 16}, "scratch is 16, the budget says at most 0"),
        ({"occupancy": 10.5}, "occupancy is 10.5, the budget says at least 12"),
        ({"wmma": 0}, "wmma_min is 0, the budget says at least 12"),
        ({"vgpr": 98}, "vgpr_max is 98, the budget says at most 97"),
    ],
)
def test_each_limit_is_checked(change: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckFailedError) as caught:
        check("k", BUDGET, dataclasses.replace(MEASURED, **change), lds_max=LDS_MAX)
    assert caught.value.exit_code == 3
    assert said in str(caught.value)
    assert str(caught.value).startswith("k: ")


def test_all_broken_limits_are_named() -> None:
    worse = dataclasses.replace(MEASURED, vgpr_spills=1, occupancy=8.0)
    with pytest.raises(CheckFailedError, match=r"spills is 1.*occupancy is 8"):
        check("k", BUDGET, worse, lds_max=LDS_MAX)


@pytest.mark.parametrize("budget", [{"occupancy": 8}, {"spills": 4}, {"scratch": 16}])
def test_a_loose_limit_needs_a_reason(budget: dict[str, int]) -> None:
    with pytest.raises(CheckFailedError, match="gives no reason"):
        check("k", budget, MEASURED, lds_max=LDS_MAX)
    check("k", {**budget, "reason": "other dimensions need it"}, MEASURED, lds_max=LDS_MAX)


def test_registers_and_matrix_instructions_may_be_loose() -> None:
    check("k", {"vgpr_max": 128, "wmma_min": 4}, MEASURED, lds_max=LDS_MAX)


def test_group_memory_is_checked_without_a_budget() -> None:
    with pytest.raises(
        CheckFailedError, match="needs 10240 bytes of group-shared memory, the target has 8192"
    ):
        check("k", {}, MEASURED, lds_max=8192)


def test_a_broken_limit_is_not_called_loose() -> None:
    (line,) = compare({"occupancy": 16}, MEASURED)
    assert not line.holds
    assert not line.loose
