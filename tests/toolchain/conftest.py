"""A private cache for every test here, and a mirror folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from toolchain_packs import Mirror, serve

from aimabuild.toolchain import fetch
from aimabuild.toolchain.cache import Cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """An empty cache that `Cache.default()` finds too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    cache = Cache.default()
    cache.prepare()
    return cache


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a Debian mirror."""
    path = tmp_path / "mirror"
    path.mkdir()
    return path


@pytest.fixture
def mirror(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """`folder` served over loopback HTTP; no pause between attempts."""
    monkeypatch.setattr(fetch, "_PAUSE", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serve(folder) as server:
        yield server
