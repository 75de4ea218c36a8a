"""What one ELF file says about itself, as far as loading it depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aimabuild.base.errors import AimaError

# x86-64 micro-architecture levels, by the bit of GNU_PROPERTY_X86_ISA_1_NEEDED that stands for them.
ISA_LEVELS: tuple[str, ...] = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")


class ElfError(AimaError):
    """A file that starts as ELF and cannot be read as such."""


@dataclass(frozen=True, order=True)
class NeededVersion:
    """A symbol version (`name`) asked of the library `file`; a weak one may be missing."""

    file: str
    name: str
    weak: bool


@dataclass(frozen=True)
class ElfImage:
    """One ELF file. For another class or machine than x86-64 only the first five fields are filled.

    elf_class: 32 or 64. machine, kind: pyelftools' names without their prefix ("X86_64", "DYN"), or a number.
    rpath, runpath: the raw strings, None when the tag is absent. needed: DT_NEEDED in file order.
    loads_others: tags that make the loader open more files (audit and filter objects), as "TAG name".
    stack: "rw", "rwx", or "absent" when there is no PT_GNU_STACK. isa_needed: index into ISA_LEVELS or None.
    """

    path: Path
    size: int
    elf_class: int
    machine: str
    kind: str
    dynamic: bool = False
    interpreter: str | None = None
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    loads_others: tuple[str, ...] = ()
    executable: bool = False
    text_relocations: bool = False
    writable_code: bool = False
    stack: str = "absent"
    versions_needed: tuple[NeededVersion, ...] = ()
    versions_defined: frozenset[str] = frozenset()
    isa_needed: int | None = None
    build_id: str | None = None

    @property
    def native(self) -> bool:
        """True for what an x86-64 loader can take at all."""
        return self.elf_class == 64 and self.machine == "X86_64"

    @property
    def loadable(self) -> bool:
        """True for what dlopen can take: a shared object of the right class, machine and type."""
        return self.native and self.kind == "DYN" and self.dynamic and not self.executable
