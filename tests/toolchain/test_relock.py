"""Relocking what a mirror has lost, and nothing else; Debian versions in Debian's order."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toolchain_packs import make_deb, make_lock, publish

from aimabuild.base.errors import AimaError
from aimabuild.base.reporter import Reporter
from aimabuild.schema.lock import DebianPackage
from aimabuild.toolchain import debian, relock
from aimabuild.toolchain.cache import Cache
from aimabuild.toolchain.debian import Apt, resolve_debian
from aimabuild.toolchain.parts import DebianRequest, PartSpec
from aimabuild.toolchain.relock import compare, dependencies, find_missing, holds, merge, relock_missing

ORDER = [
    "1.0~beta1~svn1",
    "1.0~beta1",
    "1.0",
    "1.0-0+b1",
    "1.0-1~exp1",
    "1.0-1",
    "1.0-1+b1",
    "1.0-1.1",
    "1.0-2",
]
ORDER += ["1.0+dfsg-1", "1.0.1-1", "1.2", "1.10", "1.10a", "1.10+", "2:0.1", "10:0"]


def test_debian_s_order() -> None:
    for index, left in enumerate(ORDER):
        for other, right in enumerate(ORDER):
            assert compare(left, right) == (index > other) - (index < other), (left, right)
    assert compare("1.0", "0:1.0") == compare("1.0-0", "1.0") == compare("1.00", "1.0") == 0


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="dpkg is the reference")
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.from_regex(r"\A([0-9]:)?[0-9][0-9a-z.+~]{0,5}(-[0-9a-z+~.]{1,4})?\Z"), min_size=2, max_size=2)
)
def test_the_order_is_dpkg_s(versions: list[str]) -> None:
    left, right = versions
    relation = {-1: "lt", 0: "eq", 1: "gt"}[compare(left, right)]
    assert subprocess.run(["dpkg", "--compare-versions", left, relation, right], check=False).returncode == 0


def test_dependency_fields() -> None:
    field = "libc6 (>= 2.38), liba:any (= 1:2-3), libb | libc (<< 4), debconf (>= 0.5) | debconf-2.0"
    assert dependencies(field) == [
        ("libc6", ">=", "2.38"),
        ("liba", "=", "1:2-3"),
        ("libb", "", ""),
        ("debconf", ">=", "0.5"),
    ]
    assert dependencies("") == []
    assert [holds("2.0", relation, "2.0") for relation in ("", "<<", "<=", "=", ">=", ">>")] == [
        *(True, False, True, True, True, False)
    ]


def entry(name: str, version: str, source: str = "") -> DebianPackage:
    path = f"pool/main/{source or name}/{name}_{version}.deb"
    return DebianPackage(name, version, "amd64", path, 1, "0" * 64, "MIT", ("group",))


OLD = [
    entry("liba", "1"),
    entry("libb", "1"),
    entry("libc6", "2.40"),
    entry("src-one", "1", "s"),
    entry("src-two", "1", "s"),
]


def merged(
    missing: set[str], new: list[DebianPackage], depends: dict[str, str]
) -> tuple[dict[str, str], list[str]]:
    packages, lines = merge(OLD, missing, (new, depends))
    return {package.name: package.version for package in packages}, lines


NEW = [
    entry("liba", "2"),
    entry("libb", "2"),
    entry("libc6", "2.44"),
    entry("src-one", "2", "s"),
    entry("src-two", "2", "s"),
]
BEFORE = {package.name: package.version for package in OLD}


def test_only_the_missing_one_changes() -> None:
    versions, lines = merged({"liba"}, NEW, {"liba": "libc6 (>= 2.38)"})
    assert versions == {**BEFORE, "liba": "2"}
    assert lines == ["liba: 1 -> 2 (the mirror no longer has it)"]


def test_a_newer_dependency_comes_along() -> None:
    depends = {"liba": "libc6 (>= 2.43), libnew, unlocked (>= 9)", "libc6": "libb (>= 1)"}
    versions, lines = merged({"liba"}, [*NEW, entry("libnew", "5")], depends)
    assert versions == {**BEFORE, "liba": "2", "libc6": "2.44", "libnew": "5"}
    assert "libc6: 2.40 -> 2.44 (liba 2 needs libc6 >= 2.43)" in lines
    assert "libnew: new -> 5 (liba 2 needs libnew)" in lines


def test_packages_of_one_source_stay_together() -> None:
    versions, lines = merged({"src-one"}, NEW, {})
    assert versions == {**BEFORE, "src-one": "2", "src-two": "2"}
    assert "src-two: 1 -> 2 (it is built from one source with src-one)" in lines


def test_a_package_that_nothing_needs_any_more_goes() -> None:
    versions, lines = merged({"libb"}, [package for package in NEW if package.name != "libb"], {})
    assert "libb" not in versions
    assert lines == ["libb: 1 -> gone (the mirror no longer has it)"]


def test_find_missing(tmp_path: Path) -> None:
    packages = [publish(tmp_path, name, b"data") for name in ("one", "two", "three")]
    (tmp_path / packages[1].path).unlink()
    assert find_missing(packages, [tmp_path.as_uri()]) == {"two"}


class Archive:
    """A Debian archive in a folder: suites with package lists, unsigned."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stanzas: dict[str, list[str]] = {"sid": [], "experimental": []}

    def add(self, name: str, version: str, depends: str = "", suite: str = "sid") -> None:
        """Publish a package."""
        data = make_deb({f"./usr/lib/{name}": version.encode()})
        package = publish(self.root, name, data, version.replace(":", "%3a"))
        lines = [
            f"Package: {name}",
            f"Version: {version}",
            "Architecture: amd64",
            "Maintainer: none",
            "Description: x",
        ]
        lines += [f"Filename: {package.path}", f"Size: {package.size}", f"SHA256: {package.sha256}"]
        if depends:
            lines.append(f"Depends: {depends}")
        self.stanzas[suite].append("\n".join(lines) + "\n")

    def write(self) -> str:
        """Write the lists; returns the archive's URL."""
        for suite, stanzas in self.stanzas.items():
            folder = self.root / "dists" / suite / "main/binary-amd64"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "Packages").write_text("\n".join(stanzas))
            policy = "NotAutomatic: yes\n" if suite == "experimental" else ""
            head = (
                f"Origin: Debian\nSuite: {suite}\nCodename: {suite}\nArchitectures: amd64\nComponents: main\n"
            )
            # Without checksums there, apt takes the lists of a trusted archive as they are.
            release = f"{head}{policy}Date: Mon, 01 Jun 2026 00:00:00 UTC\n"
            (self.root / "dists" / suite / "Release").write_text(release)
        return self.root.as_uri()


needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="apt-get resolves")
SPECS = (
    PartSpec("runtime", "", DebianRequest(("app",), closure=True, drop=("*-dev",))),
    PartSpec("extra", "", DebianRequest(("libbase", "tool"))),
)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """app (experimental) needs libmid, libmid needs libbase and a -dev package."""
    archive = Archive(tmp_path / "archive")
    archive.add("app", "1:2.0~rc1-1", "libmid (>= 1.5)", suite="experimental")
    archive.add("app", "1:1.0-1", "libmid")
    archive.add("libmid", "1.5-1", "libbase, mid-dev")
    archive.add("mid-dev", "1.5-1")
    archive.add("libbase", "3.0-1+b2")
    archive.add("tool", "0.1-1")
    return archive


@needs_apt
def test_apt_resolves_in_a_private_state(tmp_path: Path, archive: Archive) -> None:
    apt = Apt(tmp_path / "apt", archive.write(), keyring=None)
    apt.update()
    packages, depends = resolve_debian(apt, SPECS)
    found = {package.name: (package.version, package.groups) for package in packages}
    assert found == {
        "app": ("1:2.0~rc1-1", ("runtime",)),
        "libbase": ("3.0-1+b2", ("extra", "runtime")),
        "libmid": ("1.5-1", ("runtime",)),
        "tool": ("0.1-1", ("extra",)),
    }
    assert depends["app"] == "libmid (>= 1.5)"
    for package in packages:
        assert (archive.root / package.path).stat().st_size == package.size


@needs_apt
def test_apt_s_failures_are_told(tmp_path: Path, archive: Archive) -> None:
    apt = Apt(tmp_path / "apt", (tmp_path / "none").as_uri(), keyring=None)
    with pytest.raises(AimaError, match="apt cannot resolve"):
        apt.update()
    apt = Apt(tmp_path / "apt2", archive.write(), keyring=None)
    apt.update()
    with pytest.raises(AimaError):
        resolve_debian(apt, [PartSpec("x", "", DebianRequest(("no-such-package",)))])
    with pytest.raises(AimaError, match="the Debian keyring is missing"):
        Apt(tmp_path / "apt3", "http://127.0.0.1:9", keyring=tmp_path / "none.gpg")


def test_without_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian.shutil, "which", lambda _: None)
    with pytest.raises(AimaError, match="cannot be locked here"):
        Apt(tmp_path, "http://127.0.0.1:9", keyring=None)


@needs_apt
def test_relock_missing(
    tmp_path: Path, archive: Archive, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relock, "Apt", functools.partial(Apt, keyring=None))
    monkeypatch.setattr(relock, "resolve_debian", functools.partial(resolve_debian, specs=SPECS))
    url, quiet = archive.write(), Reporter(quiet=True)
    apt = Apt(tmp_path / "apt", url, keyring=None)
    apt.update()
    lock = make_lock(resolve_debian(apt, SPECS)[0])
    assert relock_missing(lock, reporter=quiet, mirror=url) == (lock, [])

    # The suite moves on: libmid and tool are rebuilt, and only libmid's old file goes.
    gone = next(package for package in lock.debian if package.name == "libmid")
    (archive.root / gone.path).unlink()
    archive.stanzas["sid"] = [text for text in archive.stanzas["sid"] if "Package: libmid" not in text]
    archive.add("libmid", "1.6-1", "libbase")
    archive.add("tool", "0.2-1")
    archive.write()
    new, lines = relock_missing(lock, reporter=quiet, mirror=url)
    assert lines == ["libmid: 1.5-1 -> 1.6-1 (the mirror no longer has it)"]
    assert {p.name: p.version for p in new.debian} == {
        **{p.name: p.version for p in lock.debian},
        "libmid": "1.6-1",
    }
    assert find_missing(new.debian, [url]) == set()
