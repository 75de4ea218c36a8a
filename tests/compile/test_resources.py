"""Occupancy by the machine's rules, on figures known from elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aimabuild.compile.resources import MACHINES, Resources, half, occupancy

RDNA, HOPPER = MACHINES["gfx1151"], MACHINES["sm_90"]


@pytest.mark.parametrize(
    ("registers", "waves"),
    [(24, 16), (96, 16), (97, 12), (120, 12), (139, 10), (144, 10), (217, 6), (240, 6), (241, 5), (256, 5)],
)
def test_registers_on_gfx1151(registers: int, waves: int) -> None:
    """1,536 registers in granules of 24: what LLVM prints as occupancy, with one wave a workgroup."""
    assert occupancy(RDNA, registers=registers, lds=0, waves_per_group=1)[0] == waves


def test_whole_workgroups_only() -> None:
    # 5 waves fit on each of 4 SIMDs by registers; two workgroups of 8 waves do, a third does not.
    assert occupancy(RDNA, registers=250, lds=0, waves_per_group=8) == (4, "registers")


@pytest.mark.parametrize(
    ("lds", "waves_per_group", "expected"),
    [
        (65536, 4, (2, "lds")),  # two workgroups in a WGP
        (32768, 8, (8, "lds")),
        (10240, 4, (12, "lds")),
        (10241, 4, (12, "lds")),  # 10,752 allocated
        (512, 4, (16, "waves")),
    ],
)
def test_lds_on_gfx1151(lds: int, waves_per_group: int, expected: tuple[float, str]) -> None:
    assert occupancy(RDNA, registers=24, lds=lds, waves_per_group=waves_per_group) == expected


def test_both_limits_are_named() -> None:
    assert occupancy(RDNA, registers=97, lds=10240, waves_per_group=4) == (12, "registers+lds")


def test_cu_mode_has_half_the_lds_and_half_the_simds() -> None:
    assert occupancy(half(RDNA), registers=24, lds=65536, waves_per_group=4) == (2, "lds")
    assert occupancy(half(RDNA), registers=24, lds=32768, waves_per_group=4) == (4, "lds")


def test_workgroups_of_several_waves_are_limited_in_number() -> None:
    assert occupancy(RDNA, registers=24, lds=0, waves_per_group=1) == (16, "waves")
    assert occupancy(RDNA, registers=24, lds=0, waves_per_group=2) == (16, "waves")


def test_a_workgroup_that_does_not_fit() -> None:
    assert occupancy(RDNA, registers=24, lds=200_000, waves_per_group=4) == (0, "lds")


@pytest.mark.parametrize(
    ("registers", "threads", "blocks"),
    [(32, 256, 8), (64, 256, 4), (255, 256, 1), (128, 128, 4), (40, 128, 12)],
)
def test_registers_on_hopper(registers: int, threads: int, blocks: int) -> None:
    """64 warps and 65,536 registers an SM, as NVIDIA's occupancy calculator has it."""
    waves = threads // 32
    assert occupancy(HOPPER, registers=registers, lds=0, waves_per_group=waves)[0] == blocks * waves / 4


@given(registers=st.integers(1, 256), lds=st.integers(0, 65536), waves=st.sampled_from((1, 2, 4, 8, 16, 32)))
def test_more_resources_never_raise_occupancy(registers: int, lds: int, waves: int) -> None:
    here = occupancy(RDNA, registers=registers, lds=lds, waves_per_group=waves)[0]
    assert 0 <= here <= 16
    assert occupancy(RDNA, registers=registers + 24, lds=lds, waves_per_group=waves)[0] <= here
    assert occupancy(RDNA, registers=registers, lds=lds + 4096, waves_per_group=waves)[0] <= here


def test_lds_is_what_the_launch_asks_for_when_notes_say_zero() -> None:
    resources = Resources(97, 22, 0, 0, 0, 0, 10240, 4, 12.0, "lds", 12, "f32_16x16x16_bf16", 100)
    assert resources.lds == 10240
    assert resources.as_json()["occupancy"] == 12
    assert isinstance(resources.as_json()["occupancy"], int)
