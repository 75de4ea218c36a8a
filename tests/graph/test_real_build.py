"""aimabuild.graph with the real toolchain, on a project of one small engine and a few small kernels."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from aimabuild.base.files import sha256_file
from aimabuild.base.reporter import Reporter
from aimabuild.graph import BuildResult, build, build_plan, needed_parts, tools_of
from aimabuild.graph.info import clang_version
from aimabuild.plan import make_plan
from aimabuild.schema.project import load_project
from aimabuild.toolchain import Toolchain, open_toolchain

pytestmark = pytest.mark.toolchain
ROOT = Path(__file__).resolve().parents[2]
RECIPE = """\
schema: aimabuild/recipe/v1
name: real
summary: a small real build
target: gfx1151
shapes: [shapes/real.yaml]
math: bf16
kernels:
  serve: {rms_norm: triton/rms_norm, gemm: ck_tile/gemm}
bundle: {libc: bundled, runtime: none}
"""
SHAPES = """\
schema: aimabuild/shapes/v1
name: real
model: {hidden_size: 64}
kernels:
  - op: rms_norm
    dims: {n: hidden_size}
    dtype: f32
    out: bf16
    templates:
      triton/rms_norm:
        - {tokens: [1, 8192], tile: {num_warps: 1}}
  - op: gemm
    dims: [{n: 64, k: hidden_size}, {n: 128, k: hidden_size}]
    dtype: bf16
    templates:
      ck_tile/gemm:
        - {tokens: [1, 8192], tile: {block_m: 16, block_n: 64, warps_m: 1, warps_n: 4}}
"""
SOURCES = {
    "native/src/cli/main.cpp": """\
#include <cstdio>
#include <boost/json.hpp>
#include "base/build_info.h"
int sum_avx2(int);
int sum_avx512bf16(int);
int main(int argc, char**) {
  const auto& info = aima::base::build_info();
  boost::json::value value = {{"commit", info.commit}, {"kernels", info.kernel_count}, {"file", __FILE__}};
  std::printf("%s\\n", boost::json::serialize(value).c_str());
  return argc > 5 ? sum_avx2(argc) + sum_avx512bf16(argc) : 0;
}
""",
    "native/src/base/boost_json.cpp": "#include <boost/json/src.hpp>\n",
    "native/src/base/sum_avx2.cpp": "#include <immintrin.h>\nint sum_avx2(int);\nint sum_avx2(int x) {\n"
    "  return _mm256_extract_epi32(_mm256_set1_epi32(x), 3);\n}\n",
    "native/src/base/sum_avx512bf16.cpp": "#include <immintrin.h>\nint sum_avx512bf16(int);\n"
    "int sum_avx512bf16(int x) {\n  __m512 v = _mm512_set1_ps(static_cast<float>(x));\n"
    "  __m512bh b = _mm512_cvtne2ps_pbh(v, v);\n"
    "  return static_cast<int>(_mm512_reduce_add_ps(_mm512_dpbf16_ps(v, b, b)));\n}\n",
    "native/launcher/main.c": "#include <stdio.h>\nint main(void) { puts(__FILE__); return 0; }\n",
    "recipes/real.yaml": RECIPE,
    "shapes/real.yaml": SHAPES,
}


def create(root: Path) -> Path:
    """A project at `root` with the repository's templates and lock; returns its recipe."""
    shutil.copytree(ROOT / "templates", root / "templates")
    shutil.copytree(ROOT / "native/include", root / "native/include")
    for name, text in SOURCES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copy(ROOT / "native/src/base/build_info.h", root / "native/src/base/build_info.h")
    shutil.copy(ROOT / "aimabuild.lock", root / "aimabuild.lock")
    return root / "recipes/real.yaml"


@pytest.fixture(scope="module")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    recipe = create(tmp_path_factory.mktemp("parts") / "p")
    project = load_project(recipe)
    parts = needed_parts(make_plan(project.recipe, project.shapes, project.templates))
    return open_toolchain(ROOT, reporter=Reporter(quiet=True), parts=parts)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> BuildResult:
    recipe = create(tmp_path_factory.mktemp("first") / "a project")
    return build(recipe, recipe.parent.parent, toolchain, Reporter(quiet=True))


def test_engine_and_launcher_run(built: BuildResult) -> None:
    done = subprocess.run([built.engine], check=True, capture_output=True, text=True, env={})
    assert json.loads(done.stdout) == {"commit": "unknown", "kernels": 3, "file": "native/src/cli/main.cpp"}
    assert built.launcher is not None
    done = subprocess.run([built.launcher], check=True, capture_output=True, text=True, env={})
    assert done.stdout == "native/launcher/main.c\n"


def test_what_the_programs_need_and_export(built: BuildResult) -> None:
    assert built.launcher is not None
    assert built.kernels_library is not None
    needed: dict[str, list[str]] = {}
    exported: dict[str, list[str]] = {}
    for path in (built.engine, built.launcher, built.kernels_library):
        with path.open("rb") as file:
            elf = ELFFile(file)
            dynamic = elf.get_section_by_name(".dynamic")
            tags = list(dynamic.iter_tags()) if dynamic else []
            needed[path.name] = [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]
            symbols = elf.get_section_by_name(".dynsym")
            exported[path.name] = [
                symbol.name
                for symbol in (symbols.iter_symbols() if symbols else ())
                if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] == "STB_GLOBAL"
            ]
            assert not [section.name for section in elf.iter_sections() if section.name.startswith(".debug")]
    assert needed["aima-engine"] == []
    of_libc = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}
    assert set(needed["aima-engine.real"]) <= of_libc
    assert set(needed[built.kernels_library.name]) <= {"libc.so.6"}
    assert exported[built.kernels_library.name] == ["aima_kernels_v1"]
    assert [name for name in exported["aima-engine.real"] if not name.startswith("aima_")] == []


def test_the_table_shares_objects(built: BuildResult) -> None:
    assert built.kernels_json is not None
    table = json.loads(built.kernels_json.read_text())
    info = json.loads(built.build_info.read_text())
    assert table["build"] == info["kernels_digest"]
    objects = {kernel["object"] for kernel in table["kernels"]}
    assert (len(table["kernels"]), len(objects), len(built.records)) == (3, 2, 2)


def test_a_warm_build_is_quick_and_does_nothing(built: BuildResult, toolchain: Toolchain) -> None:
    root = built.folder.parent.parent
    start = time.process_time()
    project = load_project(root / "recipes/real.yaml", root)
    plan = make_plan(project.recipe, project.shapes, project.templates)
    again = build_plan(project, plan, tools_of(toolchain, root, plan), Reporter(quiet=True))
    assert again.ran == 0
    assert (
        time.process_time() - start < 1.0
    )  # seconds of processor time: other work on the machine does not count


def test_another_folder_gives_the_same_bytes(
    built: BuildResult, toolchain: Toolchain, tmp_path: Path
) -> None:
    recipe = create(tmp_path / "elsewhere")
    other = build(recipe, recipe.parent.parent, toolchain, Reporter(quiet=True))
    for first, second in (
        (built.engine, other.engine),
        (built.launcher, other.launcher),
        (built.kernels_library, other.kernels_library),
        (built.kernels_json, other.kernels_json),
        (built.build_info, other.build_info),
    ):
        assert first is not None
        assert second is not None
        assert sha256_file(first) == sha256_file(second), first.name
        data = first.read_bytes()
        for folder in (built.folder.parent.parent, toolchain.zig.parent, Path.home() / ".cache"):
            assert str(folder).encode() not in data, (first.name, folder)


def test_the_compiler_says_its_version(toolchain: Toolchain, tmp_path: Path, built: BuildResult) -> None:
    tools = tools_of(toolchain, ROOT, built.plan)
    version = clang_version(tools, tmp_path / "compiler.txt")
    assert version.split(".")[0] == "22"
    assert json.loads(built.build_info.read_text())["compiler"].startswith(f"clang {version} (ziglang ")
