"""`aimabuild toolchain`: output, exit codes, and that listing fetches nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from aimabuild.base.errors import AimaError, CheckFailedError, UsageError
from aimabuild.cli import cli
from aimabuild.cli import toolchain as commands
from aimabuild.schema.lock import dump_lock, load_lock
from aimabuild.toolchain import relock, resolve

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg/aimabuild"


def invoke(*arguments: str) -> str:
    """Run a command; its AimaError passes through."""
    result = CliRunner().invoke(cli, ["toolchain", *arguments], catch_exceptions=False, standalone_mode=False)
    return result.stdout


def test_show_json_on_an_empty_cache(empty_cache: Path) -> None:
    value = json.loads(invoke("show", "--root", str(ROOT), "--json"))
    assert value["schema"] == "aimabuild/toolchain/v1"
    assert value["to_fetch_bytes"] == sum(part["size"] for part in value["parts"]) > 500_000_000
    names = [part["name"] for part in value["parts"]]
    assert "triton" in names
    assert "hip-runtime" in names
    assert not any(part["present"] for part in value["parts"])
    assert not empty_cache.exists()


def test_show_as_a_table() -> None:
    text = invoke("show", "--root", str(ROOT))
    assert "ziglang" in text
    assert "MB to fetch" in text


def test_show_verify_fails_on_damage(empty_cache: Path) -> None:
    wheel = load_lock(ROOT / "aimabuild.lock").wheels[0]
    (empty_cache / "files").mkdir(parents=True)
    (empty_cache / "files" / wheel.sha256).write_bytes(b"damaged")
    with pytest.raises(CheckFailedError, match="1 files of the toolchain cache are damaged") as caught:
        invoke("show", "--root", str(ROOT), "--verify")
    assert wheel.sha256 in str(caught.value)


def test_sync_offline_and_misspelt(empty_cache: Path) -> None:
    with pytest.raises(AimaError, match="`--offline` forbids fetching"):
        invoke("sync", "--root", str(ROOT), "--offline")
    with pytest.raises(UsageError, match="no toolchain part"):
        invoke("sync", "--root", str(ROOT), "--part", "zig")
    with pytest.raises(UsageError, match="no lock file"):
        invoke("sync", "--root", str(empty_cache.parent.parent))


def test_lock_writes_only_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = load_lock(ROOT / "aimabuild.lock")
    path = tmp_path / "aimabuild.lock"
    path.write_text("{ damaged")
    monkeypatch.setattr(resolve, "resolve", lambda *_, **__: lock)
    text = invoke("lock", "--root", str(tmp_path))
    assert "debian libc6: added" in text
    assert f"wrote {path}" in text
    assert path.read_text() == dump_lock(lock)
    assert "up to date" in invoke("lock", "--root", str(tmp_path))
    monkeypatch.setattr(relock, "relock_missing", lambda lock, **_: (lock, []))
    assert "up to date" in invoke("lock", "--root", str(tmp_path), "--relock-missing")


def test_the_group_is_a_command() -> None:
    assert commands.toolchain.name == "toolchain"
    assert set(commands.toolchain.commands) == {"sync", "show", "lock"}
