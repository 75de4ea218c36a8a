"""Triton ahead of time: the same bytes anywhere, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.compile import triton_aot
from aimabuild.compile.isa import mnemonics, objdump_text
from aimabuild.compile.spec import read_spec
from aimabuild.plan import PlannedObject
from aimabuild.render import kernel_spec, render_object, spec_bytes
from aimabuild.toolchain import Toolchain

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "templates"))
from interpreter import planned

GEMM = ("triton/gemm", {"n": 64, "k": 64}, {"block_m": 16, "block_n": 64, "num_warps": 4})
NORM = ("triton/rms_norm", {"n": 128}, {"num_warps": 1})

pytestmark = pytest.mark.toolchain


def rendered(folder: Path, kind: tuple[Any, ...], *, target: str = "gfx1151", **changes: Any) -> Path:
    """A kernel's folder with source and spec; `changes` replace keys of the spec. Returns the spec's path."""
    template, dims, tile = kind
    dtype = "bf16" if template == "triton/gemm" else "f32"
    item = planned(folder / "project", template, dims, tile, dtype=dtype, out="bf16", target=target)
    home = folder / item.id
    home.mkdir(parents=True)
    for name, text in render_object(item).items():
        (home / name).write_text(text)
    value = json.loads(spec_bytes(_spec(item, dims)))
    (home / "spec.json").write_text(json.dumps({**value, **changes}))
    return home / "spec.json"


def _spec(item: PlannedObject, dims: dict[str, int]) -> dict[str, Any]:
    from aimabuild.plan import PlannedKernel
    from aimabuild.schema.document import Location

    place = Location("shapes/one.yaml", 1, 1)
    kernel = PlannedKernel(
        *(item.id, item.id, item.id, item.template.op, item.template.name, dims, item.dtype, item.out),
        *((1, 8192), True, None, place),
    )
    return kernel_spec(kernel, item)


def compiled(path: Path, tools: Toolchain, **options: Any) -> triton_aot.Compiled:
    return triton_aot.compile_triton(read_spec(path), tools.triton_site, tools.llvm_objdump(), **options)


def test_the_same_bytes_from_two_folders(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compiled(rendered(tmp_path / "a", GEMM), toolchain)
    # Another folder, another copy of Triton, another home and another environment.
    site = tmp_path / "a much longer path" / "site"
    shutil.copytree(toolchain.triton_site, site, symlinks=True, copy_function=_link)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setenv("AMDGCN_USE_BUFFER_OPS", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    path = rendered(tmp_path / "somewhere else" / "deeper", GEMM)
    second = triton_aot.compile_triton(read_spec(path), site, toolchain.llvm_objdump())
    assert first.image == second.image
    assert first.record == second.record
    assert not (tmp_path / "cache").exists()


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def test_gemm_for_gfx1151_uses_the_matrix_units_and_no_scratch(tmp_path: Path, toolchain: Toolchain) -> None:
    record = compiled(rendered(tmp_path, GEMM), toolchain).record
    resources = record.resources
    assert resources.wmma >= 4
    assert resources.wmma_shape == "f32_16x16x16_bf16"
    assert (resources.vgpr_spills, resources.sgpr_spills, resources.scratch) == (0, 0, 0)
    assert [arg.name for arg in record.args] == [
        *("a", "b", "e", "tokens", "stride_a", "stride_e", "hidden0", "hidden1"),
    ]
    assert record.kernarg_size == 56
    assert record.lds_bytes == resources.lds_dynamic > 0
    assert record.compiler.startswith("triton ")


def test_fusing_and_buffer_instructions_are_off_unless_asked_for(
    tmp_path: Path, toolchain: Toolchain
) -> None:
    """What fuses would depend on the tile; buffer instructions are miscompiled for gfx1151."""

    def names(label: str, **options: int) -> set[str]:
        path = rendered(tmp_path / label, NORM, options={"num_warps": 1, "num_stages": 1, **options})
        image = path.with_name("kernel.co")
        image.write_bytes(compiled(path, toolchain).image)
        return set(mnemonics(objdump_text(toolchain.llvm_objdump(), image)))

    # Square root and division use v_fma and v_fmac; these two come from the template's own sums and products.
    fused = {"s_fmac_f32", "v_dual_fmac_f32"}
    buffers = {"buffer_load_b64", "buffer_load_b128"}
    plain = names("plain")
    assert plain.isdisjoint(fused | buffers)
    assert not names("fused", fp_fusion=1).isdisjoint(fused)
    assert not names("buffers", buffer_ops=1).isdisjoint(buffers)


def test_a_cubin_for_sm_90_has_the_same_arguments(tmp_path: Path, toolchain: Toolchain) -> None:
    record = compiled(rendered(tmp_path, GEMM, target="sm_90"), toolchain).record
    assert [(arg.name, arg.offset) for arg in record.args[:6]] == [
        *(("a", 0), ("b", 8), ("e", 16), ("tokens", 24), ("stride_a", 28), ("stride_e", 32)),
    ]
    assert record.resources.wmma >= 1
    assert (record.resources.wmma_shape or "").startswith(("HMMA", "HGMMA"))
    assert record.resources.vgpr > 16


def test_a_symbol_that_the_source_lacks(tmp_path: Path, toolchain: Toolchain) -> None:
    with pytest.raises(AimaError, match="the source defines no function `aima_other`"):
        compiled(rendered(tmp_path, NORM, symbol="aima_other"), toolchain)


def test_arguments_that_the_source_does_not_take(tmp_path: Path, toolchain: Toolchain) -> None:
    path = rendered(tmp_path, NORM)
    value = json.loads(path.read_text())
    value["args"][3]["name"] = "rows"
    path.write_text(json.dumps(value))
    with pytest.raises(AimaError, match=r"the source takes \(x_ptr, weight_ptr, y_ptr, tokens, eps"):
        compiled(path, toolchain)


def test_an_unknown_option_is_a_usage_error(tmp_path: Path, toolchain: Toolchain) -> None:
    with pytest.raises(UsageError, match="unknown Triton option `num_warp`"):
        compiled(rendered(tmp_path, NORM, options={"num_warp": 1}), toolchain)


def test_a_time_limit(tmp_path: Path, toolchain: Toolchain) -> None:
    with pytest.raises(AimaError, match=r"did not end within 0\.05 s"):
        compiled(rendered(tmp_path, NORM), toolchain, timeout=0.05)


def test_scratch_memory_is_refused(tmp_path: Path) -> None:
    facts = {"version": "3", "num_warps": 4, "warp_size": 32, "shared": 0}
    spec = read_spec(rendered(tmp_path, NORM))
    for kind in ("global", "profile"):
        sizes = {"global_scratch_size": 0, "profile_scratch_size": 0, f"{kind}_scratch_size": 64}
        with pytest.raises(AimaError, match=f"64 bytes of {kind} scratch memory"):
            triton_aot._made(spec, facts | sizes)


def run_step(path: Path, tools: Toolchain) -> Any:
    import shlex

    args = ["--spec", str(path), "--out", str(path.with_name("kernel.co"))]
    args += ["--record", str(path.with_name("record.json")), "--triton-site", str(tools.triton_site)]
    return CliRunner().invoke(triton_aot.command, [*args, "--objdump", shlex.join(tools.llvm_objdump())])


def test_the_step_writes_object_and_record(tmp_path: Path, toolchain: Toolchain) -> None:
    path = rendered(tmp_path, NORM)
    result = run_step(path, toolchain)
    assert result.exit_code == 0, result.exception
    record = json.loads(path.with_name("record.json").read_text())
    assert record["bytes"] == path.with_name("kernel.co").stat().st_size
    assert (record["symbol"], record["block"]) == ("aima_rms_norm_triton_n128_f32_bf16_t1", [32, 1, 1])


def test_the_bundled_runtime_knows_the_object(tmp_path: Path, toolchain: Toolchain) -> None:
    """Triton writes a target name of its own into the notes; the runtime goes by the ELF header."""
    path = rendered(tmp_path, NORM)
    image, probe = path.with_name("kernel.co"), tmp_path / "probe"
    image.write_bytes(compiled(path, toolchain).image)
    env = {"PATH": os.defpath, "HOME": str(tmp_path), "ZIG_GLOBAL_CACHE_DIR": str(toolchain.zig_cache)}
    env["ZIG_LOCAL_CACHE_DIR"] = str(tmp_path / "zig")
    source = Path(__file__).with_name("comgr_probe.c")
    cc = [str(toolchain.zig), "cc", "-target", "x86_64-linux-gnu.2.28", "-I", str(toolchain.hip_include)]
    subprocess.run([*cc, str(source), "-o", str(probe), "-ldl"], env=env, check=True)
    loader = [str(toolchain.hip_runtime_loader), "--inhibit-cache", "--library-path"]
    command = [*loader, str(toolchain.hip_runtime_lib), str(probe), str(image)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "amdgcn-amd-amdhsa--gfx1151 aima_rms_norm_triton_n128_f32_bf16_t1\n"
