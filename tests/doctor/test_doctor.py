"""doctor on hosts and in bundles that are made up: every answer of the GPU's chain, and exit codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from enginetool import ROOT, find_engine, run_engine

from aimabuild.base.reporter import Reporter
from aimabuild.toolchain import Toolchain, open_toolchain

pytestmark = pytest.mark.toolchain

HERE = Path(__file__).parent
Compile = Callable[..., Path]


@pytest.fixture(scope="session")
def tools() -> Toolchain:
    """The compiler."""
    return open_toolchain(ROOT, reporter=Reporter(quiet=True), parts=["ziglang"])


@pytest.fixture
def compile_library(tools: Toolchain, tmp_path: Path) -> Compile:
    """Make a shared object from a C file of this folder and macros."""

    def make(source: str, out: Path, *macros: str) -> Path:
        out.parent.mkdir(parents=True, exist_ok=True)
        cache = {"ZIG_GLOBAL_CACHE_DIR": str(tools.zig_cache), "ZIG_LOCAL_CACHE_DIR": str(tmp_path / "zig")}
        command = [tools.zig, "cc", "-target", "x86_64-linux-gnu.2.28", "-shared", "-fPIC", "-O1", "-Werror"]
        command += ["-I", ROOT / "native/include", *(f"-D{macro}" for macro in macros)]
        subprocess.run([*command, HERE / source, "-o", out], check=True, env=cache)
        return out

    return make


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A machine with a Radeon 8060S, as files."""
    root = tmp_path / "host"
    files = {
        "proc/meminfo": "MemTotal: 131072000 kB\nMemAvailable: 120000000 kB\n",
        "proc/sys/kernel/osrelease": "6.18.9\n",
        "dev/kfd": "",
        "dev/dri/renderD128": "",
        "sys/class/drm/renderD128/device/vendor": "0x1002\n",
        "sys/class/drm/card0/device/vendor": "0x1002\n",
        "sys/class/drm/card0/device/mem_info_gtt_total": "103079215104\n",
        "sys/class/drm/card0/device/mem_info_vram_total": "536870912\n",
        "sys/class/kfd/kfd/topology/nodes/1/properties": "simd_count 80\ngfx_target_version 110501\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The engine in a bundle without a loader of its own; it is the engine that tests run from here on."""
    root = tmp_path / "a bundle"
    (root / "libexec").mkdir(parents=True)
    (root / "share/aima").mkdir(parents=True)
    (root / "share/aima/manifest.json").write_text("{}")
    shutil.copy(find_engine(), root / "libexec/aima-engine.real")
    monkeypatch.setenv("AIMA_ENGINE", str(root / "libexec/aima-engine.real"))
    return root


def doctor(*options: str | Path, code: int = 0) -> dict[str, Any]:
    """The report; `checks` by name."""
    done = run_engine("doctor", "--json", *options)
    assert done.returncode == code, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["schema"] == "aima/doctor/v1"
    assert report["ok"] == all(check["status"] != "fail" for check in report["checks"])
    report["checks"] = {check["name"]: check for check in report["checks"]}
    return report


def test_everything_is_there(compile_library: Compile, host: Path, bundle: Path) -> None:
    compile_library("fake_hip.c", bundle / "lib/libamdhip64.so.7", "DEVICES=1", "ERROR=0")
    compile_library("fake_kernels.c", bundle / "lib/libaima-kernels-gfx1151.so")
    report = doctor("--sysroot", host, "--require-gpu")
    assert report["devices"] == {"cpu": True, "gpu": True}
    last = run_engine("doctor", "--sysroot", host).stdout.splitlines()[-1]
    assert last == "The CPU can be used; the GPU is ready, but this version computes on the CPU only."
    checks = report["checks"]
    assert checks["bundle"]["actual"] == str(bundle)
    assert checks["hip-runtime"]["actual"] == "HIP 7.2.53211: 1 device"
    assert checks["hip-runtime"]["details"]["library"] == str(bundle / "lib/libamdhip64.so.7")
    assert checks["gpu"]["expected"].startswith("gfx1151")
    table = checks["kernels"]["details"]
    assert [(k["id"], k["op"], k["template"], k["tokens"], k["kernarg_bytes"]) for k in table["kernels"]] == [
        ("one", "gemm", "triton/gemm", [1, 64], 64),
        ("two", "rms_norm", "triton/rms_norm", [1, 8192], 40),
    ]


@pytest.mark.parametrize(
    ("macros", "text"),
    [
        (["DEVICES=0", "ERROR=100"], "HIP 7.2.53211: error 100 (hipErrorFake, a made-up error)"),
        (["DEVICES=0", "ERROR=0"], "HIP 7.2.53211: 0 devices"),
        (["DEVICES=1", "ERROR=0", "CRASH"], "libamdhip64.so.7: the process died: Segmentation fault"),
        (["DEVICES=1", "ERROR=0", "INCOMPLETE"], "cannot be opened: "),
    ],
)
def test_hip_answers(
    compile_library: Compile, host: Path, bundle: Path, macros: list[str], text: str
) -> None:
    compile_library("fake_hip.c", bundle / "lib/libamdhip64.so.7", *macros)
    compile_library("fake_kernels.c", bundle / "lib/libaima-kernels-gfx1151.so")
    report = doctor("--sysroot", host)
    assert report["checks"]["hip-runtime"]["status"] == "warn"
    assert report["checks"]["hip-runtime"]["actual"].startswith(text)
    assert report["devices"] == {"cpu": True, "gpu": False}
    report = doctor("--sysroot", host, "--require-gpu", code=3)
    assert report["checks"]["hip-runtime"]["status"] == "fail"


@pytest.mark.parametrize(
    ("macros", "text"),
    [
        (["MAGIC=7"], "another magic number"),
        (["KERNEL_SIZE=8"], "entries of 8 bytes, this engine expects"),
        (["NO_IMAGE"], "kernel two has no code object"),
        (["aima_kernels_v1=other_v1"], "exports no aima_kernels_v1"),
    ],
)
def test_kernels_that_cannot_be_used(
    compile_library: Compile, tmp_path: Path, macros: list[str], text: str
) -> None:
    library = compile_library("fake_kernels.c", tmp_path / "libaima-kernels-x.so", *macros)
    check = doctor("--kernels", library)["checks"]["kernels"]
    assert check["status"] == "warn"
    assert text in check["actual"]
    assert doctor("--kernels", library, "--require-gpu", code=3)["checks"]["kernels"]["status"] == "fail"


def test_a_library_cut_short(compile_library: Compile, tmp_path: Path) -> None:
    library = compile_library("fake_kernels.c", tmp_path / "libaima-kernels-x.so")
    whole = library.read_bytes()
    for size in (0, 64, 800):
        library.write_bytes(whole[:size])
        assert doctor("--kernels", library)["checks"]["kernels"]["status"] == "warn"


@pytest.mark.parametrize("folder", ["a$ORIGIN b", "${LIB}", "$ORIGIN/$x:y"])
def test_a_path_with_what_the_dynamic_loader_expands(
    compile_library: Compile,
    host: Path,
    tmp_path: Path,
    bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
) -> None:
    library = compile_library("fake_kernels.c", tmp_path / folder / "libaima-kernels-x.so")
    check = doctor("--kernels", library)["checks"]["kernels"]
    assert ": 2 kernels for " in check["actual"]
    assert check["details"]["library"] == str(library)
    named = library.rename(library.with_name("lib$ORIGIN.so"))
    assert ": 2 kernels for " in doctor("--kernels", named)["checks"]["kernels"]["actual"]
    compile_library("fake_hip.c", bundle / "lib/libamdhip64.so.7", "DEVICES=1", "ERROR=0")
    moved = bundle.rename(tmp_path / folder / "bundle")
    monkeypatch.setenv("AIMA_ENGINE", str(moved / "libexec/aima-engine.real"))
    check = doctor("--sysroot", host)["checks"]["hip-runtime"]
    assert check["actual"] == "HIP 7.2.53211: 1 device"
    assert not any("libamdhip64" in name for name in check["details"]["outside"])


def test_a_library_is_named_from_the_current_folder(
    compile_library: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_library("fake_kernels.c", tmp_path / "libaima-kernels-x.so")
    monkeypatch.chdir(tmp_path)
    assert ": 2 kernels for " in doctor("--kernels", "libaima-kernels-x.so")["checks"]["kernels"]["actual"]


def test_names_that_are_not_utf8_or_hold_controls(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/caf\xe9\x1b[2J\n.so"
    done = subprocess.run(
        [find_engine(), "doctor", "--json", "--kernels", odd], capture_output=True, check=False
    )
    report = json.loads(done.stdout.decode("utf-8"))
    check = next(check for check in report["checks"] if check["name"] == "kernels")
    assert check["details"]["library"] == f"{tmp_path}/caf\ufffd\x1b[2J\n.so"
    shown = subprocess.run(
        [find_engine(), "doctor", "--kernels", odd], capture_output=True, check=False
    ).stdout
    assert b"caf\xe9\\x1b[2J\\x0a.so" in shown


def test_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    monkeypatch.setenv("AIMA_DROPPED_ENV", "LD_PRELOAD")
    checks = doctor()["checks"]
    assert checks["cpu"]["details"]["processors"] == len(os.sched_getaffinity(0))
    assert 1 <= checks["cpu"]["details"]["cores"] <= len(os.sched_getaffinity(0))
    assert checks["cpu"]["details"]["isa"][-1] == "sse2"
    assert checks["tmpdir"]["status"] == "warn"
    assert checks["environment"]["details"]["dropped"] == ["LD_PRELOAD"]
    assert "HIP_VISIBLE_DEVICES=" in checks["environment"]["actual"]
    lines = run_engine("doctor").stdout.splitlines()
    assert [line[:4].strip() in ("ok", "warn", "fail", "skip", "") for line in lines[:-2]] == [True] * (
        len(lines) - 2
    )
    assert lines[-1].startswith("The CPU can be used; the GPU ")
