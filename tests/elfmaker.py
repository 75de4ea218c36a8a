"""Writes minimal ELF files for tests: one LOAD segment, a dynamic section, versions, notes. No compiler.

The layout is chosen by us and simple: header, program headers, notes, dynamic section, version lists,
strings. Addresses equal file offsets.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_GNU_STACK, PT_GNU_PROPERTY = (
    1,
    2,
    3,
    4,
    0x6474E551,
    0x6474E553,
)
DT = {
    "NEEDED": 1,
    "STRTAB": 5,
    "STRSZ": 10,
    "SONAME": 14,
    "RPATH": 15,
    "TEXTREL": 22,
    "RUNPATH": 29,
    "FLAGS_1": 0x6FFFFFFB,
    "VERDEF": 0x6FFFFFFC,
    "VERDEFNUM": 0x6FFFFFFD,
    "VERNEED": 0x6FFFFFFE,
    "VERNEEDNUM": 0x6FFFFFFF,
    "AUXILIARY": 0x7FFFFFFD,
    "AUDIT": 0x6FFFFEFC,
}


def sysv_hash(name: str) -> int:
    """The hash that version entries carry (System V ABI, figure 5-13)."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF000_0000
        value = (value ^ (high >> 24)) & ~high
    return value


@dataclass
class Elf:
    """What to write; `build` gives the bytes."""

    soname: str | None = None
    needed: list[str] = field(default_factory=list)
    rpath: str | None = None
    runpath: str | None = None
    interpreter: str | None = None
    pie: bool = False
    kind: int = 3  # ET_DYN
    machine: int = 62  # EM_X86_64
    bits: int = 64
    stack: int | None = 6  # flags of PT_GNU_STACK: RW
    code_flags: int = 5
    dynamic: bool = True
    textrel: bool = False
    auxiliary: str | None = None
    audit: str | None = None
    versions_needed: dict[str, list[str]] = field(default_factory=dict)  # "?" before a name makes it weak
    versions_defined: list[str] = field(default_factory=list)
    isa: int | None = None
    extra: bytes = b""

    def build(self) -> bytes:
        """The bytes of the file."""
        if self.bits == 32:
            return _header32(self.machine, self.kind) + b"\0" * 64
        strings = _Strings()
        tags = self._tags(strings)
        kinds = [PT_LOAD]
        kinds += [PT_DYNAMIC] if self.dynamic else []
        kinds += [PT_INTERP] if self.interpreter is not None else []
        kinds += [PT_NOTE, PT_GNU_PROPERTY] if self.isa is not None else []
        kinds += [PT_GNU_STACK] if self.stack is not None else []
        at = _up(64 + 56 * len(kinds))
        property_at, note = at, _property(self.isa) if self.isa is not None else b""
        interp_at = property_at + _up(len(note))
        interp = self.interpreter.encode() + b"\0" if self.interpreter is not None else b""
        dynamic_at = _up(interp_at + len(interp))
        count = len(tags) + 3 + 2 * bool(self.versions_needed) + 2 * bool(self.versions_defined)
        dynamic_size = 16 * count if self.dynamic else 0
        need_at = dynamic_at + dynamic_size
        need = _verneed(self.versions_needed, strings)
        def_at = _up(need_at + len(need))
        defs = _verdef(self.versions_defined, strings)
        strings_at = _up(def_at + len(defs))
        table = strings.data
        if self.versions_needed:
            tags += [(DT["VERNEED"], need_at), (DT["VERNEEDNUM"], len(self.versions_needed))]
        if self.versions_defined:
            tags += [(DT["VERDEF"], def_at), (DT["VERDEFNUM"], len(self.versions_defined))]
        tags += [(DT["STRTAB"], strings_at), (DT["STRSZ"], len(table)), (0, 0)]
        dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags) if self.dynamic else b""
        size = strings_at + len(table) + len(self.extra)
        segments = {
            PT_LOAD: (self.code_flags, 0, size, 0x1000),
            PT_DYNAMIC: (6, dynamic_at, len(dynamic), 8),
            PT_INTERP: (4, interp_at, len(interp), 1),
            PT_NOTE: (4, property_at, len(note), 8),
            PT_GNU_PROPERTY: (4, property_at, len(note), 8),
            PT_GNU_STACK: (self.stack or 0, 0, 0, 16),
        }
        out = bytearray(_header64(self.machine, self.kind, len(kinds)))
        for kind in kinds:
            flags, offset, length, align = segments[kind]
            out += struct.pack("<IIQQQQQQ", kind, flags, offset, offset, offset, length, length, align)
        blocks = ((property_at, note), (interp_at, interp), (dynamic_at, dynamic))
        for where, data in (*blocks, (need_at, need), (def_at, defs), (strings_at, table)):
            out += b"\0" * (where - len(out)) + data
        return bytes(out) + self.extra

    def _tags(self, strings: _Strings) -> list[tuple[int, int]]:
        named = [("NEEDED", name) for name in self.needed]
        named += [("SONAME", self.soname), ("RPATH", self.rpath), ("RUNPATH", self.runpath)]
        named += [("AUXILIARY", self.auxiliary), ("AUDIT", self.audit)]
        tags = [(DT[tag], strings.add(text)) for tag, text in named if text is not None]
        if self.pie:
            tags.append((DT["FLAGS_1"], 0x0800_0000))
        if self.textrel:
            tags.append((DT["TEXTREL"], 0))
        return tags

    def write(self, path: Path) -> Path:
        """Write the file, folders included."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.build())
        path.chmod(0o755)
        return path


def program(**keywords: object) -> Elf:
    """A dynamic program."""
    return Elf(interpreter="/lib64/ld-linux-x86-64.so.2", pie=True, **keywords)  # type: ignore[arg-type]


class _Strings:
    def __init__(self) -> None:
        self.data = b"\0"

    def add(self, text: str) -> int:
        at = len(self.data)
        self.data += text.encode() + b"\0"
        return at


def _up(value: int) -> int:
    return (value + 7) // 8 * 8


def _header64(machine: int, kind: int, segments: int) -> bytes:
    ident = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    return ident + struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, 64, 0, 0, 64, 56, segments, 64, 0, 0)


def _header32(machine: int, kind: int) -> bytes:
    ident = b"\x7fELF\x01\x01\x01" + b"\0" * 9
    return ident + struct.pack("<HHIIIIIHHHHHH", kind, machine, 1, 0, 52, 0, 0, 52, 32, 0, 40, 0, 0)


def _property(level: int) -> bytes:
    content = struct.pack("<III", 0xC000_8002, 4, 1 << level) + b"\0" * 4
    return struct.pack("<III", 4, len(content), 5) + b"GNU\0" + content


def _verneed(versions: dict[str, list[str]], strings: _Strings) -> bytes:
    out = b""
    files = list(versions.items())
    for place, (file, names) in enumerate(files):
        aux = b""
        for index, name in enumerate(names):
            flags = 2 if name.startswith("?") else 0
            plain = name.removeprefix("?")
            step = 16 if index + 1 < len(names) else 0
            aux += struct.pack("<IHHII", sysv_hash(plain), flags, 2, strings.add(plain), step)
        step = 16 + len(aux) if place + 1 < len(files) else 0
        out += struct.pack("<HHIII", 1, len(names), strings.add(file), 16, step) + aux
    return out


def _verdef(names: list[str], strings: _Strings) -> bytes:
    out = b""
    for index, name in enumerate(names):
        step = 28 if index + 1 < len(names) else 0
        out += struct.pack("<HHHHIII", 1, 0, index + 1, 1, sysv_hash(name), 20, step)
        out += struct.pack("<II", strings.add(name), 0)
    return out
