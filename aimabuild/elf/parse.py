"""Reads one ELF file as a loader does: program headers and the dynamic section, never section headers.

The layouts and names of constants are pyelftools'. The walk is ours: every offset is checked against the
file, every chain has a length limit and must move forwards, so that no damaged file costs more than a moment,
and every damage is one `ElfError`.
"""

from __future__ import annotations

import functools
import io
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError as ToolsError
from elftools.common.utils import struct_parse
from elftools.construct import ConstructError
from elftools.elf.structs import ELFStructs

from aimabuild.elf.image import ElfError, ElfImage, NeededVersion

MAGIC = b"\x7fELF"
_HEADER_SIZES = {32: 52, 64: 64}
_MAX_SEGMENTS = 512
_MAX_DYNAMIC = 4096
_MAX_VERSIONS = 8192
_MAX_STRING = 4096
_MAX_NOTES = 1 << 20

_DF_TEXTREL = 0x4
_DF_1_PIE = 0x0800_0000
_VER_FLAG_WEAK = 0x2
_NOTE_BUILD_ID = 3
_NOTE_PROPERTY = 5
_PROPERTY_ISA_NEEDED = 0xC000_8002
_FILTERS = {"DT_AUXILIARY", "DT_FILTER", "DT_AUDIT", "DT_DEPAUDIT"}
# pyelftools has no names for these two.
_AUDIT_TAGS = {0x6FFF_FEFC: "DT_AUDIT", 0x6FFF_FEFB: "DT_DEPAUDIT"}


@dataclass(frozen=True)
class _Segment:
    kind: str
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    align: int


@functools.cache
def _layouts(little_endian: bool, bits: int) -> ELFStructs:
    structs = ELFStructs(little_endian=little_endian, elfclass=bits)
    structs.create_basic_structs()
    # Layouts that depend on type or system do not matter here; fixed ones cannot be upset by the file.
    structs.create_advanced_structs("ET_DYN", "EM_X86_64", "ELFOSABI_SYSV")
    return structs


def is_elf(path: Path) -> bool:
    """True if the regular file starts with the ELF magic."""
    try:
        with path.open("rb") as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(4) == MAGIC
    except OSError as error:
        raise ElfError("cannot read the file", where=str(path), why=error.strerror) from None


def parse(path: Path) -> ElfImage:
    """Read `path`. Raises `ElfError` for anything but a whole, well-formed ELF file."""
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ElfError("not a regular file", where=str(path))
            return _Reader(path, file).image()
    except OSError as error:
        raise ElfError("cannot read the file", where=str(path), why=error.strerror) from None
    except (ToolsError, ConstructError, struct.error, ValueError, OverflowError, MemoryError) as error:
        raise ElfError("damaged ELF file", where=str(path), why=str(error) or type(error).__name__) from None


class _Reader:
    """One pass over one open file."""

    def __init__(self, path: Path, file: io.BufferedReader) -> None:
        self._path = path
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._segments: list[_Segment] = []
        self._tags: list[tuple[str | int, int]] = []

    def _damaged(self, why: str) -> ElfError:
        return ElfError("damaged ELF file", where=str(self._path), why=why)

    def _bytes(self, offset: int, count: int, what: str) -> bytes:
        if offset < 0 or count < 0 or offset + count > self._size:
            raise self._damaged(
                f"{what} at {offset:#x} (+{count:#x}) lies outside the file of {self._size:#x} bytes"
            )
        self._file.seek(offset)
        data = self._file.read(count)
        if len(data) != count:
            raise self._damaged(f"{what} could not be read in full")
        return data

    def image(self) -> ElfImage:
        """The whole file."""
        ident = self._bytes(0, min(16, self._size), "the identification")
        if ident[:4] != MAGIC:
            raise ElfError("not an ELF file", where=str(self._path))
        if len(ident) < 16:
            raise self._damaged("the file ends inside its header")
        bits = {1: 32, 2: 64}.get(ident[4])
        if bits is None or ident[5] not in {1, 2}:
            raise self._damaged(f"unknown class {ident[4]} or byte order {ident[5]}")
        self._structs = _layouts(ident[5] == 1, bits)
        header = struct_parse(
            self._structs.Elf_Ehdr, io.BytesIO(self._bytes(0, _HEADER_SIZES[bits], "the header"))
        )
        machine = _name(header["e_machine"], "EM_")
        kind = _name(header["e_type"], "ET_")
        if bits != 64 or ident[5] != 1 or machine != "X86_64":
            return ElfImage(self._path, self._size, bits, machine, kind)
        self._read_segments(header)
        self._read_dynamic()
        return self._assemble(machine, kind)

    def _read_segments(self, header: Any) -> None:
        count, entry = header["e_phnum"], self._structs.Elf_Phdr.sizeof()
        if count > _MAX_SEGMENTS:
            raise self._damaged(f"{count} program headers; at most {_MAX_SEGMENTS} are accepted")
        if count and header["e_phentsize"] != entry:
            raise self._damaged(f"program headers of {header['e_phentsize']} bytes, not {entry}")
        table = io.BytesIO(self._bytes(header["e_phoff"], count * entry, "the program header table"))
        for index in range(count):
            raw = struct_parse(self._structs.Elf_Phdr, table, index * entry)
            segment = _Segment(
                _name(raw["p_type"], "PT_"),
                raw["p_flags"],
                raw["p_offset"],
                raw["p_vaddr"],
                raw["p_filesz"],
                raw["p_memsz"],
                raw["p_align"],
            )
            self._check_segment(segment, index)
            self._segments.append(segment)

    def _check_segment(self, segment: _Segment, index: int) -> None:
        if segment.kind == "NULL":
            return
        if segment.offset + segment.file_size > self._size:
            raise self._damaged(
                f"segment {index} ({segment.kind}) ends at {segment.offset + segment.file_size:#x}, "
                f"the file at {self._size:#x}: cut short?"
            )
        if segment.kind == "LOAD":
            if segment.file_size > segment.memory_size:
                raise self._damaged(f"segment {index} is larger in the file than in memory")
            if segment.align > 1 and (segment.address - segment.offset) % segment.align:
                raise self._damaged(f"segment {index} has an address that does not match its offset")
            if segment.address + segment.memory_size > 1 << 47:
                raise self._damaged(f"segment {index} lies outside the address space")

    def _one(self, kind: str) -> _Segment | None:
        found = [segment for segment in self._segments if segment.kind == kind]
        if len(found) > 1:
            raise self._damaged(f"{len(found)} PT_{kind} segments")
        return found[0] if found else None

    def _read_dynamic(self) -> None:
        segment = self._one("DYNAMIC")
        if segment is None:
            return
        entry = self._structs.Elf_Dyn.sizeof()
        count = min(segment.file_size // entry, _MAX_DYNAMIC)
        table = io.BytesIO(self._bytes(segment.offset, count * entry, "the dynamic section"))
        for index in range(count):
            raw = struct_parse(self._structs.Elf_Dyn, table, index * entry)
            if raw["d_tag"] == "DT_NULL":
                return
            self._tags.append((_AUDIT_TAGS.get(raw["d_tag"], raw["d_tag"]), raw["d_val"]))
        raise self._damaged("the dynamic section has no end")

    def _tag(self, name: str) -> int | None:
        values = [value for tag, value in self._tags if tag == name]
        # The loader keeps the last one when a tag stands twice.
        return values[-1] if values else None

    def _offset(self, address: int, what: str) -> int:
        for segment in self._segments:
            if segment.kind == "LOAD" and 0 <= address - segment.address < segment.file_size:
                return segment.offset + address - segment.address
        raise self._damaged(f"{what} has the address {address:#x}, which no segment of the file holds")

    def _string(self, index: int, what: str) -> str:
        table, size = self._tag("DT_STRTAB"), self._tag("DT_STRSZ")
        if table is None or size is None:
            raise self._damaged(f"{what} needs a string table and there is none")
        if index >= size:
            raise self._damaged(f"{what} starts at {index:#x} of a string table of {size:#x} bytes")
        offset = self._offset(table, "the string table") + index
        data = self._bytes(offset, min(_MAX_STRING, size - index, max(self._size - offset, 0)), what)
        end = data.find(b"\0")
        if end < 0:
            raise self._damaged(f"{what} has no end")
        try:
            return data[:end].decode()
        except UnicodeDecodeError:
            raise self._damaged(f"{what} is not text: {data[:end]!r}") from None

    def _strings(self, name: str) -> tuple[str, ...]:
        return tuple(self._string(value, name) for tag, value in self._tags if tag == name)

    def _optional(self, name: str) -> str | None:
        value = self._tag(name)
        return None if value is None else self._string(value, name)

    def _assemble(self, machine: str, kind: str) -> ElfImage:
        stack = self._one("GNU_STACK")
        isa, build_id = self._notes()
        flags_1 = self._tag("DT_FLAGS_1") or 0
        textrel = self._tag("DT_TEXTREL") is not None or bool((self._tag("DT_FLAGS") or 0) & _DF_TEXTREL)
        others = tuple(
            f"{tag} {self._string(value, str(tag))}" for tag, value in self._tags if tag in _FILTERS
        )
        return ElfImage(
            self._path,
            self._size,
            64,
            machine,
            kind,
            dynamic=self._one("DYNAMIC") is not None,
            interpreter=self._interpreter(),
            soname=self._optional("DT_SONAME"),
            needed=self._strings("DT_NEEDED"),
            rpath=self._optional("DT_RPATH"),
            runpath=self._optional("DT_RUNPATH"),
            loads_others=others,
            executable=kind == "EXEC" or bool(flags_1 & _DF_1_PIE),
            text_relocations=textrel,
            writable_code=any(s.kind == "LOAD" and s.flags & 3 == 3 for s in self._segments),
            stack="absent" if stack is None else "rwx" if stack.flags & 1 else "rw",
            versions_needed=tuple(self._versions_needed()),
            versions_defined=frozenset(self._versions_defined()),
            isa_needed=isa,
            build_id=build_id,
        )

    def _interpreter(self) -> str | None:
        segment = self._one("INTERP")
        if segment is None:
            return None
        if segment.file_size > _MAX_STRING:
            raise self._damaged("the interpreter's path is too long")
        data = self._bytes(segment.offset, segment.file_size, "the interpreter's path")
        if not data.endswith(b"\0"):
            raise self._damaged("the interpreter's path has no end")
        return data[:-1].decode("utf-8", "backslashreplace")

    def _chain(
        self, start: int, layout: Any, step: str, count: int | None, what: str
    ) -> list[tuple[int, Any]]:
        """The entries of a version list, each with its offset; `step` names the distance to the next."""
        entries: list[tuple[int, Any]] = []
        offset, size = start, layout.sizeof()
        while count is None or len(entries) < count:
            if len(entries) >= _MAX_VERSIONS:
                raise self._damaged(f"{what} has more than {_MAX_VERSIONS} entries")
            raw = struct_parse(layout, io.BytesIO(self._bytes(offset, size, what)))
            entries.append((offset, raw))
            if raw[step] == 0:
                break
            offset += raw[step]
        return entries

    def _versions_needed(self) -> list[NeededVersion]:
        address, count = self._tag("DT_VERNEED"), self._tag("DT_VERNEEDNUM")
        if address is None:
            return []
        start = self._offset(address, "the list of needed versions")
        needed: list[NeededVersion] = []
        for offset, entry in self._chain(
            start, self._structs.Elf_Verneed, "vn_next", count, "the list of needed versions"
        ):
            file = self._string(entry["vn_file"], "a needed version's file")
            for _, aux in self._chain(
                offset + entry["vn_aux"],
                self._structs.Elf_Vernaux,
                "vna_next",
                entry["vn_cnt"],
                "a needed version",
            ):
                weak = bool(aux["vna_flags"] & _VER_FLAG_WEAK)
                needed.append(
                    NeededVersion(file, self._string(aux["vna_name"], "a needed version's name"), weak)
                )
                if len(needed) > _MAX_VERSIONS:
                    raise self._damaged(f"more than {_MAX_VERSIONS} needed versions")
        return needed

    def _versions_defined(self) -> list[str]:
        address, count = self._tag("DT_VERDEF"), self._tag("DT_VERDEFNUM")
        if address is None:
            return []
        start = self._offset(address, "the list of defined versions")
        names: list[str] = []
        for offset, entry in self._chain(
            start, self._structs.Elf_Verdef, "vd_next", count, "the list of defined versions"
        ):
            # The first auxiliary entry is the version's own name, the others its parents'.
            first = self._chain(
                offset + entry["vd_aux"], self._structs.Elf_Verdaux, "vda_next", 1, "a defined version"
            )
            names.extend(self._string(aux["vda_name"], "a defined version's name") for _, aux in first)
        return names

    def _notes(self) -> tuple[int | None, str | None]:
        isa: int | None = None
        build_id: str | None = None
        for segment in self._segments:
            if segment.kind not in {"NOTE", "GNU_PROPERTY"}:
                continue
            if segment.file_size > _MAX_NOTES:
                raise self._damaged("a note segment is too large")
            align = 8 if segment.align == 8 else 4
            data = self._bytes(segment.offset, segment.file_size, "a note")
            for owner, kind, content in self._split_notes(data, align):
                if owner != b"GNU\0":
                    continue
                if kind == _NOTE_BUILD_ID:
                    build_id = content.hex()
                elif kind == _NOTE_PROPERTY:
                    isa = self._isa(content, isa)
        return isa, build_id

    def _split_notes(self, data: bytes, align: int) -> list[tuple[bytes, int, bytes]]:
        notes: list[tuple[bytes, int, bytes]] = []
        at = 0
        while at + 12 <= len(data):
            name_size, content_size, kind = struct.unpack_from("<III", data, at)
            content = at + _round(12 + name_size, align)
            if content + content_size > len(data):
                raise self._damaged("a note runs over its segment")
            notes.append((data[at + 12 : at + 12 + name_size], kind, data[content : content + content_size]))
            at = content + _round(content_size, align)
        return notes

    def _isa(self, data: bytes, isa: int | None) -> int | None:
        at = 0
        while at + 8 <= len(data):
            kind, size = struct.unpack_from("<II", data, at)
            if at + 8 + size > len(data):
                raise self._damaged("a property runs over its note")
            if kind == _PROPERTY_ISA_NEEDED and size == 4:
                bits = struct.unpack_from("<I", data, at + 8)[0]
                isa = max(isa if isa is not None else 0, max(bits.bit_length() - 1, 0))
            at += 8 + _round(size, 8)
        return isa


def _name(value: str | int, prefix: str) -> str:
    return value.removeprefix(prefix) if isinstance(value, str) else str(value)


def _round(value: int, align: int) -> int:
    return (value + align - 1) // align * align
