"""What a compiled kernel uses of the machine, how many waves fit beside each other, and what limits them.

AMD: a WGP of gfx11/gfx12 has 4 SIMDs with 1,536 vector registers a lane each (wave32, the larger register
file of gfx1100, gfx1151 and gfx12), given out in granules of 24; 16 waves a SIMD; 128 KiB of LDS in granules
of 512 bytes; 32 workgroups of more than one wave. In CU mode a workgroup has half of it: 2 SIMDs, 64 KiB.
(LLVM, AMDGPUBaseInfo; AMD, "RDNA3.5 Instruction Set Architecture".)
NVIDIA, compute capability 9.0: 4 sub-partitions of 16,384 registers in granules of 256 a warp, 16 warps each;
228 KiB of shared memory in granules of 128 bytes; 32 blocks.
(CUDA C Programming Guide, technical specifications.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Machine:
    """The part of a GPU that one workgroup lives in. Registers are counted for one lane."""

    simds: int
    waves_max: int  # a SIMD
    registers: int  # a SIMD, for one lane
    register_granule: int
    lds: int
    lds_granule: int
    groups_max: int  # of more than one wave


_RDNA = Machine(4, 16, 1536, 24, 128 * 1024, 512, 32)
# 16,384 registers of a sub-partition are 512 for each lane of a warp; a granule of 256 is 8 for each lane.
_HOPPER = Machine(4, 16, 512, 8, 228 * 1024, 128, 32)
MACHINES: Mapping[str, Machine] = MappingProxyType(
    {"gfx1151": _RDNA, "gfx1100": _RDNA, "gfx1201": _RDNA, "sm_90": _HOPPER}
)


@dataclass(frozen=True)
class Resources:
    """The report of one kernel. Bytes; `scratch` is per lane, `occupancy` waves on each SIMD (average).

    `limiter`: what keeps more waves away, `registers`, `lds`, `groups` or `waves` (the most that a SIMD
    holds), joined by `+` where several do. `wmma`: matrix instructions in the code, `wmma_shape`: their most
    frequent form.
    """

    vgpr: int
    sgpr: int
    vgpr_spills: int
    sgpr_spills: int
    scratch: int
    lds_static: int
    lds_dynamic: int
    waves_per_group: int
    occupancy: float
    limiter: str
    wmma: int
    wmma_shape: str | None
    code_bytes: int

    @property
    def lds(self) -> int:
        """LDS of one workgroup: notes leave out what is asked for at launch."""
        return max(self.lds_static, self.lds_dynamic)

    def as_json(self) -> dict[str, Any]:
        """Plain data, whole numbers without a point."""
        value = asdict(self)
        if self.occupancy == int(self.occupancy):
            value["occupancy"] = int(self.occupancy)
        return value


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def half(machine: Machine) -> Machine:
    """The same machine in CU mode: a workgroup stays on one of the WGP's two compute units."""
    return Machine(
        machine.simds // 2,
        machine.waves_max,
        machine.registers,
        machine.register_granule,
        machine.lds // 2,
        machine.lds_granule,
        machine.groups_max // 2,
    )


def occupancy(machine: Machine, *, registers: int, lds: int, waves_per_group: int) -> tuple[float, str]:
    """(waves on each SIMD, limiter) for whole workgroups.

    registers: vector registers a lane. lds: bytes of one workgroup. (0.0, limiter) when not even one fits.
    """
    by_waves = machine.waves_max * machine.simds // waves_per_group
    used = _round_up(max(registers, 1), machine.register_granule)
    fit = {
        "waves": by_waves,
        "registers": min(machine.registers // used, machine.waves_max) * machine.simds // waves_per_group,
        "lds": machine.lds // _round_up(lds, machine.lds_granule) if lds else by_waves,
        "groups": machine.groups_max if waves_per_group > 1 else by_waves,
    }
    groups = min(fit.values())
    limits = [name for name, count in fit.items() if count == groups]
    # What only reaches the limit of waves does not limit.
    limiter = "waves" if groups == by_waves else "+".join(limits)
    return groups * waves_per_group / machine.simds, limiter
