"""Files appear whole or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from aimabuild.base import files


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
