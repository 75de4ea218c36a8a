"""Unpacking trusts nothing: what would leave the tree is refused, and damage is one clear error."""

from __future__ import annotations

import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toolchain_packs import COMPRESSORS, make_deb, make_wheel, member

from aimabuild.base.errors import AimaError
from aimabuild.toolchain.unpack import TreeWriter, unpack_deb, unpack_wheel

FILES = {
    "./usr/bin/tool": b"#!/bin/sh\n",
    "./usr/share/doc/x/copyright": b"free\n",
    "usr/lib/a.so": b"\x7fELF" * 9,
}


def everything(_: str) -> bool:
    return True


def unpack(tmp_path: Path, data: bytes, wants=everything) -> TreeWriter:  # type: ignore[no-untyped-def]
    """Unpack a .deb into tmp_path/tree."""
    path, root = tmp_path / "x.deb", tmp_path / "tree"
    path.write_bytes(data)
    root.mkdir()
    writer = TreeWriter(root)
    unpack_deb(path, writer, wants, "x 1.0")
    return writer


@pytest.mark.parametrize("compression", sorted(COMPRESSORS))
def test_every_compression(tmp_path: Path, compression: str) -> None:
    writer = unpack(tmp_path, make_deb(FILES, compression=compression))
    tool, library = writer.root / "usr/bin/tool", writer.root / "usr/lib/a.so"
    assert tool.read_bytes() == FILES["./usr/bin/tool"]
    assert library.read_bytes() == FILES["usr/lib/a.so"]
    assert (tool.stat().st_mode & 0o7777, library.stat().st_mode & 0o7777) == (0o755, 0o644)
    assert tool.stat().st_mtime == library.stat().st_mtime == 946684800
    assert set(writer.entries) == {"usr/bin/tool", "usr/share/doc/x/copyright", "usr/lib/a.so"}
    assert writer.entries["usr/lib/a.so"].size == 36
    assert writer.entries["usr/lib/a.so"].source == "x 1.0"


def test_only_what_is_wanted(tmp_path: Path) -> None:
    writer = unpack(tmp_path, make_deb(FILES), lambda path: path.startswith("usr/bin/"))
    assert [path.name for path in writer.root.rglob("*") if path.is_file()] == ["tool"]


def test_links_inside_the_tree(tmp_path: Path) -> None:
    special = [
        member("./usr/lib/b.so", tarfile.SYMTYPE, link="a.so"),
        member("./usr/lib64/c.so", tarfile.SYMTYPE, link="../lib/a.so"),
        member("./usr/bin/same", tarfile.LNKTYPE, link="./usr/bin/tool"),
    ]
    writer = unpack(tmp_path, make_deb(FILES, special))
    assert (writer.root / "usr/lib64/c.so").read_bytes() == FILES["usr/lib/a.so"]
    assert writer.entries["usr/lib/b.so"].target == "a.so"
    assert (writer.root / "usr/bin/same").read_bytes() == FILES["./usr/bin/tool"]
    assert (writer.root / "usr/bin/same").stat().st_mode & 0o777 == 0o755


REFUSED = {
    "absolute": [member("/etc/evil")],
    "dotdot": [member("./usr/../../evil")],
    "inner dotdot": [member("usr/lib/../evil")],
    "backslash": [member("usr\\evil")],
    "absolute link": [member("usr/evil", tarfile.SYMTYPE, link="/etc/passwd")],
    "escaping link": [member("usr/evil", tarfile.SYMTYPE, link="../../etc/passwd")],
    "link to the parent": [member("evil", tarfile.SYMTYPE, link="..")],
    "through a link": [member("usr/out", tarfile.SYMTYPE, link="lib"), member("usr/out/evil")],
    "through a file": [member("usr/lib/a.so/evil")],
    "over a folder": [member("usr/lib")],
    "twice": [member("usr/bin/tool")],
    "hard link outside": [member("usr/evil", tarfile.LNKTYPE, link="../../etc/passwd")],
    "hard link to nothing": [member("usr/evil", tarfile.LNKTYPE, link="usr/none")],
    "character device": [member("usr/evil", tarfile.CHRTYPE)],
    "block device": [member("usr/evil", tarfile.BLKTYPE)],
    "pipe": [member("usr/evil", tarfile.FIFOTYPE)],
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_refused_members(tmp_path: Path, case: str) -> None:
    with pytest.raises(AimaError, match="is refused"):
        unpack(tmp_path, make_deb(FILES, REFUSED[case]))
    outside = {path.name for path in tmp_path.iterdir()}
    assert outside == {"x.deb", "tree"}
    assert not list(tmp_path.rglob("evil*"))


def test_special_bits_are_dropped(tmp_path: Path) -> None:
    writer = unpack(tmp_path, make_deb({}, [member("usr/bin/su", mode=0o6777)]))
    assert (writer.root / "usr/bin/su").stat().st_mode & 0o7777 == 0o755


def test_two_packages_may_not_hold_one_path(tmp_path: Path) -> None:
    writer = unpack(tmp_path, make_deb(FILES))
    with pytest.raises(AimaError, match=r"y 2\.0: .* refused") as caught:
        unpack_deb(tmp_path / "x.deb", writer, everything, "y 2.0")
    assert "x 1.0 holds it too" in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not an archive",
        b"!<arch>\n",
        b"!<arch>\n" + b"x" * 60,
        make_deb(FILES)[:-40],
        make_deb(FILES, compression="")[:-600],
        make_deb(FILES).replace(b"data.tar.xz ", b"data.tar.lzo"),
        make_deb(FILES).replace(b"data.tar.xz", b"meta.tar.xz"),
    ],
)
def test_damaged_packages(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(AimaError, match="cannot be unpacked") as caught:
        unpack(tmp_path, data)
    assert caught.value.where == str(tmp_path / "x.deb")


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_is_one_error_family(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damage")
    kind = data.draw(st.sampled_from([*sorted(COMPRESSORS), "whl"]))
    if kind == "whl":
        wheel = make_wheel(folder, "w", "1", FILES)
        good = (folder / wheel.filename).read_bytes()
    else:
        good = make_deb(FILES, compression=kind)
    position = data.draw(st.integers(0, len(good) - 1))
    change = data.draw(st.binary(min_size=0, max_size=4))
    bad = good[:position] + change + good[position + data.draw(st.integers(0, 4)) :]
    path, root = folder / "bad", folder / "tree"
    path.write_bytes(bad)
    root.mkdir()
    try:
        (unpack_wheel if kind == "whl" else unpack_deb)(path, TreeWriter(root), everything, "w 1")
    except AimaError as error:
        assert "refused" in str(error) or "cannot be unpacked" in str(error)  # noqa: PT017 - both may happen
    assert {entry.name for entry in folder.iterdir()} <= {"bad", "tree", "w-1-py3-none-any.whl"}


def test_wheel(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "w", "1.0", {"w/__init__.py": b"x = 1\n", "w/data/run": b"run"})
    path = tmp_path / wheel.filename
    with zipfile.ZipFile(path, "a") as archive:
        info = zipfile.ZipInfo("w/tool")
        info.external_attr = (stat.S_IFREG | 0o775) << 16
        archive.writestr(info, b"tool")
    writer = TreeWriter(tmp_path / "tree")
    writer.root.mkdir()
    unpack_wheel(path, writer, everything, "w 1.0")
    assert (writer.root / "w/__init__.py").read_bytes() == b"x = 1\n"
    assert (writer.root / "w/tool").stat().st_mode & 0o777 == 0o755
    assert (writer.root / "w/data/run").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("name", "mode"), [("../evil", 0o100644), ("/evil", 0o100644), ("w/evil", 0o120777), ("a/../../evil", 0)]
)
def test_wheel_refused(tmp_path: Path, name: str, mode: int) -> None:
    path, root = tmp_path / "w.whl", tmp_path / "deep" / "tree"
    root.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, b"/etc/passwd")
    with pytest.raises(AimaError, match="refused"):
        unpack_wheel(path, TreeWriter(root), everything, "w 1")
    assert not list(tmp_path.rglob("evil"))
