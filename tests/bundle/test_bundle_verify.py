"""Every way in which a bundle can differ from its list is found, in a folder and in an archive."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from bundlemaker import NAME, all_entries, make_bundle, seal, write_lists
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aimabuild.base.errors import AimaError, CheckFailedError, UsageError
from aimabuild.bundle.archive import header_of, info_of, tar_chunks
from aimabuild.bundle.entries import JSON_LIST, TEXT_LIST, Entry
from aimabuild.bundle.unpack import extract
from aimabuild.bundle.verify import require, verify

LIBRARY = "lib/libx.so.1.2"


def flip(root: Path) -> None:
    data = bytearray((root / LIBRARY).read_bytes())
    data[5] ^= 1
    (root / LIBRARY).write_bytes(data)


def to_link(root: Path) -> None:
    shutil.move(root / LIBRARY, root / "lib/deep/moved")
    (root / LIBRARY).symlink_to("deep/moved")


def retarget(root: Path) -> None:
    (root / "lib/libx.so.1").unlink()
    (root / "lib/libx.so.1").symlink_to("empty")


def link_to_file(root: Path) -> None:
    (root / "lib/libx.so.1").unlink()
    shutil.copyfile(root / LIBRARY, root / "lib/libx.so.1")


def folder_to_file(root: Path) -> None:
    (root / "share/aima/gconv").rmdir()
    (root / "share/aima/gconv").write_text("")


# Each hole of a manifest, and words that the report must have.
HOLES: dict[str, tuple[Callable[[Path], object], str]] = {
    "byte flip of the same size": (flip, f"{LIBRARY}: the content differs"),
    "appended byte": (lambda r: (r / "lib/empty").write_text("x"), "lib/empty: has 1 bytes, not 0"),
    "missing file": (lambda r: (r / LIBRARY).unlink(), f"{LIBRARY}: is missing"),
    "missing link": (lambda r: (r / "lib/libx.so.1").unlink(), "lib/libx.so.1: is missing"),
    "missing empty folder": (lambda r: (r / "share/aima/gconv").rmdir(), "share/aima/gconv: is missing"),
    "extra file": (lambda r: (r / "lib/extra").write_text(""), "lib/extra: is not in the list"),
    "extra hidden file": (lambda r: (r / ".hidden").write_text(""), ".hidden: is not in the list"),
    "extra empty folder": (lambda r: (r / "lib/x").mkdir(), "lib/x: is not in the list"),
    "extra link": (lambda r: (r / "lib/libc.so").symlink_to("empty"), "lib/libc.so: is not in the list"),
    "hwcaps": (lambda r: (r / "lib/glibc-hwcaps").mkdir(), "lib/glibc-hwcaps: is not in the list"),
    "nested manifest.json changed": (
        lambda r: (r / "lib/deep/manifest.json").write_text("[]"),
        "lib/deep/manifest.json: the content differs",
    ),
    "executable bit": (lambda r: (r / LIBRARY).chmod(0o755), f"{LIBRARY}: the mode is 0755, not 0644"),
    "no executable bit": (
        lambda r: (r / "bin/aima-engine").chmod(0o644),
        "bin/aima-engine: the mode is 0644, not 0755",
    ),
    "setuid": (
        lambda r: (r / "bin/aima-engine").chmod(0o4755),
        "bin/aima-engine: the mode is 4755, not 0755",
    ),
    "writable by all": (lambda r: (r / LIBRARY).chmod(0o666), f"{LIBRARY}: the mode is 0666, not 0644"),
    "closed to others": (lambda r: (r / LIBRARY).chmod(0o600), f"{LIBRARY}: the mode is 0600, not 0644"),
    "folder writable": (lambda r: (r / "lib").chmod(0o777), "lib: the mode is 0777, not 0755"),
    "file to link": (to_link, f"{LIBRARY}: is a link, not a file"),
    "link to file": (link_to_file, "lib/libx.so.1: is a file, not a link"),
    "folder to file": (folder_to_file, "share/aima/gconv: is a file, not a folder"),
    "link retargeted": (retarget, "lib/libx.so.1: leads to `empty`, not `libx.so.1.2`"),
    "pipe": (lambda r: os.mkfifo(r / "lib/pipe"), "lib/pipe: is neither file, folder nor link"),
    "list gone": (lambda r: (r / TEXT_LIST).unlink(), f"{TEXT_LIST}: is missing"),
    "list changed": (lambda r: (r / TEXT_LIST).write_text("aima-manifest-v1 0\n"), "is not in the list"),
    "list damaged": (lambda r: (r / TEXT_LIST).write_text("nonsense"), "the list of the bundle is damaged"),
    "list's mode": (lambda r: (r / TEXT_LIST).chmod(0o755), f"{TEXT_LIST}: the mode is 0755"),
    "manifest.json gone": (lambda r: (r / JSON_LIST).unlink(), f"{JSON_LIST}: is missing"),
}


@pytest.mark.parametrize("hole", HOLES)
def test_holes_in_a_folder(hole: str, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    assert not verify(bundle).problems
    plant, words = HOLES[hole]
    plant(bundle)
    report = verify(bundle)
    assert any(words in problem for problem in report.problems), report.problems
    with pytest.raises(CheckFailedError) as caught:
        require(report, bundle)
    assert caught.value.exit_code == 3
    assert words in str(caught.value)


ARCHIVABLE = [
    name
    for name in HOLES
    if name not in {"setuid", "writable by all", "closed to others", "folder writable", "pipe"}
]


@pytest.mark.parametrize("hole", ARCHIVABLE)
def test_holes_in_an_archive(hole: str, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    plant, words = HOLES[hole]
    plant(bundle)
    report = verify(seal(bundle, tmp_path / "out").path)
    assert any(words in problem for problem in report.problems), report.problems


def test_all_problems_are_listed_at_once(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    (bundle / LIBRARY).unlink()
    (bundle / "lib/extra").write_text("")
    retarget(bundle)
    assert len(verify(bundle).problems) == 3


def test_a_sound_archive(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    sealed = seal(bundle, tmp_path / "out")
    seen: list[int] = []
    report = verify(sealed.path, advance=seen.append)
    assert not report.problems
    assert (report.tar_sha256, report.archive_sha256) == (sealed.tar_sha256, sealed.sha256)
    assert report.list_sha256 == verify(bundle).list_sha256
    assert 0 < sum(seen) <= sealed.tar_size


def test_extracted_under_a_umask(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    for path in [bundle, *bundle.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)
    assert not verify(bundle).problems
    (bundle / LIBRARY).chmod(0o644)
    assert verify(bundle).problems == (f"{LIBRARY}: the mode is 0644, not 0600",)


def test_the_two_lists_must_agree(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    manifest = json.loads((bundle / JSON_LIST).read_text())
    for change in ("sha256", "drop", "double", "schema", "name", "type"):
        value = json.loads(json.dumps(manifest))
        file = next(e for e in value["entries"] if e["path"] == LIBRARY)
        if change == "sha256":
            file["sha256"] = "b" * 64
        elif change == "drop":
            value["entries"].remove(file)
        elif change == "double":
            value["entries"].append(file)
        elif change == "type":
            file["mode"] = "rwx"
        else:
            value[change] = "other"
        _replace_manifest(bundle, json.dumps(value))
        target = seal(bundle, tmp_path / "out").path if change == "name" else bundle
        assert verify(target).problems, change


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"a":1,"a":1}', '{"schema":NaN}', "[" * 100_000])
def test_a_manifest_that_is_no_manifest(text: str, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    _replace_manifest(bundle, text)
    assert any(JSON_LIST in problem for problem in verify(bundle).problems)


def _replace_manifest(bundle: Path, text: str) -> None:
    """Another manifest.json with a manifest.txt that fits it."""
    write_lists(bundle)
    (bundle / JSON_LIST).write_text(text)
    from aimabuild.bundle.entries import list_text

    entries = {path: entry for path, entry in all_entries(bundle).items() if path != TEXT_LIST}
    (bundle / TEXT_LIST).write_text(list_text(entries.values()))


def test_sidecar(tmp_path: Path) -> None:
    sealed = seal(make_bundle(tmp_path), tmp_path / "out")
    sidecar = sealed.path.with_name(f"{sealed.path.name}.sha256")
    sidecar.write_text(f"{'0' * 64}  {sealed.path.name}\n")
    assert any("says 000" in problem for problem in verify(sealed.path).problems)
    sidecar.unlink()
    assert any("is missing beside" in problem for problem in verify(sealed.path).problems)


def test_a_renamed_archive(tmp_path: Path) -> None:
    sealed = seal(make_bundle(tmp_path), tmp_path / "out")
    other = sealed.path.with_name("other.tar.zst")
    shutil.copy(sealed.path, other)
    shutil.copy(f"{sealed.path}.sha256", f"{other}.sha256")
    assert any("is called other.tar.zst" in problem for problem in verify(other).problems)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        verify(tmp_path / "missing")


# --- archives made by somebody else -------------------------------------------------------------------------


def tar_of(bundle: Path) -> bytes:
    return b"".join(tar_chunks(bundle, NAME, all_entries(bundle)))


def pack(data: bytes, path: Path, *, size: bool = True) -> Path:
    parameters = zstandard.ZstdCompressionParameters(write_content_size=size)
    path.write_bytes(zstandard.ZstdCompressor(compression_params=parameters).compress(data))
    return path


def with_member(bundle: Path, info: tarfile.TarInfo, content: bytes = b"") -> bytes:
    """The bundle's tar with one more member in front of its end."""
    data = tar_of(bundle)
    end = len(data) - 1
    while data[end] == 0:
        end -= 1
    end = (end // 512 + 1) * 512
    member = header_of(info) + content + b"\0" * (-len(content) % 512)
    out = data[:end] + member
    return out + b"\0" * (1024 + -(len(out) + 1024) % 10240)


def member(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    info = info_of(NAME, Entry("x", "f", 0o644))
    info.name, info.type = name, kind
    for field, value in fields.items():
        setattr(info, field, value)
    return info


EVIL = {
    "absolute": member("/etc/passwd"),
    "dotdot": member(f"{NAME}/../x"),
    "other top": member("other/x"),
    "prefix of top": member(f"{NAME}x/y"),
    "hard link": member(f"{NAME}/hard", tarfile.LNKTYPE, linkname=f"{NAME}/lib/empty"),
    "device": member(f"{NAME}/null", tarfile.CHRTYPE, devmajor=1, devminor=3),
    "fifo": member(f"{NAME}/fifo", tarfile.FIFOTYPE),
    "absolute link": member(f"{NAME}/l", tarfile.SYMTYPE, linkname="/etc/passwd", mode=0o777),
    "leaving link": member(f"{NAME}/l", tarfile.SYMTYPE, linkname="../../x", mode=0o777),
    "double": member(f"{NAME}/lib/empty"),
    "through a link": member(f"{NAME}/lib/libx.so.1/x"),
    "no folder": member(f"{NAME}/nowhere/x"),
    "setuid": member(f"{NAME}/s", mode=0o4755),
    "owner": member(f"{NAME}/s", uid=1000),
    "owner's name": member(f"{NAME}/s", uname="root"),
    "time": member(f"{NAME}/s", mtime=1),
    "control character": member(f"{NAME}/a\nb"),
}


@pytest.mark.parametrize("name", EVIL)
def test_members_that_no_bundle_has(name: str, tmp_path: Path) -> None:
    archive = pack(with_member(make_bundle(tmp_path), EVIL[name]), tmp_path / f"{NAME}.tar.zst")
    report = verify(archive)
    shown = repr(EVIL[name].name.rstrip("/"))
    assert any(problem.startswith(shown) for problem in report.problems), report.problems
    (tmp_path / "x").mkdir()
    with pytest.raises(AimaError, match="no bundle has"):
        extract(archive, tmp_path / "x")
    assert not (tmp_path / "etc").exists()


def test_pax_and_sparse_headers_are_not_understood(tmp_path: Path) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "x"}) as tar:
        tar.add(make_bundle(tmp_path), NAME)
    with pytest.raises(AimaError, match="damaged"):
        verify(pack(data.getvalue(), tmp_path / f"{NAME}.tar.zst"))


def test_names_without_end(tmp_path: Path) -> None:
    info = member("././@LongLink", tarfile.GNUTYPE_LONGNAME, size=1 << 33)
    with pytest.raises(AimaError, match="damaged"):
        verify(pack(with_member(make_bundle(tmp_path), info), tmp_path / "a.tar.zst"))


@pytest.mark.parametrize("cut", [1, 100, 511, 512, 10_000])
def test_cut_inside(cut: int, tmp_path: Path) -> None:
    with pytest.raises(AimaError, match="damaged"):
        verify(pack(tar_of(make_bundle(tmp_path))[:-cut], tmp_path / "a.tar.zst"))


def test_an_archive_of_nothing(tmp_path: Path) -> None:
    assert verify(pack(b"\0" * 10240, tmp_path / "a.tar.zst")).problems


def test_cut_outside_and_appended(tmp_path: Path) -> None:
    whole = seal(make_bundle(tmp_path), tmp_path / "out").path.read_bytes()
    path = tmp_path / "a.tar.zst"
    for data in (whole[:-1], whole[: len(whole) // 2], b"", whole[:10], whole + b"x", whole + whole):
        path.write_bytes(data)
        with pytest.raises(AimaError):
            verify(path)


def test_something_behind_the_end(tmp_path: Path) -> None:
    data = tar_of(make_bundle(tmp_path))
    with pytest.raises(AimaError, match="damaged"):
        verify(pack(data + b"x" * 512, tmp_path / "a.tar.zst"))


def test_a_size_must_be_stated(tmp_path: Path) -> None:
    with pytest.raises(AimaError, match="is damaged"):
        verify(pack(tar_of(make_bundle(tmp_path)), tmp_path / "a.tar.zst", size=False))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=4))
def test_any_change_of_a_tar_is_noticed(edits: list[tuple[int, int]], tmp_path: Path) -> None:
    root = tmp_path / "b"
    if not root.exists():
        make_bundle(root)
    original = tar_of(root / NAME)
    data = bytearray(original)
    for place, value in edits:
        data[place % len(data)] ^= value
    if bytes(data) == original:
        return
    archive = pack(bytes(data), tmp_path / f"{NAME}.tar.zst")
    (tmp_path / f"{NAME}.tar.zst.sha256").write_text("")
    try:
        problems = [p for p in verify(archive).problems if ".sha256" not in p]
    except AimaError:
        return
    assert problems


HOSTILE: list[object] = [
    *(None, True, 1, -1, 1.5, 10**4000, [], [1], {}),
    *("", "x\x1b[2J", "\udcff", "../..", "/", "a" * 9999),
]


@pytest.mark.parametrize("field", ["path", "type", "mode", "size", "sha256", "target", "", "name", "entries"])
def test_a_hostile_manifest_is_one_line(field: str, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    manifest = json.loads((bundle / JSON_LIST).read_text())
    for kind in ("f", "l", "d"):
        for value in HOSTILE:
            changed = json.loads(json.dumps(manifest))
            index, entry = next((i, e) for i, e in enumerate(changed["entries"]) if e["type"] == kind)
            if field in {"name", "entries"}:
                changed[field] = value
            elif field:
                entry[field] = value
            else:
                changed["entries"][index] = value
            _replace_manifest(bundle, json.dumps(changed))
            if field == "name" and isinstance(value, str):
                continue  # only an archive has a name of its own
            report = verify(bundle)
            assert report.problems, (field, kind, value)
            with pytest.raises(CheckFailedError) as caught:
                require(report, bundle)
            assert max(map(len, str(caught.value).splitlines())) < 1000
            assert str(caught.value).count("\n") == len(report.problems)
