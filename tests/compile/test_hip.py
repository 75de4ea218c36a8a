"""HIP ahead of time: a CK-Tile kernel with its host code, and what is refused."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aimabuild.base.errors import AimaError
from aimabuild.compile.hip import compile_hip
from aimabuild.compile.hip_host import compile_host, undefined_symbols
from aimabuild.compile.hip_tools import HipTools, depfile, read_dependencies
from aimabuild.compile.record import Record
from aimabuild.compile.spec import read_spec
from aimabuild.render import render_object, spec_bytes
from aimabuild.toolchain import Toolchain

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "templates"))
from interpreter import planned
from made import spec_json

ROOT = Path(__file__).resolve().parents[2]
SIMPLE = """\
#include <hip/hip_runtime.h>
extern "C" __global__ __launch_bounds__(64) void aima_simple(const float* x, float* y, int tokens, float f) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < tokens) y[i] = x[i] * f;
}
"""
SIMPLE_ARGS = [
    {"name": "x", "kind": "pointer", "dtype": "f32"},
    {"name": "y", "kind": "pointer", "dtype": "f32"},
    {"name": "tokens", "kind": "i32"},
    {"name": "factor", "kind": "f32"},
]


def hip_tools(tools: Toolchain) -> HipTools:
    return HipTools(
        *(tools.zig, tools.zig_cache, tools.clang_resource_dir, tools.hip_root),
        *(tools.hip_include, tools.hip_device_lib, tools.ck_include),
    )


def simple(folder: Path, source: str = SIMPLE, **changes: Any) -> Path:
    """A small kernel's folder; returns its spec."""
    folder.mkdir(parents=True)
    (folder / "kernel.hip").write_text(source)
    facts = {"compiler": "hip", "source": "kernel.hip", "symbol": "aima_simple", "args": SIMPLE_ARGS}
    value = spec_json(**{**facts, "options": {"threads": 64}, **changes})
    (folder / "spec.json").write_text(json.dumps(value))
    return folder / "spec.json"


def compiled(path: Path, tools: Toolchain) -> Any:
    return compile_hip(read_spec(path), hip_tools(tools), tools.llvm_objdump())


@pytest.mark.toolchain
def test_the_same_bytes_from_two_folders(tmp_path: Path, toolchain: Toolchain) -> None:
    first = compiled(simple(tmp_path / "a"), toolchain)
    second = compiled(simple(tmp_path / "a longer path" / "b"), toolchain)
    assert first.image == second.image
    assert first.record == second.record
    assert first.record.compiler.startswith("clang 22.")
    assert [arg.offset for arg in first.record.args] == [0, 8, 16, 20]


@pytest.mark.toolchain
def test_dependencies_name_source_and_headers(tmp_path: Path, toolchain: Toolchain) -> None:
    path = simple(tmp_path / "a")
    found = compiled(path, toolchain).dependencies
    assert str(path.with_name("kernel.hip")) in found
    assert str(toolchain.hip_include / "hip/hip_runtime.h") in found
    allowed = [toolchain.zig.parent, toolchain.clang_resource_dir, toolchain.hip_root, tmp_path]
    outside = [name for name in found if not any(Path(name).is_relative_to(folder) for folder in allowed)]
    assert outside == []  # no header of this machine


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("source", "changes", "said"),
    [
        (SIMPLE.replace("x[i] * f", "x[i] * f +"), {}, "the device code cannot be compiled"),
        (SIMPLE, {"symbol": "aima_other"}, "`aima_other` is not in the code object"),
        (
            SIMPLE.replace("blockIdx.x * 64", "blockIdx.x * blockDim.x + gridDim.y"),
            {},
            "reads implicit arguments",
        ),
        (SIMPLE, {"args": SIMPLE_ARGS[:3]}, "takes 4 arguments, the spec names 3"),
        (SIMPLE, {"options": {"threads": 128}}, "is for 64 threads a workgroup, 128 were asked for"),
        (
            SIMPLE.replace("= x[i]", "= *__FILE__ + x[i]").replace("y[i] =", "printf(__FILE__); y[i] ="),
            {},
            "implicit",
        ),
    ],
)
def test_what_is_refused(
    tmp_path: Path, toolchain: Toolchain, source: str, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(AimaError, match=said):
        compiled(simple(tmp_path / "a", source, **changes), toolchain)


@pytest.mark.toolchain
def test_a_build_path_inside_the_object_is_refused(tmp_path: Path, toolchain: Toolchain) -> None:
    text = "#include <hip/hip_runtime.h>\n__device__ const char aima_where[] = __FILE__;\n"
    source = SIMPLE.replace('extern "C"', text + 'extern "C"', 1).replace(
        "x[i] * f", "x[i] * f + aima_where[i & 7]"
    )
    with pytest.raises(AimaError, match="contains a path of the build"):
        compiled(simple(tmp_path / "a", source), toolchain)


@pytest.mark.toolchain
def test_host_code_that_calls_a_library_is_refused(tmp_path: Path, toolchain: Toolchain) -> None:
    source = tmp_path / "host.cpp"
    source.write_text('#include <cstdlib>\nextern "C" const char* f() { return std::getenv("A"); }\n')
    with pytest.raises(AimaError, match=r"needs a library\n  why: getenv"):
        compile_host(source, hip_tools(toolchain), [])


def test_depfiles_are_read_and_written_with_spaces() -> None:
    text = "object: /a/b\\ c.hip \\\n  /d/e.h \\\n  /d/e.h\n"
    assert read_dependencies(text) == ("/a/b c.hip", "/d/e.h", "/d/e.h")
    assert depfile("out dir/k.co", ["/a/b c.hip", "/d/e.h", "/d/e.h"]) == (
        b"out\\ dir/k.co: \\\n  /a/b\\ c.hip \\\n  /d/e.h\n"
    )


class GemmArgs(ctypes.Structure):
    """aima_gemm_args_v1."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("a", "b", "e")),
        *((name, ctypes.c_int64) for name in ("m", "n", "k", "stride_a", "stride_b", "stride_e")),
    )


@dataclass(frozen=True)
class CkGemm:
    """A compiled CK-Tile GEMM: record, host object, and the fill function loaded from it."""

    record: Record
    host: bytes
    fill: Any


@pytest.fixture(scope="module")
def ck_gemm(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> CkGemm:
    """Compiled once: 16 x 64 x 32, four waves (about a minute on one core)."""
    folder = tmp_path_factory.mktemp("ck")
    tile = {"block_m": 16, "block_n": 64, "warps_m": 1, "warps_n": 4}
    item = planned(folder / "project", "ck_tile/gemm", {"n": 128, "k": 64}, tile, dtype="bf16", out="bf16")
    for name, text in render_object(item).items():
        (folder / name).write_text(text)
    from aimabuild.render import object_spec

    (folder / "spec.json").write_bytes(spec_bytes(object_spec(item)))
    made = compiled(folder / "spec.json", toolchain)
    host, _ = compile_host(folder / "host.cpp", hip_tools(toolchain), [ROOT / "native/include"])
    (folder / "host.o").write_bytes(host)
    # Hidden in the object, as in the real library: a wrapper hands it out.
    (folder / "wrap.c").write_text(
        f"int {item.fill_symbol}(const void *, void *, unsigned long, unsigned *);\n"
        "int fill(const void *a, void *k, unsigned long n, unsigned *g)"
        f" {{ return {item.fill_symbol}(a, k, n, g); }}\n"
    )
    env = {"PATH": os.defpath, "HOME": str(folder), "ZIG_GLOBAL_CACHE_DIR": str(toolchain.zig_cache)}
    env["ZIG_LOCAL_CACHE_DIR"] = str(folder / "zig")
    command = [
        *(str(toolchain.zig), "cc", "-target", "x86_64-linux-gnu.2.28", "-shared", "-fPIC"),
        *("-Wl,--no-undefined", "-o", "fill.so", "host.o", "wrap.c"),
    ]
    subprocess.run(command, cwd=folder, env=env, check=True)
    return CkGemm(made.record, host, ctypes.CDLL(str(folder / "fill.so")).fill)


@pytest.mark.toolchain
def test_ck_tile_gemm_uses_the_matrix_units(ck_gemm: CkGemm) -> None:
    resources = ck_gemm.record.resources
    assert resources.wmma == 4
    assert resources.wmma_shape == "f32_16x16x16_bf16"
    assert (resources.vgpr_spills, resources.sgpr_spills, resources.scratch) == (0, 0, 0)
    assert (ck_gemm.record.kernarg_size, ck_gemm.record.block) == (64, (128, 1, 1))


@pytest.mark.toolchain
def test_host_code_needs_nothing_of_hip(ck_gemm: CkGemm) -> None:
    assert undefined_symbols(ck_gemm.host) <= {"memcpy", "memset", "memmove"}
    assert b".hip_fatbin" not in ck_gemm.host
    assert b"__hipRegister" not in ck_gemm.host


def call(ck_gemm: CkGemm, capacity: int = 64, **changes: int) -> tuple[int, bytes, list[int]]:
    facts = {"a": 0x1000, "b": 0x2000, "e": 0x3000, "m": 33, "n": 128, "k": 64}
    facts |= {"stride_a": 72, "stride_b": 64, "stride_e": 136}
    args, block, grid = GemmArgs(**(facts | changes)), (ctypes.c_char * 64)(), (ctypes.c_uint32 * 3)()
    status = ck_gemm.fill(ctypes.byref(args), block, ctypes.c_size_t(capacity), grid)
    return status, bytes(block), list(grid)


@pytest.mark.toolchain
def test_fill_writes_the_layout_that_ck_tile_reads(ck_gemm: CkGemm) -> None:
    status, block, grid = call(ck_gemm)
    assert status == 0
    assert grid == [3 * 2, 1, 1]
    a, b, _, e, m, n, k, stride_a, stride_b, _, stride_e, k_batch = struct.unpack("<4Q8i", block)
    assert (a, b, e) == (0x1000, 0x2000, 0x3000)
    assert (m, n, k, stride_a, stride_b, stride_e, k_batch) == (33, 128, 64, 72, 64, 136, 1)


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"n": 96}, -1),
        ({"k": 48}, -1),
        ({"n": 0}, -1),
        ({"m": 0}, -2),
        ({"m": -1}, -2),
        ({"stride_a": 60}, -2),
        ({"stride_a": 68}, -2),
        ({"stride_e": 120}, -2),
        ({"m": 1 << 40}, -2),
        ({"m": 1 << 24, "stride_a": 64}, -2),
        ({"a": 0x1008}, -3),
        ({"b": 0}, -3),
        ({"capacity": 63}, -4),
    ],
)
def test_fill_refuses_what_the_kernel_cannot_take(
    ck_gemm: CkGemm, changes: dict[str, int], status: int
) -> None:
    assert call(ck_gemm, **changes)[0] == status
