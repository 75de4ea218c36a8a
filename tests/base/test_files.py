"""Files appear whole or not at all."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from aimabuild.base import files
from aimabuild.base.errors import UsageError


def test_write_replaces_the_whole_file(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file.txt"
    files.write_text(target, "first version, long")
    files.write_text(target, "second")
    assert target.read_text() == "second"
    assert [entry.name for entry in target.parent.iterdir()] == ["file.txt"]


def test_failed_write_keeps_the_old_file_and_leaves_no_temporary(tmp_path: Path) -> None:
    target = tmp_path / "file.bin"
    files.write_bytes(target, b"old")

    def half_written() -> None:
        with files.atomic_path(target) as temporary:
            temporary.write_bytes(b"half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        half_written()
    assert target.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.bin"]


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    target = tmp_path / "tool"
    files.write_bytes(target, b"#!", mode=0o755)
    assert target.stat().st_mode & 0o777 == 0o755


def test_write_if_changed_keeps_the_time_stamp_of_equal_content(tmp_path: Path) -> None:
    target = tmp_path / "stamp"
    assert files.write_if_changed(target, b"a")
    before = target.stat().st_mtime_ns
    assert not files.write_if_changed(target, b"a")
    assert target.stat().st_mtime_ns == before
    assert files.write_if_changed(target, b"b")
    assert target.read_bytes() == b"b"


def test_digest_of_a_file_larger_than_one_chunk(tmp_path: Path) -> None:
    data = bytes(range(256)) * 8192
    (tmp_path / "big").write_bytes(data)
    assert files.sha256_file(tmp_path / "big") == hashlib.sha256(data).hexdigest() == files.sha256_bytes(data)


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a pipe"])
def test_only_a_regular_file_is_replaced(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    if kind == "folder":
        target.mkdir()
    else:
        os.mkfifo(tmp_path / "pipe" if "link" in kind else target)
    if "link" in kind:
        target.symlink_to("pipe")
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(
        UsageError, match=f"target: only a regular file.*\n  why: it is a {kind.rsplit(maxsplit=1)[-1]}"
    ):
        files.write_bytes(target, b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert not stat.S_ISREG(target.lstat().st_mode)


def test_a_link_is_replaced_by_the_file(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    for name, target in (("link", "old"), ("dangling", "none")):
        (tmp_path / name).symlink_to(target)
        files.write_text(tmp_path / name, "new")
        assert not (tmp_path / name).is_symlink()
    assert (tmp_path / "old").read_text() == "old"
