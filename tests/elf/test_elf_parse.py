"""Reading one ELF file: what it says, and that no damage does more than raise one `ElfError`."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest
from elfmaker import DT, Elf, program
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aimabuild.elf.image import ElfError, NeededVersion
from aimabuild.elf.parse import is_elf, parse

FULL = Elf(
    soname="libq.so.1",
    needed=["libc.so.6", "liba.so"],
    runpath="$ORIGIN/../lib",
    interpreter="/lib64/ld-linux-x86-64.so.2",
    versions_needed={"libc.so.6": ["GLIBC_2.2.5", "?GLIBC_2.99"], "liba.so": ["A_1"]},
    versions_defined=["libq.so.1", "Q_1", "Q_2"],
    isa=1,
)


def test_reads_everything(tmp_path: Path) -> None:
    image = parse(FULL.write(tmp_path / "libq.so.1"))
    assert (image.elf_class, image.machine, image.kind, image.dynamic) == (64, "X86_64", "DYN", True)
    assert image.soname == "libq.so.1"
    assert image.needed == ("libc.so.6", "liba.so")
    assert (image.rpath, image.runpath) == (None, "$ORIGIN/../lib")
    assert image.interpreter == "/lib64/ld-linux-x86-64.so.2"
    assert image.versions_needed == (
        NeededVersion("libc.so.6", "GLIBC_2.2.5", weak=False),
        NeededVersion("libc.so.6", "GLIBC_2.99", weak=True),
        NeededVersion("liba.so", "A_1", weak=False),
    )
    assert image.versions_defined == {"libq.so.1", "Q_1", "Q_2"}
    assert image.isa_needed == 1
    assert image.stack == "rw"
    assert image.loadable


needs_readelf = pytest.mark.skipif(not shutil.which("readelf"), reason="binutils are not installed")


@needs_readelf
def test_the_test_files_are_elf_to_others_too(tmp_path: Path) -> None:
    """Were the writer of these tests wrong in the same way as the reader, readelf would disagree."""
    path = FULL.write(tmp_path / "libq.so.1")
    text = subprocess.run(["readelf", "-lndW", path], capture_output=True, text=True, check=True)
    assert not text.stderr
    for word in ("libq.so.1", "liba.so", "$ORIGIN/../lib", "VERDEFNUM", "x86-64-v2"):
        assert word in text.stdout


@needs_readelf
@pytest.mark.parametrize("name", ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libz.so.1"])
def test_agrees_with_readelf_on_the_host(name: str) -> None:
    folders = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")
    path = next((Path(folder, name) for folder in folders if Path(folder, name).is_file()), None)
    if path is None:
        pytest.skip("this host has none")
    image = parse(path)
    text = subprocess.run(
        ["readelf", "-dVW", path],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout
    assert list(image.needed) == re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    assert {v.name for v in image.versions_needed} == set(
        re.findall(r"Name: (\S+)\s+Flags: \S+\s+Version", text)
    )
    assert image.versions_defined == set(re.findall(r"Flags: \S+\s+Index: .*Name: (\S+)", text))


@pytest.mark.parametrize(
    ("elf", "expected"),
    [
        (Elf(bits=32, machine=3), (32, "386", "DYN")),
        (Elf(machine=183), (64, "AARCH64", "DYN")),
        (Elf(kind=1), (64, "X86_64", "REL")),
        (Elf(kind=4), (64, "X86_64", "CORE")),
    ],
)
def test_foreign_files_are_read_and_not_loadable(
    elf: Elf, expected: tuple[int, str, str], tmp_path: Path
) -> None:
    image = parse(elf.write(tmp_path / "x.so"))
    assert (image.elf_class, image.machine, image.kind) == expected
    assert not image.loadable


def test_a_program_is_no_library(tmp_path: Path) -> None:
    image = parse(program().write(tmp_path / "program"))
    assert image.executable
    assert not image.loadable


def test_stack_and_code_flags(tmp_path: Path) -> None:
    assert parse(Elf(stack=7).write(tmp_path / "a")).stack == "rwx"
    assert parse(Elf(stack=None).write(tmp_path / "b")).stack == "absent"
    assert parse(Elf(code_flags=7).write(tmp_path / "c")).writable_code
    assert parse(Elf(textrel=True).write(tmp_path / "d")).text_relocations
    assert parse(Elf(audit="liba.so").write(tmp_path / "e")).loads_others == ("DT_AUDIT liba.so",)
    assert parse(Elf(auxiliary="liba.so").write(tmp_path / "f")).loads_others == ("DT_AUXILIARY liba.so",)


def _damaged(data: bytes, tmp_path: Path) -> str:
    path = tmp_path / "damaged.so"
    path.write_bytes(data)
    with pytest.raises(ElfError) as caught:
        parse(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("length", [0, 3, 4, 15, 16, 63, 64, 120])
def test_cut_short(length: int, tmp_path: Path) -> None:
    _damaged(FULL.build()[:length], tmp_path)


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    whole = FULL.build()
    for length in range(0, len(whole), 7):
        _damaged(whole[:length], tmp_path)
    _damaged(whole[:-1], tmp_path)


def _dynamic(data: bytes) -> tuple[int, int]:
    """Offset and size of the dynamic section: the second program header of these files."""
    offset, size = struct.unpack_from("<Q16xQ", data, 64 + 56 + 8)
    return offset, size


def _tag(data: bytes, tag: str, value: int) -> bytes:
    """`data` with the value of one dynamic entry replaced."""
    start, size = _dynamic(data)
    for at in range(start, start + size, 16):
        if struct.unpack_from("<Q", data, at)[0] == DT[tag]:
            return data[: at + 8] + struct.pack("<Q", value) + data[at + 16 :]
    raise AssertionError(tag)


@pytest.mark.parametrize("tag", ["STRTAB", "VERNEED", "VERDEF", "NEEDED", "SONAME"])
@pytest.mark.parametrize("value", [2**40, 2**63, 2**64 - 1])
def test_bad_addresses(tag: str, value: int, tmp_path: Path) -> None:
    _damaged(_tag(FULL.build(), tag, value), tmp_path)


def test_string_table_too_small(tmp_path: Path) -> None:
    assert "string table" in _damaged(_tag(FULL.build(), "STRSZ", 1), tmp_path)


def test_version_list_that_runs_for_ever(tmp_path: Path) -> None:
    """A step of 1 moves on without end; a count of 2^32 must not be believed."""
    data = bytearray(_tag(FULL.build(), "VERNEEDNUM", 2**32))
    at = data.index(struct.pack("<HH", 1, 2))  # the first Verneed: version 1, two entries
    data[at + 12 : at + 16] = struct.pack("<I", 1)
    start = time.monotonic()
    _damaged(bytes(data), tmp_path)
    assert time.monotonic() - start < 1


def test_dynamic_section_without_end(tmp_path: Path) -> None:
    data = FULL.build()
    start, size = _dynamic(data)
    at = start + size - 16
    assert "no end" in _damaged(data[:at] + struct.pack("<QQ", 30, 8) + data[at + 16 :], tmp_path)


def test_too_many_program_headers(tmp_path: Path) -> None:
    data = bytearray(FULL.build())
    data[56:58] = struct.pack("<H", 0xFFFF)
    assert "program headers" in _damaged(bytes(data), tmp_path)


def test_what_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ElfError):
        parse(tmp_path)
    with pytest.raises(ElfError):
        parse(tmp_path / "missing")
    (tmp_path / "text").write_text("GROUP ( libc.so.6 )")
    assert not is_elf(tmp_path / "text")
    with pytest.raises(ElfError, match="not an ELF file"):
        parse(tmp_path / "text")


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(st.tuples(st.integers(0, 4095), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.integers(0, 64),
)
def test_mutations_end_soon_and_raise_one_kind(
    edits: list[tuple[int, int]], cut: int, tmp_path: Path
) -> None:
    data = bytearray(FULL.build())
    for place, value in edits:
        data[place % len(data)] = value
    path = tmp_path / "mutant.so"
    path.write_bytes(data[: len(data) - cut])
    start = time.monotonic()
    with contextlib.suppress(ElfError):
        parse(path)
    assert time.monotonic() - start < 1


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=600))
def test_any_bytes_after_the_magic(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "noise.so"
    path.write_bytes(b"\x7fELF\x02\x01\x01" + data)
    with contextlib.suppress(ElfError):
        parse(path)
