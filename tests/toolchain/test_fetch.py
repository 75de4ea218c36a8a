"""Fetching one file: whatever goes wrong, one clear error, and nothing half done under a final name."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path

import pytest
from toolchain_packs import Mirror, publish

from aimabuild.base.errors import AimaError
from aimabuild.schema.lock import DebianPackage
from aimabuild.toolchain import fetch
from aimabuild.toolchain.cache import Cache, explain_os_errors
from aimabuild.toolchain.fetch import fetch_package, is_on_mirror

DATA = random.Random(7).randbytes(200_000)


class Progress:
    """Sums what `advance` reports."""

    def __init__(self) -> None:
        self.total = 0

    def __call__(self, amount: int) -> None:
        self.total += amount


@pytest.fixture
def package(folder: Path) -> DebianPackage:
    """A published file of random bytes (fetching does not look inside)."""
    return publish(folder, "thing", DATA, version="1.0+b~1-2")


def check_done(cache: Cache, package: DebianPackage, progress: Progress) -> None:
    """The file is there, whole and alone, and progress adds up."""
    assert cache.file(package.sha256).read_bytes() == DATA
    assert [path.name for path in (cache.root / "files").iterdir()] == [package.sha256]
    assert progress.total == package.size


def test_http(cache: Cache, mirror: Mirror, package: DebianPackage) -> None:
    progress = Progress()
    assert fetch_package(package, [mirror.url], cache, progress) == len(DATA)
    check_done(cache, package, progress)
    assert mirror.log == [(f"/{package.path}", None)]
    assert fetch_package(package, [mirror.url], cache, progress) == 0
    assert len(mirror.log) == 1


def test_file_url(cache: Cache, folder: Path, package: DebianPackage) -> None:
    progress = Progress()
    assert fetch_package(package, [folder.as_uri()], cache, progress) == len(DATA)
    check_done(cache, package, progress)


def test_a_cut_off_download_is_resumed(cache: Cache, mirror: Mirror, package: DebianPackage) -> None:
    mirror.cut_after = 70_000
    progress = Progress()
    assert fetch_package(package, [mirror.url], cache, progress) == len(DATA) - 2 * 69_632
    check_done(cache, package, progress)
    assert [wanted for _, wanted in mirror.log] == [None, "bytes=69632-", "bytes=139264-"]


def test_three_broken_attempts_are_an_error_and_the_next_run_goes_on(
    cache: Cache, mirror: Mirror, package: DebianPackage
) -> None:
    mirror.cut_after = 10_000
    with pytest.raises(AimaError, match="broke off 3 times") as caught:
        fetch_package(package, [mirror.url], cache, Progress())
    assert "of 200,000 bytes" in str(caught.value)
    assert not cache.file(package.sha256).exists()
    mirror.cut_after = None
    progress = Progress()
    moved = fetch_package(package, [mirror.url], cache, progress)
    assert moved == len(DATA) - 3 * 9_216
    check_done(cache, package, progress)


def test_a_server_without_ranges_starts_over(cache: Cache, mirror: Mirror, package: DebianPackage) -> None:
    mirror.ranges = False
    cache.file(package.sha256).with_suffix(".partial").write_bytes(DATA[:1000])
    progress = Progress()
    assert fetch_package(package, [mirror.url], cache, progress) == len(DATA)
    check_done(cache, package, progress)


@pytest.mark.parametrize("size", [1000, len(DATA), len(DATA) + 5])
def test_a_leftover_with_other_content_is_thrown_away(
    cache: Cache, mirror: Mirror, package: DebianPackage, size: int
) -> None:
    cache.file(package.sha256).with_suffix(".partial").write_bytes(b"\0" * size)
    progress = Progress()
    fetch_package(package, [mirror.url], cache, progress)
    check_done(cache, package, progress)


def test_a_cached_file_of_the_wrong_size_is_replaced(
    cache: Cache, mirror: Mirror, package: DebianPackage
) -> None:
    cache.file(package.sha256).write_bytes(DATA[:-1])
    progress = Progress()
    fetch_package(package, [mirror.url], cache, progress)
    check_done(cache, package, progress)


def test_wrong_hash(cache: Cache, folder: Path, mirror: Mirror, package: DebianPackage) -> None:
    (folder / package.path).write_bytes(b"x" + DATA[1:])
    with pytest.raises(AimaError, match="wrong hash") as caught:
        fetch_package(package, [mirror.url], cache, Progress())
    assert f"expected sha256 {package.sha256}, got " in str(caught.value)
    assert list((cache.root / "files").iterdir()) == []
    assert len(mirror.log) == 1


@pytest.mark.parametrize("change", [-100, 100])
def test_a_file_of_another_length(
    cache: Cache, folder: Path, mirror: Mirror, package: DebianPackage, change: int
) -> None:
    (folder / package.path).write_bytes((DATA + DATA)[: len(DATA) + change])
    with pytest.raises(AimaError, match=r"got (more|199,900) of 200,000 bytes"):
        fetch_package(package, [mirror.url], cache, Progress())
    assert not cache.file(package.sha256).exists()


def test_missing_names_the_command(
    cache: Cache, folder: Path, mirror: Mirror, package: DebianPackage
) -> None:
    (folder / package.path).unlink()
    for url in (mirror.url, folder.as_uri()):
        assert not is_on_mirror(package, [url])
        with pytest.raises(AimaError, match="no longer on the mirror") as caught:
            fetch_package(package, [url], cache, Progress())
        assert "aimabuild toolchain lock --relock-missing" in str(caught.value.hint)


def test_the_next_mirror_is_tried(
    cache: Cache, tmp_path: Path, mirror: Mirror, package: DebianPackage
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    progress = Progress()
    assert is_on_mirror(package, [empty.as_uri(), mirror.url])
    assert fetch_package(package, [empty.as_uri(), mirror.url], cache, progress) == len(DATA)
    check_done(cache, package, progress)


def test_server_errors_are_retried(cache: Cache, mirror: Mirror, package: DebianPackage) -> None:
    mirror.failures = 2
    progress = Progress()
    fetch_package(package, [mirror.url], cache, progress)
    check_done(cache, package, progress)
    mirror.failures = 3
    cache.file(package.sha256).unlink()
    with pytest.raises(AimaError, match="HTTP 503"):
        fetch_package(package, [mirror.url], cache, Progress())


def test_no_network(cache: Cache, package: DebianPackage) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(AimaError, match="cannot be reached") as caught:
            fetch_package(package, [url], cache, Progress())
        with pytest.raises(AimaError, match="cannot be reached"):
            is_on_mirror(package, [url])
    assert "Connection refused" in str(caught.value.why)
    assert list((cache.root / "files").iterdir()) == []


def test_full_disk(
    cache: Cache, folder: Path, package: DebianPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetch, "_copy", full)
    with pytest.raises(AimaError, match="the disk is full"), explain_os_errors(cache):
        fetch_package(package, [folder.as_uri()], cache, Progress())
    monkeypatch.undo()
    fetch_package(package, [folder.as_uri()], cache, Progress())
    assert cache.file(package.sha256).read_bytes() == DATA
