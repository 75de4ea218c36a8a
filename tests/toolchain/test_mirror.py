"""The host's mirror is found in its apt sources, whichever form they have."""

from __future__ import annotations

from pathlib import Path

import pytest

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.toolchain.mirror import file_url, find_mirrors


def apt(tmp_path: Path, **files: str) -> Path:
    """An /etc/apt with these files; `__` in a name stands for a dot, `main` for sources.list."""
    folder = tmp_path / "apt"
    (folder / "sources.list.d").mkdir(parents=True)
    for name, text in files.items():
        target = "sources.list" if name == "main" else f"sources.list.d/{name.replace('__', '.')}"
        (folder / target).write_text(text)
    return folder


def test_one_line(tmp_path: Path) -> None:
    text = """
# deb http://commented.test/debian sid main
deb-src http://source.test/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] http://one.test/debian/ bookworm main contrib # trailing
deb http://security.test/debian-security bookworm-security main
deb http://one.test/debian bookworm-updates main
deb https://vendor.test/apt stable main-extra
deb cdrom:[Debian]/ bookworm main
"""
    assert find_mirrors(None, apt(tmp_path, main=text)) == ("http://one.test/debian",)


def test_deb822(tmp_path: Path) -> None:
    text = """Types: deb deb-src
# a comment
URIs: http://a.test/debian
  http://b.test/debian/
Suites: trixie trixie-updates
Components: main

Enabled: no
Types: deb
URIs: http://off.test/debian
Suites: sid
Components: main

Types: deb-src
URIs: http://src.test/debian
Suites: sid
Components: main

Types: deb
URIs: http://s.test/debian-security
Suites: trixie-security
Components: main
"""
    assert find_mirrors(None, apt(tmp_path, debian__sources=text)) == (
        "http://a.test/debian",
        "http://b.test/debian",
    )


def test_the_archive_comes_before_other_repositories(tmp_path: Path) -> None:
    vendor = "deb https://vendor.test/debian/12/prod bookworm main\n"
    debian = "deb http://d.test/debian bookworm main\n"
    folder = apt(tmp_path, a__list=vendor, b__list=debian, c__bak="deb http://old.test/debian sid main\n")
    assert find_mirrors(None, folder) == ("http://d.test/debian", "https://vendor.test/debian/12/prod")


def test_mirror_list(tmp_path: Path) -> None:
    listing = tmp_path / "mirrors.list"
    listing.write_text("# mirrors\nhttp://m.test/debian\tpriority:1\nftp://f.test/debian\n")
    text = f"Types: deb\nURIs: mirror+file:{listing}\nSuites: bookworm\nComponents: main\n"
    assert find_mirrors(None, apt(tmp_path, debian__sources=text)) == ("http://m.test/debian",)


@pytest.mark.parametrize(
    "text", ["", "deb http://ubuntu.test/ubuntu noble main\n", "deb\ndeb x\nnonsense [\n"]
)
def test_no_known_mirror(tmp_path: Path, text: str) -> None:
    with pytest.raises(AimaError, match="no Debian mirror is known") as caught:
        find_mirrors(None, apt(tmp_path, main=text))
    assert "--mirror URL" in str(caught.value.hint)
    with pytest.raises(AimaError, match="no Debian mirror is known"):
        find_mirrors(None, tmp_path / "none")


def test_given(tmp_path: Path) -> None:
    assert find_mirrors("http://x.test/debian/", tmp_path) == ("http://x.test/debian",)
    for bad in ("ftp://x.test/debian", "/srv/debian", "x.test", "", "javascript:1"):
        with pytest.raises(UsageError, match="--mirror"):
            find_mirrors(bad, tmp_path)


def test_urls_keep_the_pool_path() -> None:
    assert file_url("http://m", "pool/main/a/a_1+b~2_amd64.deb") == "http://m/pool/main/a/a_1+b~2_amd64.deb"
    assert file_url("http://m", "pool/a b#?.deb") == "http://m/pool/a%20b%23%3F.deb"
