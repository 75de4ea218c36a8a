"""The reviewed list of libraries that objects name in their text and that a bundle does not hold as such.

A text that looks like a library's name is a file that the object may open. Each must be in the bundle under
that very name, or stand here with a reason. A new one, after a new ROCm for instance, fails the build until
somebody has looked at it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """What a name in the text of an object means for a bundle."""

    ABSENT = "absent"  # opened if there; the object does without
    ALIAS = "alias"  # opened under a second name: a link of that name is put in
    TEXT = "text"  # never opened


@dataclass(frozen=True)
class LedgerEntry:
    """`name` as it stands in the object `owner` (a SONAME or file name); `target`: what an alias leads to."""

    owner: str
    name: str
    verdict: Verdict
    reason: str
    target: str | None = None


LEDGER: tuple[LedgerEntry, ...] = (
    LedgerEntry(
        "libamdhip64.so.7",
        "libamdhip64.so",
        Verdict.ALIAS,
        "asks for itself by the bare name; a second copy, from the host, would be a second runtime",
        "libamdhip64.so.7",
    ),
    LedgerEntry(
        "libamdhip64.so.7", "libGL.so.1", Verdict.ABSENT, "OpenGL sharing, which the engine never asks for"
    ),
    LedgerEntry(
        "libamdhip64.so.7", "libX11.so.6", Verdict.ABSENT, "OpenGL sharing, which the engine never asks for"
    ),
    LedgerEntry(
        "libhsa-runtime64.so.1",
        "libhsa-amd-aqlprofile64.so",
        Verdict.ABSENT,
        "counters and traces for profilers; without it those extensions report as unsupported",
    ),
    LedgerEntry(
        "libamd_comgr.so.3",
        "-l:libunwind.so",
        Verdict.TEXT,
        "an argument for the linker in clang's driver; nothing is linked at run time",
    ),
    LedgerEntry(
        "libamd_comgr.so.3",
        "/../lib/libc++.so",
        Verdict.TEXT,
        "a path that clang's driver would pass to a linker; nothing is linked at run time",
    ),
    LedgerEntry(
        "libamd_comgr.so.3",
        "libstdc++.so",
        Verdict.TEXT,
        "a name that clang's driver looks for beside a host compiler; nothing is linked at run time",
    ),
    LedgerEntry(
        "libamd_comgr.so.3",
        "libLLVMHipSpvPasses.so",
        Verdict.TEXT,
        "a plug-in for compiling HIP to SPIR-V; nothing is compiled at run time",
    ),
    LedgerEntry(
        "libc.so.6",
        "libidn2.so.0",
        Verdict.ABSENT,
        "international host names in getaddrinfo; the engine takes numeric addresses only",
    ),
    LedgerEntry(
        "libc.so.6",
        "libnss_files.so.2",
        Verdict.TEXT,
        "the files and dns sources are inside libc.so.6 since glibc 2.34",
    ),
    LedgerEntry(
        "ld-linux-x86-64.so.2",
        "libc.so.6",
        Verdict.TEXT,
        "compared with what is loaded, never opened",
    ),
    LedgerEntry(
        "aima-engine.real",
        "libamdhip64.so.6",
        Verdict.ABSENT,
        "tried after libamdhip64.so.7, for hosts where the engine runs without its bundle",
    ),
    LedgerEntry(
        "aima-engine.real",
        "libamdhip64.so.7",
        Verdict.ABSENT,
        "asked for on an AMD GPU only; recipes without a runtime leave it out",
    ),
    LedgerEntry(
        "aima-engine.real",
        "libcuda.so.1",
        Verdict.ABSENT,
        "NVIDIA's driver belongs to the host; asked for with `--device cuda` only",
    ),
)


@dataclass(frozen=True)
class Classified:
    """One name in one object, and what became of it: "bundled", or a verdict's value."""

    owner: str
    name: str
    verdict: str
    reason: str
    target: str | None = None


def classify(
    owner: str, names: Iterable[str], bundled: frozenset[str], ledger: Iterable[LedgerEntry] = LEDGER
) -> tuple[list[Classified], list[str]]:
    """Sort the names found in `owner`: those accounted for, and those that nobody has reviewed.

    bundled: every name in the bundle's library folder; what is there counts, whatever the ledger says.
    """
    known = {(entry.owner, entry.name): entry for entry in ledger}
    found: list[Classified] = []
    unknown: list[str] = []
    for name in names:
        entry = known.get((owner, name))
        if name in bundled and not (entry and entry.verdict is Verdict.ALIAS):
            found.append(Classified(owner, name, "bundled", "in the library folder under this name"))
        elif entry is not None:
            found.append(Classified(owner, name, entry.verdict.value, entry.reason, entry.target))
        else:
            unknown.append(name)
    return found, unknown
