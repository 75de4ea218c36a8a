"""Facts that a cubin states about its one kernel: `.nv.info` attributes.

NVIDIA does not publish the format; the layout is what `cuobjdump -elf` prints. One record is a format (u8),
an attribute (u8), and a value (u16), which for format 4 is the size of the bytes that follow.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from aimabuild.base.errors import AimaError
from aimabuild.compile.notes import DAMAGE

_SIZED = 4  # EIFMT_SVAL
_FRAME_SIZE, _REG_COUNT = 0x11, 0x2F  # in .nv.info: (symbol index u32, value u32)
_REQUIRED_THREADS, _PARAM, _PARAM_SIZE = 0x10, 0x17, 0x19  # in .nv.info.<kernel>


@dataclass(frozen=True)
class CubinParam:
    """One parameter: bytes from the start of the parameter block, and its size."""

    offset: int
    size: int


@dataclass(frozen=True)
class Cubin:
    """One kernel's facts. `frame` is bytes of local memory a thread (spills and arrays)."""

    symbol: str
    compute: int
    params: tuple[CubinParam, ...]
    param_size: int
    registers: int
    frame: int
    shared: int
    block: tuple[int, int, int] | None
    code_bytes: int


def _records(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(attribute, value, payload) of each record."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        size = value if form == _SIZED else 0
        yield attribute, value, data[at : at + size]
        at += size


def _section(elf: ELFFile, name: str) -> bytes:
    section = elf.get_section_by_name(name)
    if section is None:
        raise AimaError(f"the cubin has no section `{name}`")
    data = section.data()
    return data if isinstance(data, bytes) else b""


def _of_kernel(elf: ELFFile, index: int) -> tuple[int, int]:
    """(registers, frame bytes) from the section of the whole file."""
    found = {_REG_COUNT: 0, _FRAME_SIZE: 0}
    for attribute, _, payload in _records(_section(elf, ".nv.info")):
        if attribute in found:
            symbol, value = struct.unpack("<II", payload)
            if symbol == index:
                found[attribute] = value
    return found[_REG_COUNT], found[_FRAME_SIZE]


def _cubin(elf: ELFFile) -> Cubin:
    table = elf.get_section_by_name(".symtab")
    symbols = list(table.iter_symbols()) if isinstance(table, SymbolTableSection) else []
    kernels = [
        (i, s)
        for i, s in enumerate(symbols)
        if s["st_info"]["type"] == "STT_FUNC" and s["st_info"]["bind"] == "STB_GLOBAL"
    ]
    if len(kernels) != 1:
        raise AimaError(f"the cubin holds {len(kernels)} kernels, one was expected")
    index, symbol = kernels[0]
    params: dict[int, CubinParam] = {}
    size, block = 0, None
    for attribute, value, payload in _records(_section(elf, f".nv.info.{symbol.name}")):
        if attribute == _PARAM:
            _, ordinal, offset, packed = struct.unpack("<IHHI", payload)
            params[ordinal] = CubinParam(offset, packed >> 18)
        elif attribute == _PARAM_SIZE:
            size = value
        elif attribute == _REQUIRED_THREADS:
            block = struct.unpack("<III", payload)
    registers, frame = _of_kernel(elf, index)
    shared = elf.get_section_by_name(f".nv.shared.{symbol.name}")
    return Cubin(
        symbol=symbol.name,
        compute=elf["e_flags"] >> 8 & 0xFF,
        params=tuple(params[ordinal] for ordinal in sorted(params)),
        param_size=size,
        registers=registers,
        frame=frame,
        shared=shared["sh_size"] if shared is not None else 0,
        block=block,
        code_bytes=symbol["st_size"],
    )


def read_cubin(data: bytes) -> Cubin:
    """The kernel of a cubin. Raises `AimaError` when it cannot be read."""
    try:
        elf = ELFFile(io.BytesIO(data))
        if elf["e_machine"] != "EM_CUDA":
            raise AimaError("not a cubin", why=f"its machine is {elf['e_machine']}")
        return _cubin(elf)
    except DAMAGE as error:
        raise AimaError("the cubin cannot be read", why=repr(error)) from None
