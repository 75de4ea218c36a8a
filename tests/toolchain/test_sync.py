"""A whole sync of tiny parts: all fetched and unpacked once, by however many processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from toolchain_packs import Mirror, make_deb, make_lock, make_wheel, publish

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.base.reporter import Reporter
from aimabuild.schema.lock import DebianPackage, Lock, Wheel, dump_lock
from aimabuild.toolchain.cache import Cache
from aimabuild.toolchain.parts import DebianRequest, PartSpec, WheelRequest, files_of, tree_key
from aimabuild.toolchain.state import verify
from aimabuild.toolchain.sync import SyncReport, select, sync
from aimabuild.toolchain.trees import discard_tree, read_index

GROUP = PartSpec(
    "group", "two packages in one root", DebianRequest(("one", "two")), drop=("usr/share/man/*",)
)
WHEEL = PartSpec("tiny-wheel", "a wheel", WheelRequest("1.0"), drop=("*.txt",))


@pytest.fixture
def debs(folder: Path) -> list[DebianPackage]:
    """Two packages of the group, the second large enough to be interrupted."""
    one = make_deb({"./usr/bin/one": b"1", "./usr/share/man/one.1": b"man"})
    two = make_deb({"./usr/lib/two.so": os.urandom(120_000)}, compression="zst")
    return [publish(folder, "one", one), publish(folder, "two", two)]


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wheel:
    """A wheel in the only place where pip may look."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return make_wheel(links, "tiny-wheel", "1.0", {"tiny/__init__.py": b"x = 1\n", "tiny/a.txt": b"no"})


def run(
    lock: Lock,
    cache: Cache,
    specs: Sequence[PartSpec],
    mirror: str = "http://127.0.0.1:9",
    offline: bool = False,
) -> SyncReport:
    return sync(lock, cache, specs, reporter=Reporter(quiet=True), mirror=mirror, offline=offline)


def tree_of(spec: PartSpec, lock: Lock, cache: Cache) -> Path:
    return cache.tree(spec.name, tree_key(spec, lock))


def test_everything_from_nothing_and_then_nothing(
    cache: Cache, mirror: Mirror, debs: list[DebianPackage], wheel: Wheel
) -> None:
    lock = make_lock(debs, [wheel])
    report = run(lock, cache, [GROUP, WHEEL], mirror.url)
    assert report.fetched_bytes == sum(file.size for file in (*debs, wheel))
    assert report.unpacked == ("group", "tiny-wheel")
    tree = tree_of(GROUP, lock, cache)
    assert sorted(path.name for path in tree.rglob("*") if path.is_file()) == ["one", "two.so"]
    assert (tree_of(WHEEL, lock, cache) / "tiny/__init__.py").read_bytes() == b"x = 1\n"
    assert not (tree_of(WHEEL, lock, cache) / "tiny/a.txt").exists()
    index = read_index(cache.index("group", tree_key(GROUP, lock)))
    assert index["usr/bin/one"].source == "one 1.0-1"
    assert list((cache.root / "tmp").iterdir()) == []
    again = run(lock, cache, [GROUP, WHEEL], offline=True)
    assert (again.fetched_bytes, again.unpacked) == (0, ())
    assert len(mirror.log) == 2


def test_offline_lists_what_is_missing(cache: Cache, debs: list[DebianPackage], wheel: Wheel) -> None:
    lock = make_lock(debs, [wheel])
    with pytest.raises(AimaError, match="3 toolchain files are not in the cache") as caught:
        run(lock, cache, [GROUP, WHEEL], offline=True)
    assert "one 1.0-1, tiny-wheel 1.0, two 1.0-1" in str(caught.value)
    assert list((cache.root / "files").iterdir()) == []


def test_a_lost_tree_is_made_again_from_the_cache(
    cache: Cache, mirror: Mirror, debs: list[DebianPackage]
) -> None:
    lock = make_lock(debs)
    run(lock, cache, [GROUP], mirror.url)
    discard_tree(GROUP, tree_key(GROUP, lock), cache)
    assert not tree_of(GROUP, lock, cache).exists()
    report = run(lock, cache, [GROUP], offline=True)
    assert (report.fetched_bytes, report.unpacked) == (0, ("group",))
    assert tree_of(GROUP, lock, cache).is_dir()


def test_a_damaged_cached_file_is_fetched_again(
    cache: Cache, mirror: Mirror, debs: list[DebianPackage], capsys: pytest.CaptureFixture[str]
) -> None:
    lock = make_lock(debs)
    cache.file(debs[1].sha256).write_bytes(b"\0" * debs[1].size)
    report = run(lock, cache, [GROUP], mirror.url)
    assert report.fetched_bytes == debs[0].size + debs[1].size
    assert "the cached file of two was damaged" in capsys.readouterr().err
    assert verify(lock, cache, [GROUP]) == []


def test_a_damaged_file_offline_is_an_error(cache: Cache, debs: list[DebianPackage]) -> None:
    for package in debs:
        cache.file(package.sha256).write_bytes(b"\0" * package.size)
    with pytest.raises(AimaError, match="not in the cache"):
        run(make_lock(debs), cache, [GROUP], offline=True)
    assert not tree_of(GROUP, make_lock(debs), cache).exists()


def test_one_bad_file_fails_the_sync_and_keeps_the_rest(
    cache: Cache, folder: Path, mirror: Mirror, debs: list[DebianPackage]
) -> None:
    (folder / debs[1].path).write_bytes(b"\0" * debs[1].size)
    lock = make_lock(debs)
    with pytest.raises(AimaError, match="two from the mirror has the wrong hash"):
        run(lock, cache, [GROUP], mirror.url)
    assert not tree_of(GROUP, lock, cache).exists()
    assert list((cache.root / "tmp").iterdir()) == []


def test_an_archive_that_escapes_leaves_no_tree(cache: Cache, folder: Path, mirror: Mirror) -> None:
    package = publish(folder, "evil", make_deb({"../../../evil": b"x"}))
    with pytest.raises(AimaError, match="refused"):
        run(make_lock([package]), cache, [GROUP], mirror.url)
    assert list((cache.root / "trees").iterdir()) == []
    assert list((cache.root / "tmp").iterdir()) == []


def test_wheel_with_another_hash(cache: Cache, wheel: Wheel) -> None:
    with pytest.raises(AimaError, match="has the wrong hash") as caught:
        run(make_lock([], [replace(wheel, sha256="0" * 64)]), cache, [WHEEL])
    assert f"expected sha256 {'0' * 64}, got {wheel.sha256}" in str(caught.value)
    assert list((cache.root / "files").iterdir()) == []


def test_wheel_that_the_index_lacks(cache: Cache, wheel: Wheel) -> None:
    other = replace(wheel, version="2.0", filename="tiny_wheel-2.0-py3-none-any.whl")
    with pytest.raises(AimaError, match=r"package index has no `tiny-wheel==2\.0`"):
        run(make_lock([], [other]), cache, [WHEEL])


def test_wheel_without_network(cache: Cache, wheel: Wheel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(AimaError, match="pip"):
        run(make_lock([], [wheel]), cache, [WHEEL])
    assert list((cache.root / "files").iterdir()) == []


def test_the_wheel_for_this_python_is_taken(tmp_path: Path) -> None:
    tags = ["cp311-cp311-linux_x86_64", "cp312-abi3-linux_x86_64"]
    wheels = [make_wheel(tmp_path, "tiny-wheel", "1.0", {"m.py": b"x = 1\n"}, tag) for tag in tags]
    spec, lock = replace(WHEEL, per_python=True), make_lock([], wheels)
    assert files_of(spec, lock, (3, 11)) == (wheels[0],)
    assert files_of(spec, lock, (3, 12)) == (wheels[1],)
    assert files_of(spec, lock, (3, 14)) == (wheels[1],)
    with pytest.raises(AimaError, match="not locked") as caught:
        files_of(spec, lock, (3, 10))
    assert "Python 3.10" in str(caught.value)
    assert files_of(WHEEL, make_lock([], wheels[:1]), (3, 14)) == (wheels[0],)


def test_modules_are_compiled_so_that_importing_writes_nothing(cache: Cache, wheel: Wheel) -> None:
    spec = replace(WHEEL, per_python=True)
    lock = make_lock([], [wheel])
    run(lock, cache, [spec])
    tree = tree_of(spec, lock, cache)
    before = sorted(tree.rglob("*"))
    code = "import tiny, sys; sys.exit(tiny.__cached__ is None)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", code], check=True, env={**environment, "PYTHONPATH": str(tree)})
    assert sorted(tree.rglob("*")) == before
    assert any("__pycache__" in str(path) for path in before)


def test_names_of_parts() -> None:
    assert [spec.name for spec in select(["llvm-tools"])] == ["ziglang", "hip-runtime", "llvm-tools"]
    assert select([]) == ()
    with pytest.raises(UsageError, match="no toolchain part `tritn`") as caught:
        select(["tritn"])
    assert caught.value.hint == "did you mean `triton`?"


def test_leftovers_of_dead_processes_are_swept_and_live_ones_kept(cache: Cache) -> None:
    dead = cache.root / "tmp/dead"
    dead.mkdir()
    (dead / ".lock").touch()
    (dead / "half").write_bytes(b"x" * 100)
    with cache.scratch() as live:
        (live / "work").touch()
        cache.prepare()
        assert (live / "work").exists()
        assert not dead.exists()
    assert list((cache.root / "tmp").iterdir()) == []


CHILD = """
import sys
from pathlib import Path
from aimabuild.base.reporter import Reporter
from aimabuild.schema.lock import load_lock
from aimabuild.toolchain.cache import Cache
from aimabuild.toolchain.parts import DebianRequest, PartSpec
from aimabuild.toolchain.sync import sync
spec = PartSpec("group", "two packages in one root", DebianRequest(("one", "two")), drop=("usr/share/man/*",))
lock, quiet = load_lock(Path(sys.argv[1])), Reporter(quiet=True)
report = sync(lock, Cache.default(), [spec], reporter=quiet, mirror=sys.argv[2])
print(report.fetched_bytes)
"""


def start(lock: Path, url: str) -> subprocess.Popen[str]:
    """A process that syncs the group."""
    return subprocess.Popen([sys.executable, "-c", CHILD, str(lock), url], stdout=subprocess.PIPE, text=True)


@pytest.fixture
def lock_file(tmp_path: Path, debs: list[DebianPackage]) -> Path:
    """A lock file of the group."""
    path = tmp_path / "aimabuild.lock"
    lock = make_lock(debs, [Wheel("w", "1", "w-1-py3-none-any.whl", 1, "0" * 64, "MIT")])
    path.write_text(dump_lock(lock))
    return path


def test_two_processes_share_the_work(
    cache: Cache, mirror: Mirror, lock_file: Path, debs: list[DebianPackage]
) -> None:
    mirror.pause = 0.004
    processes = [start(lock_file, mirror.url) for _ in range(2)]
    fetched = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum(fetched) == sum(package.size for package in debs)
    assert len(mirror.log) == 2
    assert tree_of(GROUP, make_lock(debs), cache).is_dir()


def test_killed_in_a_download_then_resumed(
    cache: Cache, mirror: Mirror, lock_file: Path, debs: list[DebianPackage]
) -> None:
    mirror.pause = 0.05
    process = start(lock_file, mirror.url)
    partial = cache.file(debs[1].sha256).with_suffix(".partial")
    deadline = time.monotonic() + 60
    while (not partial.exists() or partial.stat().st_size == 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    assert not cache.file(debs[1].sha256).exists()
    kept = partial.stat().st_size
    assert 0 < kept < debs[1].size
    mirror.pause = 0
    report = run(make_lock(debs), cache, [GROUP], mirror.url)
    assert report.fetched_bytes <= debs[0].size + debs[1].size - kept
    assert (f"/{debs[1].path}", f"bytes={kept}-") in mirror.log
    assert verify(make_lock(debs), cache, [GROUP]) == []
