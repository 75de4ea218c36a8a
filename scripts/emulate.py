"""Run the gfx11 code objects of a build on an emulator and compare them with numpy.

    TINYGRAD_DIR=CHECKOUT CC=clang-19 python scripts/emulate.py build/gfx1151-bf16/kernels --runner FILE
        [--library build/gfx1151-bf16/libaima-kernels-gfx1151.so] [--only TEXT] [--json FILE]

The runner is a Python file with a class `CodeObject(path)` whose `run(symbol, args, grid, block,
dynamic_lds)` executes one kernel; arguments are numpy arrays (by address) and ctypes values. Norms and
products run their first workgroup with the real tile and the whole reduction, with a ragged number of tokens;
other kernels their whole grid for a few tokens. Kernels whose argument block is filled by host code get it
from the kernels library. The exit status is 3 when one is out of tolerance.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from kernel_cases import Case, Kernel, grid_of, load_kernels, make_case, same_operation

WHOLE_GRID_TOKENS = 5
_V_NOP, _S_NOP = 0x7E000000, 0xBF800000
_SCALARS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float}


class GemmArgs(ctypes.Structure):
    """aima_gemm_args_v1 of native/include/aima/kernels_v1.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("a", "b", "e")),
        *((name, ctypes.c_int64) for name in ("m", "n", "k", "stride_a", "stride_b", "stride_e")),
    )


class TableKernel(ctypes.Structure):
    """The start of aima_kernel_v1, up to `fill`."""

    _fields_ = (
        *((name, ctypes.c_char_p) for name in ("id", "op", "template_name", "dtype", "symbol")),
        ("dims", ctypes.c_void_p),
        *((name, ctypes.c_uint32) for name in ("dim_count", "token_min", "token_max", "primary")),
        ("image", ctypes.c_void_p),
        ("image_size", ctypes.c_uint64),
        ("image_sha256", ctypes.c_uint8 * 32),
        *((name, ctypes.c_uint32) for name in ("kernarg_size", "arg_count")),
        ("args", ctypes.c_void_p),
        ("fill", ctypes.c_void_p),
    )


class Table(ctypes.Structure):
    """aima_kernels_table_v1."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("magic", "struct_size", "kernel_size", "kernel_count")),
        *((name, ctypes.c_char_p) for name in ("target", "build")),
        ("kernels", ctypes.c_void_p),
    )


def fill_functions(library: Path) -> dict[str, Any]:
    """Kernel id -> the host function that fills its arguments, from the table of a kernels library."""
    table = Table.in_dll(ctypes.CDLL(str(library.resolve())), "aima_kernels_v1")
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint32)
    )
    found = {}
    for i in range(table.kernel_count):
        kernel = TableKernel.from_address(table.kernels + i * table.kernel_size)
        if kernel.fill:
            found[kernel.id.decode()] = prototype(kernel.fill)
    return found


def filled(case: Case, fill: Any) -> list[Any]:
    """The argument block as one by-value struct."""
    a, b, e = (case.arrays[name] for name in ("a", "b", "e"))
    m, n, k = case.tokens, case.kernel.dim("n"), b.shape[1]
    args = GemmArgs(a.ctypes.data, b.ctypes.data, e.ctypes.data, m, n, k, a.shape[1], k, e.shape[1])
    size = case.kernel.record["kernarg_size"]
    block, grid = (ctypes.c_char * size)(), (ctypes.c_uint32 * 3)()
    status = fill(ctypes.byref(args), block, size, grid)
    if status:
        raise SystemExit(f"{case.kernel.id}: fill refuses the arguments ({status})")
    return [block]


def plain(case: Case) -> list[Any]:
    """Arguments in the order of the record, the compiler's own left out."""
    return [
        case.arrays[arg["name"]]
        if arg["kind"] == "pointer"
        else _SCALARS[arg["kind"]](case.scalars[arg["name"]])
        for arg in case.kernel.record["args"]
        if arg["kind"] != "hidden"
    ]


def first_block(kernel: Kernel) -> tuple[int, int] | None:
    """(rows, columns) that the first workgroup of a norm or product computes; None: run the whole grid."""
    tile, dims = kernel.spec["tile"], kernel.spec["dims"]
    if kernel.spec["op"] not in {"rms_norm", "gemm"}:
        return None
    return tile.get("block_m") or tile["rows"], tile.get("block_n") or dims["n"]


def check(kernel: Kernel, runner: Any, fills: dict[str, Any]) -> dict[str, Any]:
    """Run the first workgroup of one kernel, or its whole grid for a few tokens, and compare."""
    block = first_block(kernel)
    rows, columns = block or (WHOLE_GRID_TOKENS, None)
    tokens = min(max(rows - 3, 1), kernel.tokens[1])
    case = make_case(kernel, tokens, columns=columns)
    args = filled(case, fills[kernel.id]) if kernel.spec["fill"] else plain(case)
    record = kernel.record
    start = time.monotonic()
    code_object = runner.CodeObject(str(kernel.image))
    grid = (1, 1, 1) if block else grid_of(kernel, tokens)
    code_object.run(record["symbol"], args, grid, tuple(record["block"]), record["lds_bytes"])
    result = case.compare(np.arange(tokens), columns)
    return {
        "id": kernel.id,
        "tokens": tokens,
        "workgroups": list(grid),
        "columns": columns,
        "max_abs": result.absolute,
        "max_rel": result.relative,
        "of_tolerance": result.ratio,
        "wrote_outside": result.touched,
        "ok": result.ok,
        "seconds": round(time.monotonic() - start, 1),
        "first_row": case.bits(1, 32 if columns is None else min(columns, 32)).hex(),
    }


def extend_emulator() -> None:
    """Teach tinygrad's emulator what Triton's code for gfx11 uses and it lacks (RDNA3 ISA): two exchanges
    within 16 lanes, DPP16 controls 0x150 + n (every lane reads lane n of its row) and 0x160 + n (every lane
    reads the lane of its number xor n), and v_nop, which runs as s_nop.
    """
    from test.mockgpu.amd import emu
    from tinygrad.dtype import dtypes

    exchange, decode, constant = emu._dpp16_ctrl, emu._decode_at, emu._c  # noqa: SLF001 - no public seam
    nop = (ctypes.c_uint32 * 4)(_S_NOP, _S_NOP, _S_NOP, _S_NOP)

    def control(lane: Any, dpp: int, row_mask: int, bank_mask: int, wave_size: int) -> Any:
        if not 0x150 <= dpp <= 0x16F:
            return exchange(lane, dpp, row_mask, bank_mask, wave_size)
        # What rows and banks are enabled does not depend on the control: 0x140 (mirror) is one that it knows.
        _, enabled, valid = exchange(lane, 0x140, row_mask, bank_mask, wave_size)
        number, row = constant(dpp & 15, dtypes.int), lane.cast(dtypes.int) & constant(~15, dtypes.int)
        source = row + number if dpp < 0x160 else lane.cast(dtypes.int) ^ number
        return source, enabled, valid

    def decode_at(pc: int, arch: str) -> Any:
        is_nop = ctypes.c_uint32.from_address(pc).value == _V_NOP
        return decode(ctypes.addressof(nop) if is_nop else pc, arch)

    emu._dpp16_ctrl, emu._decode_at = control, decode_at  # noqa: SLF001


def load_runner(path: Path) -> Any:
    """Import the runner by its path."""
    spec = importlib.util.spec_from_file_location("runner", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    extend_emulator()
    return module


def one_of_each(kernels: list[Kernel]) -> list[Kernel]:
    """One kernel for each object."""
    seen: dict[str, Kernel] = {}
    for kernel in kernels:
        seen.setdefault(kernel.spec["object"], kernel)
    return list(seen.values())


def main() -> None:
    """Check the kernels and print the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="build/RECIPE/kernels")
    parser.add_argument("--runner", type=Path, required=True, help="Python file with CodeObject")
    parser.add_argument("--library", type=Path, help="kernels library (default: beside the folder)")
    parser.add_argument("--only", default="", help="only kernels whose id contains this text")
    parser.add_argument("--json", type=Path, help="also write the report there")
    options = parser.parse_args()
    if "TINYGRAD_DIR" not in os.environ:
        raise SystemExit("TINYGRAD_DIR names no checkout of the emulator")
    kernels = [k for k in one_of_each(load_kernels(options.folder)) if options.only in k.id]
    fills: dict[str, Any] = {}
    if any(kernel.spec["fill"] for kernel in kernels):
        libraries = sorted(options.folder.parent.glob("libaima-kernels-gfx11*.so"))
        if not (options.library or libraries):
            raise SystemExit("no kernels library: build the recipe, or give --library")
        fills = fill_functions(options.library or libraries[0])
    runner = load_runner(options.runner)
    rows = []
    for kernel in kernels:
        row = check(kernel, runner, fills)
        rows.append(row)
        said = "WROTE OUTSIDE" if row["wrote_outside"] else "ok" if row["ok"] else "OUT OF TOLERANCE"
        print(
            f"{row['id']:58} {row['tokens']:4} x {row['columns'] or 'all':<4} max abs {row['max_abs']:.3g}"
            f" rel {row['max_rel']:.3g} of tolerance {row['of_tolerance']:.3f}  {row['seconds']} s  {said}",
            flush=True,
        )
    ok = all(row["ok"] for row in rows)
    first = {row["id"]: row["first_row"] for row in rows}
    for group in same_operation(kernels):
        same = len({first[kernel.id] for kernel in group}) == 1
        ok = ok and same
        print(f"{'same bits' if same else 'DIFFERENT BITS'} in {len(group)} tile variants: {group[0].id} ...")
    if options.json:
        report = {"schema": "aimabuild/emulate/v1", "ok": ok, "kernels": rows}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if ok else 3)


if __name__ == "__main__":
    main()
