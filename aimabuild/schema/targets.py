"""The targets that kernels are compiled for, and what templates may use of them in their rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Target:
    """One kind of GPU. `lds_max` is bytes of group-shared memory that one workgroup can have."""

    name: str
    vendor: str  # "amd" or "nvidia"
    wave_size: int
    lds_max: int
    threads_max: int

    def values(self) -> Mapping[str, int]:
        """What an expression may read of the target."""
        return {"wave_size": self.wave_size, "lds_max": self.lds_max, "threads_max": self.threads_max}


_ALL = (
    Target("gfx1151", "amd", wave_size=32, lds_max=65536, threads_max=1024),
    Target("gfx1100", "amd", wave_size=32, lds_max=65536, threads_max=1024),
    Target("gfx1201", "amd", wave_size=32, lds_max=65536, threads_max=1024),
    # 227 KiB is what one block may opt in to on compute capability 9.0 (CUDA C Programming Guide, table of
    # technical specifications).
    Target("sm_90", "nvidia", wave_size=32, lds_max=232448, threads_max=1024),
)

TARGETS: Mapping[str, Target] = MappingProxyType({target.name: target for target in _ALL})
TARGET_VALUES = frozenset(_ALL[0].values())
