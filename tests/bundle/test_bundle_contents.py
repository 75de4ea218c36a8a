"""What a bundle holds: computed, accounted for, owned; and what stops it from being made."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
from bundlemaker import toy_inputs
from elfmaker import Elf, program

from aimabuild.base.errors import AimaError, CheckFailedError
from aimabuild.bundle.assemble import assemble
from aimabuild.bundle.contents import HOST_LIBC, collect
from aimabuild.bundle.entries import LINK
from aimabuild.bundle.inputs import Inputs, Owner
from aimabuild.bundle.ledger import LEDGER, LedgerEntry, Verdict, classify
from aimabuild.bundle.loader import default_directories, diagnostics, neutralise, nowhere
from aimabuild.bundle.tree import scan
from aimabuild.bundle.verify import verify
from aimabuild.elf.parse import parse
from aimabuild.elf.strings import library_names
from aimabuild.schema.bundle import Bundle, DataFile

LOADER = Path("/lib64/ld-linux-x86-64.so.2").resolve()
pytestmark = pytest.mark.skipif(
    not LOADER.is_file() or not default_directories(diagnostics(LOADER)),
    reason="needs a glibc loader that can describe itself",
)


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    return toy_inputs(tmp_path / "in", LOADER)


def libraries(inputs: Inputs) -> Path:
    assert inputs.runtime is not None
    return inputs.runtime.libraries


def test_the_closure_and_nothing_else(inputs: Inputs) -> None:
    items = collect(inputs).items
    inside = {path.removeprefix("lib/") for path in items if path.startswith("lib/")}
    assert inside == {"libc.so.6", "libgcc_s.so.1", "libplug.so.1", "libplug.so.1.5", "libdep.so.2"}
    assert items["lib/libplug.so.1"].kind == LINK
    assert items["lib/libplug.so.1"].target == "libplug.so.1.5"
    assert items["lib/libdep.so.2"].why == ("aima-engine.real", "libplug.so.1", "libdep.so.2")
    assert items["lib/libdep.so.2"].owner.name == "plug"
    assert items["lib/libgcc_s.so.1"].why[-1] == "opened by the C library"
    assert items["share/x/ids"].owner.name == "plug"


def test_a_new_need_is_followed(inputs: Inputs) -> None:
    Elf(soname="libdep.so.2", needed=["libunused.so.1"]).write(libraries(inputs) / "libdep.so.2")
    assert "lib/libunused.so.1" in collect(inputs).items


def test_everything_missing_is_listed_with_its_chain(inputs: Inputs) -> None:
    Elf(soname="libdep.so.2", needed=["libgone.so.1", "libmore.so"]).write(libraries(inputs) / "libdep.so.2")
    with pytest.raises(CheckFailedError) as caught:
        collect(replace(inputs, bundle=replace(inputs.bundle, roots=("libplug.so.1", "libnever.so.7"))))
    text = str(caught.value)
    for word in ("3 problems", "libgone.so.1", "libmore.so", "libnever.so.7"):
        assert word in text
    assert "aima-engine.real -> libplug.so.1 -> libdep.so.2" in text


def test_missing_data(inputs: Inputs) -> None:
    data = (DataFile(PurePosixPath("usr/share/none"), PurePosixPath("share/x")),)
    with pytest.raises(CheckFailedError, match="data file"):
        collect(replace(inputs, bundle=replace(inputs.bundle, data=data)))


def test_data_in_the_place_of_a_library(inputs: Inputs) -> None:
    data = (DataFile(PurePosixPath("usr/share/ids"), PurePosixPath("lib/libc.so.6")),)
    with pytest.raises(CheckFailedError, match="same place"):
        collect(replace(inputs, bundle=replace(inputs.bundle, data=data)))


def test_a_file_without_an_owner(inputs: Inputs) -> None:
    assert inputs.runtime is not None
    owners = {path: owner for path, owner in inputs.runtime.owner_of.items() if "libdep" not in path}
    with pytest.raises(AimaError, match="no known package"):
        collect(replace(inputs, runtime=replace(inputs.runtime, owner_of=owners)))


def test_a_licence_without_a_text(inputs: Inputs, tmp_path: Path) -> None:
    broken = Owner("nobody", "1", "MIT", tmp_path / "gone")
    (tmp_path / "empty.h").write_text("no comment here")
    comment = Owner("header", "1", "MIT", tmp_path / "empty.h", comment=True)
    with pytest.raises(CheckFailedError) as caught:
        assemble(replace(inputs, contains_engine=(broken, comment)), tmp_path / "out")
    assert "nobody" in str(caught.value)
    assert "header" in str(caught.value)


def test_assembled(inputs: Inputs, tmp_path: Path) -> None:
    made = assemble(inputs, tmp_path / "out")
    report = verify(made.root)
    assert not report.problems
    assert scan(made.root) == made.entries
    manifest = json.loads((made.root / "share/aima/manifest.json").read_text())
    files = {entry["path"]: entry for entry in manifest["entries"]}
    assert files["lib/libdep.so.2"]["owner"] == "plug"
    assert files["bin/aima-engine"]["contains"] == ["musl"]
    assert all({"owner", "licence", "why"} <= set(e) for e in files.values() if e["type"] != "d")
    texts = {owner["name"]: made.root / owner["text"] for owner in manifest["owners"]}
    assert set(texts) == {"aima", "libc6", "musl", "plug"}
    assert all(any(text.iterdir()) for text in texts.values())
    closure = json.loads((made.root / "share/aima/closure.json").read_text())
    objects = {item["path"]: item for item in closure["objects"]}
    assert objects["lib/libplug.so.1.5"]["needed"][0] == {
        "name": "libdep.so.2",
        "provider": "lib/libdep.so.2",
    }
    assert objects["lib/libdep.so.2"]["versions"] == {"libc.so.6": ["GLIBC_2.2.5"]}
    assert objects["libexec/aima-engine"]["soname"] == "ld-linux-x86-64.so.2"
    edits = manifest["edits"][0]
    assert edits["sha256_after"] == files["libexec/aima-engine"]["sha256"] != edits["sha256_before"]
    assert all(folder.startswith(("/proc/0", "/sys/")) for folder in edits["default_directories"])
    assert list((made.root / "share/aima/gconv").iterdir()) == []
    assert "libunused" not in str(sorted(files))


def test_the_same_twice_whatever_the_umask(inputs: Inputs, tmp_path: Path) -> None:
    one = assemble(inputs, tmp_path / "one")
    old = os.umask(0o077)
    try:
        other = assemble(inputs, tmp_path / "somewhere else/two")
    finally:
        os.umask(old)
    assert one.entries == other.entries


def test_no_path_of_this_machine_is_inside(inputs: Inputs, tmp_path: Path) -> None:
    made = assemble(inputs, tmp_path / "out")
    for path in made.root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert str(tmp_path).encode() not in path.read_bytes(), path


def test_a_fault_in_a_library_stops_it(inputs: Inputs, tmp_path: Path) -> None:
    Elf(soname="libdep.so.2", rpath="/opt/rocm/lib", stack=7).write(libraries(inputs) / "libdep.so.2")
    with pytest.raises(CheckFailedError) as caught:
        assemble(inputs, tmp_path / "out")
    assert "search-path" in str(caught.value)
    assert "/opt/rocm/lib" in str(caught.value)
    assert "exec-stack" in str(caught.value)


def test_an_unreviewed_name_stops_it(inputs: Inputs, tmp_path: Path) -> None:
    extra = b"\0libsurprise.so.3\0/usr/lib/libother.so\0 not a libname.so \0"
    Elf(soname="libdep.so.2", needed=["libc.so.6"], extra=extra).write(libraries(inputs) / "libdep.so.2")
    with pytest.raises(CheckFailedError) as caught:
        assemble(inputs, tmp_path / "out")
    assert "lib/libdep.so.2: libsurprise.so.3" in str(caught.value)
    assert "lib/libdep.so.2: /usr/lib/libother.so" in str(caught.value)
    assert "2 libraries" in str(caught.value)
    assert "ledger" in str(caught.value)


def test_host_libc(inputs: Inputs, tmp_path: Path) -> None:
    host = replace(inputs, bundle=Bundle("host"), runtime=None, contains_launcher=inputs.contains_launcher)
    made = assemble(host, tmp_path / "out")
    assert HOST_LIBC in made.entries
    assert "lib/libc.so.6" not in made.entries
    assert "libexec/aima-engine" not in made.entries
    assert not verify(made.root).problems
    new = program(needed=["libc.so.6"], versions_needed={"libc.so.6": ["GLIBC_2.40"]})
    new.write(inputs.engine)
    with pytest.raises(CheckFailedError, match=r"GLIBC_2\.40"):
        assemble(host, tmp_path / "other")


# --- the ledger ---------------------------------------------------------------------------------------------


def test_ledger_entries_are_unique_and_say_why() -> None:
    keys = [(entry.owner, entry.name) for entry in LEDGER]
    assert len(set(keys)) == len(keys)
    assert all(len(entry.reason.split()) >= 4 for entry in LEDGER)
    assert all((entry.target is not None) == (entry.verdict is Verdict.ALIAS) for entry in LEDGER)


def test_classification() -> None:
    ledger = [
        LedgerEntry("liba.so.1", "libopt.so", Verdict.ABSENT, "why not"),
        LedgerEntry("liba.so.1", "liba.so", Verdict.ALIAS, "itself", "liba.so.1"),
    ]
    bundled = frozenset({"liba.so", "liba.so.1", "libb.so"})
    found, unknown = classify("liba.so.1", ["liba.so", "libb.so", "libopt.so", "libx.so"], bundled, ledger)
    assert [(c.name, c.verdict) for c in found] == [
        ("liba.so", "alias"),
        ("libb.so", "bundled"),
        ("libopt.so", "absent"),
    ]
    assert unknown == ["libx.so"]
    assert classify("libother.so", ["libopt.so"], bundled, ledger)[1] == ["libopt.so"]


def test_an_alias_becomes_a_link(inputs: Inputs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entry = LedgerEntry(
        "libplug.so.1", "libplug.so", Verdict.ALIAS, "asks for itself by this name", "libplug.so.1"
    )
    monkeypatch.setattr("aimabuild.bundle.contents.LEDGER", (entry,))
    made = assemble(inputs, tmp_path / "out")
    assert made.entries["lib/libplug.so"].target == "libplug.so.1"
    assert (made.root / "lib/libplug.so").samefile(made.root / "lib/libplug.so.1.5")


def test_names_in_the_text_of_a_file(tmp_path: Path) -> None:
    texts = [
        b"liba.so",
        b"libb.so.1.2",
        b"/opt/x/libc-d_e+f.so.3",
        b"-l:libg.so",
        b"see libh.so for more",
        b"notlib.so",
    ]
    texts += [b"xliba.so.9", b"lib.so", b"libi.so.x", b"libj.soo", b"lib k.so"]
    path = tmp_path / "x"
    path.write_bytes(b"\0" + b"\0".join(texts) + b"\0libz.so")
    assert set(library_names(path)) == {"liba.so", "libb.so.1.2", "/opt/x/libc-d_e+f.so.3", "-l:libg.so"}
    (tmp_path / "empty").write_bytes(b"")
    assert library_names(tmp_path / "empty") == ()


# --- the loader ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(5, 40))
def test_places_that_cannot_exist(length: int) -> None:
    path = nowhere(length, folder=True)
    assert len(path) == length
    assert path.startswith("/")
    assert path.endswith("/")
    assert path in {"/sys/", "/sys//"} or not os.path.lexists(path)
    if length > 9:
        file = nowhere(length, folder=False)
        assert len(file) == length
        assert not os.path.lexists(file)


def test_the_edited_loader(inputs: Inputs, tmp_path: Path) -> None:
    record = neutralise(LOADER, tmp_path / "ld", "test", inputs.engine)
    before, after = LOADER.read_bytes(), (tmp_path / "ld").read_bytes()
    assert len(before) == len(after)
    changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    spans = [range(o, o + len(edit.before) + 1) for edit in record.edits for o in edit.offsets]
    assert changed
    assert all(any(i in span for span in spans) for i in changed)
    assert b"/etc/ld.so.preload\0" not in after
    assert b"/etc/ld.so.cache\0" not in after
    assert parse(tmp_path / "ld").soname == parse(LOADER).soname
    assert record.directories == tuple(record.edits[0].after.split(":"))
    assert re.fullmatch(r"2\.\d+", record.version)


def test_a_loader_that_searches_elsewhere_is_noticed(inputs: Inputs, tmp_path: Path) -> None:
    """As if one of the copies of its directories had been missed."""
    from aimabuild.bundle import loader

    record = neutralise(LOADER, tmp_path / "ld", "test", inputs.engine)
    with pytest.raises(CheckFailedError, match="elsewhere"):
        loader.check_loader(LOADER, record, inputs.engine)
    wrong = replace(record, directories=("/usr/lib/",))
    with pytest.raises(CheckFailedError, match="still has"):
        loader.check_loader(tmp_path / "ld", wrong, inputs.engine)


def test_a_loader_without_the_texts(inputs: Inputs, tmp_path: Path) -> None:
    data = LOADER.read_bytes().replace(b"/etc/ld.so.preload\0", b"/etc/ld.so.prel0ad\0")
    (tmp_path / "odd").write_bytes(data)
    (tmp_path / "odd").chmod(0o755)
    with pytest.raises(AimaError, match="does not hold a text"):
        neutralise(tmp_path / "odd", tmp_path / "ld", "test", inputs.engine)
    assert not (tmp_path / "ld").exists()
