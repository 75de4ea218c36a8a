"""Find or fetch compilers, headers and libraries, each by the version and sha256 of the lock file."""

from aimabuild.toolchain.parts import Part
from aimabuild.toolchain.toolchain import LOCK_NAME, Toolchain, open_toolchain

__all__ = ["LOCK_NAME", "Part", "Toolchain", "open_toolchain"]
