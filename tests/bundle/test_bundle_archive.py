"""The archive: the same bytes from the same content, readable by other programs, whole or not there."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import zstandard
from bundlemaker import NAME, all_entries, make_bundle, seal

from aimabuild.base.errors import AimaError
from aimabuild.bundle import archive
from aimabuild.bundle.entries import FILE, Entry
from aimabuild.bundle.unpack import extract

BUILD = """
import os, sys
from pathlib import Path
sys.path[:0] = [{tests!r}, {root!r}]
os.umask(int(sys.argv[2], 8))
from bundlemaker import make_bundle, seal
print(seal(make_bundle(Path(sys.argv[1])), Path(sys.argv[1]) / "out", threads=int(sys.argv[3])).sha256)
"""


def build(folder: Path, umask: str, threads: int, **environment: str) -> str:
    tests = Path(__file__).parent.parent
    code = BUILD.format(tests=str(tests), root=str(tests.parent))
    folder.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), umask, str(threads)],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environment},
    )
    return done.stdout.strip()


def test_same_bytes_whatever_builds_it(tmp_path: Path) -> None:
    plain = build(tmp_path / "one", "022", 1)
    others = {
        build(tmp_path / "two/with space", "077", 2, LC_ALL="C", TZ="Asia/Tokyo", ZSTD_CLEVEL="19"),
        build(tmp_path / "three", "000", 3, POSIXLY_CORRECT="1", TAR_OPTIONS="--posix", ZSTD_NBTHREADS="4"),
        build(tmp_path / "four", "027", 1, SOURCE_DATE_EPOCH="1", PYTHONHASHSEED="7", HOME="/nonexistent"),
    }
    assert others == {plain}


def test_times_links_and_attributes_of_the_disk_do_not_matter(tmp_path: Path) -> None:
    one = seal(make_bundle(tmp_path / "one"), tmp_path / "a")
    other = make_bundle(tmp_path / "two")
    (other / "lib/empty").unlink()
    (other / "lib/hard").write_text("")
    (other / "lib/hard").chmod(0o644)
    os.link(other / "lib/hard", other / "lib/empty")
    entries = {path: entry for path, entry in all_entries(other).items() if path != "lib/hard"}
    os.utime(other / "bin/aima-engine", (2**33, 2**33))
    assert archive.write_archive(other, NAME, entries, tmp_path / "b").sha256 == one.sha256


def test_the_content_matters(tmp_path: Path) -> None:
    one = seal(make_bundle(tmp_path / "one"), tmp_path / "a")
    other = make_bundle(tmp_path / "two")
    (other / "lib/empty").chmod(0o755)
    assert seal(other, tmp_path / "b").tar_sha256 != one.tar_sha256


def test_what_the_headers_say(tmp_path: Path) -> None:
    sealed = seal(make_bundle(tmp_path), tmp_path / "out")
    head = sealed.path.read_bytes()[:64]
    frame = zstandard.get_frame_parameters(head)
    assert frame.content_size == sealed.tar_size
    assert frame.has_checksum
    assert frame.window_size <= 1 << 27
    plain = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(sealed.path.read_bytes())).read()
    assert len(plain) == sealed.tar_size
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        members = tar.getmembers()
    assert [m.name for m in members][:2] == [NAME, f"{NAME}/bin"]
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", archive.TIME)}
    assert {m.mode for m in members} == {0o755, 0o644, 0o777}
    assert all(m.name == NAME or m.name.startswith(f"{NAME}/") for m in members)


@pytest.mark.skipif(not (shutil.which("tar") and shutil.which("zstd")), reason="needs tar and zstd")
def test_other_programs_unpack_it(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    sealed = seal(bundle, tmp_path / "out")
    (tmp_path / "x").mkdir()
    done = subprocess.run(
        ["tar", "--zstd", "-xpf", sealed.path, "-C", tmp_path / "x"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    assert all_entries(tmp_path / "x" / NAME) == all_entries(bundle)


def test_our_own_extraction(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    sealed = seal(bundle, tmp_path / "out")
    (tmp_path / "x").mkdir()
    old = os.umask(0o077)
    try:
        assert all_entries(extract(sealed.path, tmp_path / "x")) == all_entries(bundle)
    finally:
        os.umask(old)


def test_a_file_that_changes_meanwhile(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    entries = all_entries(bundle)
    (bundle / "lib/libx.so.1.2").write_text("library " * 99 + "librarY ")
    with pytest.raises(AimaError, match="changed"):
        archive.write_archive(bundle, NAME, entries, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = make_bundle(tmp_path)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(archive.os, "fsync", full)
    with pytest.raises(AimaError) as caught:
        seal(bundle, tmp_path / "out")
    assert "No space left" in str(caught.value)
    assert "nothing was left behind" in str(caught.value)
    assert not list((tmp_path / "out").iterdir())


def test_an_old_archive_survives_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = make_bundle(tmp_path)
    before = seal(bundle, tmp_path / "out")
    monkeypatch.setattr(archive.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
    with pytest.raises(AimaError):
        seal(bundle, tmp_path / "out")
    assert before.path.stat().st_size == before.size


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1755, 0o600, 0o777, 0o666])
def test_modes_that_no_bundle_has(mode: int, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    entries = all_entries(bundle)
    old = entries["bin/aima-engine"]
    entries["bin/aima-engine"] = Entry(old.path, FILE, mode, old.size, old.sha256)
    with pytest.raises(AimaError, match="cannot be archived"):
        archive.write_archive(bundle, NAME, entries, tmp_path / "out")


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    os.mkfifo(bundle / "lib/pipe")
    with pytest.raises(AimaError, match="cannot be archived"):
        seal(bundle, tmp_path / "out")
