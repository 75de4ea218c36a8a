"""From inputs to a proved archive: what appears, in which order, and what a sealed run finds."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aimabuild.base.errors import AimaError, CheckFailedError
from aimabuild.base.reporter import Reporter
from aimabuild.bundle import package as packaging
from aimabuild.bundle.package import package
from aimabuild.bundle.prove import Demo, foreign, hostile, list_all, prove, run
from aimabuild.bundle.unpack import extract
from aimabuild.bundle.verify import verify
from aimabuild.schema.bundle import Bundle

QUIET = Reporter(quiet=True)
DEMO = Demo(Path("/model"), "The", "The quick brown fox.")


def compile_c(programs: Any, arguments: list[Any], folder: Path) -> None:
    """Compile for glibc 2.28 with the locked compiler."""
    cache = {
        "ZIG_GLOBAL_CACHE_DIR": str(programs.toolchain.zig_cache),
        "ZIG_LOCAL_CACHE_DIR": str(folder / "z"),
    }
    command = [programs.toolchain.zig, "cc", "-target", "x86_64-linux-gnu.2.28", "-s", *arguments]
    subprocess.run(command, check=True, env=cache)


@pytest.fixture(scope="session")
def archive(programs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packaged toy, not proved yet."""
    work = tmp_path_factory.mktemp("work")
    return package(programs.inputs(Bundle()), work, tmp_path_factory.mktemp("dist"), QUIET, run=False).archive


@pytest.mark.toolchain
def test_a_package(programs: Any, tmp_path: Path) -> None:
    inputs = programs.inputs(Bundle())
    made = package(inputs, tmp_path, tmp_path / "dist", QUIET, demo=lambda: DEMO)
    name = inputs.name
    assert {p.name for p in (tmp_path / "dist").iterdir()} == {
        f"{name}.tar.zst",
        f"{name}.tar.zst.sha256",
        f"{name}.release.json",
    }
    digest = hashlib.sha256(made.archive.read_bytes()).hexdigest()
    assert (tmp_path / f"dist/{name}.tar.zst.sha256").read_text() == f"{digest}  {name}.tar.zst\n"
    release = json.loads(made.release.read_text())
    assert release["archive"] == {"file": f"{name}.tar.zst", "size": made.size, "sha256": digest}
    report = verify(made.archive)
    assert not report.problems
    assert release["tar"]["sha256"] == report.tar_sha256
    assert release["list"]["sha256"] == report.list_sha256
    sealed = release["sealed_run"]
    assert sealed["schema"] == "aima/sealed-run/v1"
    assert {r["environment"] for r in sealed["runs"]} == {"empty", "hostile", "traced"}
    assert "lib/libc.so.6" in sealed["loaded"]
    assert not any(path.startswith("/") for path in sealed["loaded"])
    assert sealed["sentence"] == DEMO.sentence
    assert verify(tmp_path / "bundle" / name).problems == ()
    assert not [p for p in tmp_path.rglob(".*") if p.name.startswith((".bundle-", ".package-"))]


@pytest.mark.toolchain
def test_twice_is_the_same(programs: Any, archive: Path, tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        again = package(programs.inputs(Bundle()), tmp_path, tmp_path / "out put", QUIET, run=False)
    finally:
        os.umask(old)
    assert again.archive.read_bytes() == archive.read_bytes()
    assert json.loads(again.release.read_text())["sealed_run"] is None


@pytest.mark.toolchain
def test_a_failed_check_leaves_the_old_package(programs: Any, tmp_path: Path) -> None:
    inputs = programs.inputs(Bundle())
    dist = tmp_path / "dist"
    package(inputs, tmp_path, dist, QUIET, run=False)
    before = {p.name: p.read_bytes() for p in dist.iterdir()}
    wrong = replace(DEMO, sentence="something else")
    (programs.folder / "build-info.json").write_text('{"other": 1}\n')
    with pytest.raises(CheckFailedError, match="did not say its sentence"):
        package(inputs, tmp_path, dist, QUIET, demo=lambda: wrong)
    assert {p.name: p.read_bytes() for p in dist.iterdir()} == before


@pytest.mark.toolchain
def test_what_the_closure_gained_is_said(
    programs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = programs.inputs(Bundle())
    package(inputs, tmp_path, tmp_path / "dist", QUIET, run=False)
    (tmp_path / "bundle" / inputs.name / "lib/libdl.so.2").unlink()
    package(inputs, tmp_path, tmp_path / "dist", Reporter(), run=False)
    assert "libdl.so.2 is new since the last package" in capsys.readouterr().err


def test_an_output_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AimaError, match="cannot be written"), packaging._folder(tmp_path / "file"):
        pass


@pytest.mark.toolchain
def test_prove(archive: Path) -> None:
    record = prove(archive, DEMO, QUIET)
    assert record == prove(archive, DEMO, QUIET)
    assert set(record["loaded"]) == {"lib/libc.so.6", "lib/libdl.so.2", "libexec/aima-engine"}


@pytest.mark.toolchain
def test_every_library_must_load_with_the_real_loader(archive: Path, programs: Any, tmp_path: Path) -> None:
    root = extract(archive, tmp_path)
    assert list_all(root) == 3
    source = tmp_path / "u.c"
    source.write_text("int nobody_has_this(void); int f(void) { return nobody_has_this(); }")
    shared = [
        "-shared",
        "-fPIC",
        "-Wl,--allow-shlib-undefined",
        "-Wl,-z,undefs",
        source,
        "-o",
        root / "lib/libu.so",
    ]
    compile_c(programs, shared, tmp_path)
    with pytest.raises(CheckFailedError, match="undefined symbol: nobody_has_this"):
        list_all(root)
    (root / "lib/libu.so").unlink()
    (root / "lib/libc.so.6").unlink()
    with pytest.raises(CheckFailedError, match="cannot load a library"):
        list_all(root)


@pytest.mark.toolchain
def test_an_engine_that_opens_the_hosts_files_is_found(archive: Path, tmp_path: Path) -> None:
    """The mappings of a process show what no closure and no trace of names can hide."""
    root = extract(archive, tmp_path)
    outside = tmp_path / "outside.so"
    shutil.copy(root / "lib/libgcc_s.so.1", outside)
    done = run([str(root / "bin/aima-engine"), "doctor"], {"TOY_OPENS": str(outside)}, tmp_path)
    assert done.code == 0
    assert foreign(done.mapped, root) == [str(outside)]
    inside = run([str(root / "bin/aima-engine"), "doctor"], {"TOY_OPENS": "libgcc_s.so.1"}, tmp_path)
    assert foreign(inside.mapped, root) == []
    assert any(name.endswith("lib/libgcc_s.so.1") for name in inside.mapped)


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("int main(void) { return 1; }", "does not run"),
        ('int puts(const char*); int main(void) { puts("no json"); return 0; }', "no JSON"),
        ('int puts(const char*); int main(void) { puts("{}"); return 0; }', "no schema"),
    ],
)
def test_engines_that_do_not_hold(source: str, words: str, programs: Any, tmp_path: Path) -> None:
    (tmp_path / "e.c").write_text(source)
    compile_c(programs, [tmp_path / "e.c", "-o", tmp_path / "aima-engine.real"], tmp_path)
    inputs = replace(programs.inputs(Bundle()), engine=tmp_path / "aima-engine.real")
    with pytest.raises(CheckFailedError, match=words):
        package(inputs, tmp_path, tmp_path / "dist", QUIET)
    assert not list((tmp_path / "dist").iterdir())


def test_the_hostile_environment_is_hostile(tmp_path: Path) -> None:
    env = hostile(tmp_path)
    assert not Path(env["LD_LIBRARY_PATH"], "libc.so.6").read_bytes().startswith(b"\x7fELF")
    assert {"LD_PRELOAD", "LC_ALL", "TMPDIR", "HSA_OVERRIDE_GFX_VERSION", "ROCM_PATH"} <= set(env)
    if Path("/usr/bin/env").exists():
        # A program without a launcher is disturbed by it: else the sealed run would prove nothing.
        done = run(["/usr/bin/env"], env, tmp_path)
        assert done.code != 0 or "ld.so" in done.err


def test_foreign_mappings() -> None:
    mapped = frozenset({"/b/lib/x.so", "/bb/x.so", "[vdso]", "/usr/lib/libc.so.6", "/b/lib/../../x"})
    assert foreign(mapped, Path("/b")) == ["/bb/x.so", "/usr/lib/libc.so.6"]
    odd = frozenset({"/a\\012b/lib/x.so"})
    assert foreign(odd, Path("/a\nb")) == []
