"""The audit against planted faults: each must be found, named and placed; legal layouts must pass."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from elfmaker import Elf, program

from aimabuild.elf.audit import AuditRules, audit_tree
from aimabuild.elf.resolve import Problem

LIBC = Elf(
    soname="libc.so.6", needed=["ld.so.2"], versions_defined=["libc.so.6", "GLIBC_2.2.5", "GLIBC_2.28"]
)
ENGINE = program(needed=["libc.so.6", "libq.so.1"], versions_needed={"libc.so.6": ["GLIBC_2.28"]})
LIBQ = Elf(soname="libq.so.1", needed=["libc.so.6"], runpath="${ORIGIN}/../lib")
RULES = AuditRules()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A sound bundle: loader, C library, engine, one library behind a link, a plugin, a static launcher."""
    root = tmp_path / "bundle"
    Elf(soname="ld.so.2").write(root / "libexec/aima-engine")
    ENGINE.write(root / "libexec/aima-engine.real")
    Elf(kind=2, dynamic=False).write(root / "bin/aima-engine")
    LIBC.write(root / "lib/libc.so.6")
    LIBQ.write(root / "lib/libq.so.1.2")
    (root / "lib/libq.so.1").symlink_to("libq.so.1.2")
    Elf(soname="libplug.so", needed=["libq.so.1"]).write(root / "lib/plugins/libplug.so")
    (root / "share").mkdir()
    (root / "share/readme.txt").write_text("text")
    return root


def audit(root: Path, rules: AuditRules = RULES) -> tuple[Problem, ...]:
    return audit_tree(root, rules).problems


def test_a_sound_bundle_passes(root: Path) -> None:
    report = audit_tree(root, RULES)
    assert not report.problems
    assert [len(process.objects) for process in report.processes] == [4, 4, 4, 5]


def put(name: str, elf: Elf) -> Callable[[Path], None]:
    def plant(root: Path) -> None:
        elf.write(root / name)

    return plant


def link(name: str, target: str) -> Callable[[Path], None]:
    def plant(root: Path) -> None:
        (root / name).symlink_to(target)

    return plant


def copy(source: str, target: str) -> Callable[[Path], None]:
    def plant(root: Path) -> None:
        shutil.copy(root / source, root / target)

    return plant


def cut(name: str, by: int) -> Callable[[Path], None]:
    def plant(root: Path) -> None:
        path = root / name
        path.write_bytes(path.read_bytes()[:-by])

    return plant


def drop(name: str) -> Callable[[Path], None]:
    def plant(root: Path) -> None:
        (root / name).unlink()

    return plant


ENGINE_PATH = "libexec/aima-engine.real"
LIBQ_PATH = "lib/libq.so.1.2"
FAULTS = {
    "absolute RPATH": (put(ENGINE_PATH, replace(ENGINE, rpath="/opt/x/lib")), "search-path", ENGINE_PATH),
    "absolute RUNPATH": (put(LIBQ_PATH, replace(LIBQ, runpath="$ORIGIN:/opt/x")), "search-path", LIBQ_PATH),
    "RUNPATH leaves": (put(LIBQ_PATH, replace(LIBQ, runpath="$ORIGIN/../../x")), "search-path", LIBQ_PATH),
    "RPATH leaves": (
        put(LIBQ_PATH, replace(LIBQ, runpath=None, rpath="$ORIGIN/../../x")),
        "search-path",
        LIBQ_PATH,
    ),
    "empty element": (put(LIBQ_PATH, replace(LIBQ, runpath="$ORIGIN/../lib:")), "search-path", LIBQ_PATH),
    "empty RUNPATH": (put(LIBQ_PATH, replace(LIBQ, runpath="")), "search-path", LIBQ_PATH),
    "relative element": (put(LIBQ_PATH, replace(LIBQ, runpath="lib")), "search-path", LIBQ_PATH),
    "$LIB": (put(LIBQ_PATH, replace(LIBQ, runpath="$ORIGIN/../$LIB")), "search-path", LIBQ_PATH),
    "$ORIGIN glued": (put(LIBQ_PATH, replace(LIBQ, runpath="$ORIGINx/lib")), "search-path", LIBQ_PATH),
    "slash in NEEDED": (put(LIBQ_PATH, replace(LIBQ, needed=["./x/libn.so"])), "needed-path", LIBQ_PATH),
    "unresolved NEEDED": (
        put(LIBQ_PATH, replace(LIBQ, needed=["libgone.so"])),
        "unresolved",
        "lib/libq.so.1",
    ),
    "plugin's NEEDED": (
        put("lib/plugins/libplug.so", Elf(needed=["libgone.so"])),
        "unresolved",
        "lib/plugins/libplug.so",
    ),
    "only by SONAME": (drop("lib/libq.so.1"), "unresolved", ENGINE_PATH),
    "missing libc": (drop("lib/libc.so.6"), "unresolved", ENGINE_PATH),
    "32-bit provider": (put(LIBQ_PATH, Elf(bits=32, machine=3)), "foreign", LIBQ_PATH),
    "foreign machine": (put("lib/libarm.so", Elf(machine=183)), "foreign", "lib/libarm.so"),
    "object file": (put("lib/libo.so", Elf(kind=1)), "kind", "lib/libo.so"),
    "core dump": (put("lib/libcore.so", Elf(kind=4)), "kind", "lib/libcore.so"),
    "missing version": (
        put(ENGINE_PATH, replace(ENGINE, versions_needed={"libc.so.6": ["GLIBC_2.99"]})),
        "version",
        ENGINE_PATH,
    ),
    "provider without versions": (
        put(
            LIBQ_PATH, replace(LIBQ, versions_needed={"libc.so.6": ["GLIBC_2.28"], "ld.so.2": ["GLIBC_2.3"]})
        ),
        "version",
        "lib/libq.so.1",
    ),
    "exec stack": (put(LIBQ_PATH, replace(LIBQ, stack=7)), "exec-stack", LIBQ_PATH),
    "no stack note": (put(LIBQ_PATH, replace(LIBQ, stack=None)), "exec-stack", LIBQ_PATH),
    "high ISA": (put(LIBQ_PATH, replace(LIBQ, isa=2)), "isa", LIBQ_PATH),
    "hwcaps": (put("lib/glibc-hwcaps/x86-64-v3/libq.so.1", LIBQ), "hwcaps", "lib/glibc-hwcaps"),
    "DT_AUDIT": (put(LIBQ_PATH, replace(LIBQ, audit="liba.so")), "loads-others", LIBQ_PATH),
    "text relocations": (put(LIBQ_PATH, replace(LIBQ, textrel=True)), "text-relocations", LIBQ_PATH),
    "writable code": (put(LIBQ_PATH, replace(LIBQ, code_flags=7)), "writable-code", LIBQ_PATH),
    "truncated plugin": (cut("lib/plugins/libplug.so", 3), "damaged", "lib/plugins/libplug.so"),
    "text named .so": (lambda r: (r / "lib/libx.so").write_text("INPUT(x)"), "not-elf", "lib/libx.so"),
    "copy, not link": (copy(LIBQ_PATH, "lib/libcopy.so"), "duplicate", "lib/libcopy.so"),
    "dangling link": (link("lib/libd.so", "gone.so"), "link", "lib/libd.so"),
    "looping link": (link("lib/libl.so", "libl.so"), "link", "lib/libl.so"),
    "absolute link": (link("lib/liba.so", "/etc/passwd"), "link", "lib/liba.so"),
    "leaving link": (link("lib/liba.so", "../../outside"), "link", "lib/liba.so"),
    "static program": (put("bin/other", Elf(kind=2, dynamic=False)), "static", "bin/other"),
    "second program": (put("bin/other", program()), "program", "bin/other"),
    "no engine": (drop(ENGINE_PATH), "unresolved", "program"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str, root: Path) -> None:
    plant, code, place = FAULTS[name]
    (root.parent / "outside").write_text("x")
    plant(root)
    problems = audit(root)
    matching = [p for p in problems if p.code == code]
    assert matching, problems
    places = {str(p.where.relative_to(root)) if p.where.is_absolute() else str(p.where) for p in matching}
    assert place in places
    assert all(p.what for p in matching)


def test_needed_satisfied_by_a_link_and_braces_pass(root: Path) -> None:
    """Both are legal and both were refused by another packager."""
    LIBQ.write(root / "lib/libq.so.1.2")
    assert not audit(root)


def test_weak_versions_may_be_missing(root: Path) -> None:
    replace(ENGINE, versions_needed={"libc.so.6": ["?GLIBC_2.99"]}).write(root / ENGINE_PATH)
    assert not audit(root)


def test_a_declared_level_is_allowed(root: Path) -> None:
    replace(LIBQ, isa=2).write(root / LIBQ_PATH)
    assert not audit(root, AuditRules(isa="x86-64-v3"))
    assert audit(root, AuditRules(isa="x86-64-v2"))


def test_host_libc(root: Path) -> None:
    (root / "lib/libc.so.6").unlink()
    (root / "libexec/aima-engine").unlink()
    rules = AuditRules(loader=None, host=frozenset({"libc.so.6"}))
    assert not audit(root, rules)
    replace(ENGINE, versions_needed={"libc.so.6": ["GLIBC_2.34"]}).write(root / ENGINE_PATH)
    assert [p.code for p in audit(root, rules)] == ["version"]


def test_the_chain_is_printed(root: Path) -> None:
    replace(LIBQ, needed=["libgone.so"]).write(root / LIBQ_PATH)
    text = str(next(p for p in audit(root) if p.code == "unresolved"))
    assert "libgone.so" in text
    assert "aima-engine.real -> libq.so.1" in text


def test_same_answer_twice(root: Path) -> None:
    replace(LIBQ, needed=["libgone.so"], stack=7).write(root / LIBQ_PATH)
    assert audit(root) == audit(root)
