"""What `show` reports, and what `show --verify` finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from toolchain_packs import make_deb, make_lock, member, publish

from aimabuild.base.errors import AimaError
from aimabuild.base.reporter import Reporter
from aimabuild.schema.lock import Lock
from aimabuild.toolchain.cache import Cache
from aimabuild.toolchain.parts import DebianRequest, PartSpec, tree_key
from aimabuild.toolchain.state import inspect, verify
from aimabuild.toolchain.sync import sync
from aimabuild.toolchain.trees import discard_tree

SPEC = PartSpec("group", "why it is here", DebianRequest(("one",)))


@pytest.fixture
def lock(folder: Path) -> Lock:
    """One package with a file and a link."""
    data = make_deb({"./usr/lib/a.so.1": b"library"}, [member("usr/lib/a.so", b"2", link="a.so.1")])
    return make_lock([publish(folder, "one", data)])


@pytest.fixture
def tree(lock: Lock, folder: Path, cache: Cache) -> Path:
    """Its synced tree."""
    sync(lock, cache, [SPEC], reporter=Reporter(quiet=True), mirror=folder.as_uri())
    return cache.tree("group", tree_key(SPEC, lock))


def test_inspect_before_and_after(lock: Lock, folder: Path, cache: Cache) -> None:
    (before,) = inspect(lock, cache, [SPEC])
    assert (before.present, before.missing_bytes) == (False, lock.debian[0].size)
    sync(lock, cache, [SPEC], reporter=Reporter(quiet=True), mirror=folder.as_uri())
    (after,) = inspect(lock, cache, [SPEC])
    assert (after.present, after.missing_bytes, after.packages) == (True, 0, ("one 1.0-1",))
    assert after.tree.is_dir()
    discard_tree(SPEC, tree_key(SPEC, lock), cache)
    (cached,) = inspect(lock, cache, [SPEC])
    assert (cached.present, cached.missing_bytes) == (False, 0)


def test_a_sound_cache(lock: Lock, tree: Path, cache: Cache) -> None:
    assert verify(lock, cache, [SPEC]) == []
    cache.file(lock.debian[0].sha256).unlink()
    assert verify(lock, cache, [SPEC]) == []


def test_every_kind_of_damage_is_found(lock: Lock, tree: Path, cache: Cache) -> None:
    library, link = tree / "usr/lib/a.so.1", tree / "usr/lib/a.so"
    cached = cache.file(lock.debian[0].sha256)
    good = cached.read_bytes()

    def found() -> str:
        (problem,) = verify(lock, cache, [SPEC])
        return problem

    library.write_bytes(b"Library")
    assert found() == f"{library}: its content has changed"
    library.write_bytes(b"library!")
    assert "its content has changed" in found()
    library.write_bytes(b"library")
    library.chmod(0o600)
    assert found() == f"{library}: its mode is not 644"
    library.chmod(0o644)
    link.unlink()
    link.symlink_to("/etc/passwd")
    assert found() == f"{link}: is not the link to a.so.1"
    link.unlink()
    link.symlink_to("a.so.1")
    (tree / "usr/new").touch()
    assert found() == f"{tree}/usr/new: does not belong there"
    (tree / "usr/new").unlink()
    cached.write_bytes(good[:-1] + b"?")
    assert "its content has changed (one 1.0-1)" in found()
    cached.write_bytes(good[:-1])
    assert f"{len(good) - 1} bytes, expected {len(good)}" in found()
    cached.write_bytes(good)
    library.unlink()
    assert found() == f"{library}: is missing"


def test_a_damaged_list_is_an_error(lock: Lock, tree: Path, cache: Cache) -> None:
    cache.index("group", tree_key(SPEC, lock)).write_text('{"entries": {"a": 1}}')
    with pytest.raises(AimaError, match="the list of a tree's files cannot be read"):
        verify(lock, cache, [SPEC])
