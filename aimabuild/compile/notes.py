"""Facts that an AMD code object states about its kernels: the AMDGPU note (msgpack) and the symbol table.

Format: LLVM, "User Guide for AMDGPU Backend", code object V3-V6 metadata.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
from elftools.common.exceptions import ELFError
from elftools.construct.core import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from elftools.elf.segments import NoteSegment

from aimabuild.base.errors import AimaError

_EF_AMDGPU_MACH = 0xFF  # low byte of e_flags
# LLVM, AMDGPU usage, "AMDGPU EF_AMDGPU_MACH values"
_MACHINES = {0x41: "gfx1100", 0x4A: "gfx1151", 0x4E: "gfx1201"}

# What reading a damaged file raises, in pyelftools, msgpack and here.
DAMAGE = (
    *(
        ELFError,
        ConstructError,
        struct.error,
        msgpack.UnpackException,
        ArithmeticError,
        AssertionError,
        AttributeError,
    ),
    *(LookupError, TypeError, ValueError),
)


@dataclass(frozen=True)
class NoteArg:
    """One argument as the code object has it. `kind`: LLVM's value kind (`global_buffer`, `by_value` ...)."""

    offset: int
    size: int
    kind: str


@dataclass(frozen=True)
class KernelNotes:
    """What the notes say of one kernel. Bytes; `scratch` is per lane; `lds` leaves dynamic LDS out."""

    symbol: str
    kernarg_size: int
    args: tuple[NoteArg, ...]
    vgpr: int
    sgpr: int
    vgpr_spills: int
    sgpr_spills: int
    scratch: int
    lds: int
    wave_size: int
    max_threads: int
    workgroup_processor: bool
    code_bytes: int


@dataclass(frozen=True)
class CodeObject:
    """A code object's machine (from the ELF header, which is what the loader goes by) and its kernels."""

    machine: str
    kernels: Mapping[str, KernelNotes]


def _metadata(elf: ELFFile) -> dict[str, Any]:
    for segment in elf.iter_segments("PT_NOTE"):
        for note in segment.iter_notes() if isinstance(segment, NoteSegment) else ():
            if note["n_name"] == "AMDGPU":
                desc = note["n_descdata"]
                value = msgpack.unpackb(desc, strict_map_key=False)
                return value if isinstance(value, dict) else {}
    raise AimaError("the code object has no AMDGPU note")


def _code_sizes(elf: ELFFile) -> dict[str, int]:
    table = elf.get_section_by_name(".dynsym")
    if not isinstance(table, SymbolTableSection):
        return {}
    return {s.name: s["st_size"] for s in table.iter_symbols() if s["st_info"]["type"] == "STT_FUNC"}


def _kernel(entry: Mapping[str, Any], sizes: Mapping[str, int]) -> KernelNotes:
    name = entry[".name"]
    if entry[".symbol"] != f"{name}.kd":
        raise AimaError(f"the kernel `{name}` has the unexpected descriptor `{entry['.symbol']}`")
    return KernelNotes(
        symbol=name,
        kernarg_size=entry[".kernarg_segment_size"],
        args=tuple(NoteArg(a[".offset"], a[".size"], a[".value_kind"]) for a in entry.get(".args", [])),
        vgpr=entry[".vgpr_count"],
        sgpr=entry[".sgpr_count"],
        vgpr_spills=entry[".vgpr_spill_count"],
        sgpr_spills=entry[".sgpr_spill_count"],
        scratch=entry[".private_segment_fixed_size"],
        lds=entry[".group_segment_fixed_size"],
        wave_size=entry[".wavefront_size"],
        max_threads=entry[".max_flat_workgroup_size"],
        workgroup_processor=bool(entry.get(".workgroup_processor_mode", 0)),
        code_bytes=sizes.get(name, 0),
    )


def read_code_object(data: bytes) -> CodeObject:
    """The kernels of an AMD code object. Raises `AimaError` when it is none."""
    try:
        elf = ELFFile(io.BytesIO(data))
        if elf["e_machine"] != "EM_AMDGPU":
            raise AimaError("not an AMD code object", why=f"its machine is {elf['e_machine']}")
        mach = elf["e_flags"] & _EF_AMDGPU_MACH
        entries = _metadata(elf).get("amdhsa.kernels", [])
        sizes = _code_sizes(elf)
        kernels = {entry[".name"]: _kernel(entry, sizes) for entry in entries}
    except DAMAGE as error:
        raise AimaError("the code object cannot be read", why=repr(error)) from None
    return CodeObject(_MACHINES.get(mach, f"mach-{mach:#x}"), kernels)
