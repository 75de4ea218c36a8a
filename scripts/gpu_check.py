"""Run the NVIDIA kernels of a build on this machine's GPU and compare them with numpy.

    python scripts/gpu_check.py build/sm90-check/kernels [--json FILE] [--only TEXT]

Needs python 3.11+, numpy and libcuda.so.1 (the driver), nothing else. Each cubin is launched with the
argument block that its record.json describes, on ragged token counts across the range that it serves, with
strides wider than the rows, and once with NaN and infinity in the input. Prints the largest errors; the exit
status is 3 when a kernel is out of tolerance, writes where it must not, or computes a row's bits differently
by tile variant.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from kernel_cases import (
    CASES,
    Array,
    Case,
    Kernel,
    Result,
    grid_of,
    load_kernels,
    make_case,
    pack,
    poison,
    same_operation,
    sample_rows,
)

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PARAM_BUFFER, _PARAM_SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE
_TENSOR_LIMIT = 1 << 31  # bytes; the engine keeps every tensor below it
_GUARD = 256


class Cuda:
    """The few calls of the driver that a launch needs, each checked."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        name = ctypes.create_string_buffer(128)
        self._call("cuDeviceGetName", name, len(name), device)
        self.name = name.value.decode()
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def _call(self, function: str, *args: Any) -> None:
        status = getattr(self._lib, function)(*args)
        if status:
            text = ctypes.c_char_p()
            self._lib.cuGetErrorString(status, ctypes.byref(text))
            raise SystemExit(f"{function}: {(text.value or b'unknown error').decode()} ({status})")

    def function(self, kernel: Kernel) -> ctypes.c_void_p:
        """Load a cubin and find its kernel."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), kernel.image.read_bytes())
        symbol = kernel.record["symbol"].encode()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, symbol)
        lds = kernel.record["lds_bytes"]
        if lds:
            self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, lds)
        return function

    def upload(self, array: Array) -> ctypes.c_uint64:
        """A device copy."""
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(array.nbytes + _GUARD))
        self._call(
            "cuMemcpyHtoD_v2", pointer, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        )
        return pointer

    def download(self, array: Array, pointer: ctypes.c_uint64) -> None:
        """Overwrite a host array with the device's copy."""
        size = ctypes.c_size_t(array.nbytes)
        self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), pointer, size)

    def free(self, pointer: ctypes.c_uint64) -> None:
        """Give device memory back."""
        self._call("cuMemFree_v2", pointer)

    def launch(
        self, function: ctypes.c_void_p, kernel: Kernel, grid: tuple[int, int, int], block: bytearray
    ) -> None:
        """Launch with a packed argument block and wait."""
        size = ctypes.c_size_t(len(block))
        buffer = (ctypes.c_char * len(block)).from_buffer(block)
        extra = (ctypes.c_void_p * 5)(
            _PARAM_BUFFER, ctypes.addressof(buffer), _PARAM_SIZE, ctypes.addressof(size), 0
        )
        lds = kernel.record["lds_bytes"]
        self._call("cuLaunchKernel", function, *grid, *kernel.record["block"], lds, None, None, extra)
        self._call("cuCtxSynchronize")


def run_case(cuda: Cuda, function: ctypes.c_void_p, case: Case) -> None:
    """Run one case; its outputs then hold what the GPU wrote."""
    pointers = {name: cuda.upload(array) for name, array in case.arrays.items()}
    values: Mapping[str, int | float] = {
        **{name: pointer.value or 0 for name, pointer in pointers.items()},
        **case.scalars,
    }
    cuda.launch(function, case.kernel, grid_of(case.kernel, case.tokens), pack(case.kernel, values))
    for name in case.outputs:
        cuda.download(case.arrays[name], pointers[name])
    for pointer in pointers.values():
        cuda.free(pointer)


def token_counts(kernel: Kernel) -> list[int]:
    """Both ends of the range, one inside each end, and an odd number between, as far as tensors allow."""
    first, last = kernel.tokens
    last = min(last, CASES[kernel.spec["op"]].most_tokens)
    if "n" in kernel.spec["dims"]:
        size = 4 if kernel.out == "f32" else 2
        last = min(last, (_TENSOR_LIMIT - 1) // (size * (kernel.dim("n") + 16)) - 4)
    middle = first + (last - first) // 3 | 1
    return sorted({t for t in (first, first + 1, middle, last - 1, last) if first <= t <= last})


def verdict(row: Mapping[str, Any]) -> str:
    """One row's result in words."""
    if row["wrote_outside"]:
        return "WROTE OUTSIDE"
    return "ok" if row["ok"] else "OUT OF TOLERANCE"


def check_kernel(cuda: Cuda, kernel: Kernel) -> dict[str, Any]:
    """All runs of one kernel, as one row of the report."""
    function = cuda.function(kernel)
    worst = Result(0, 0, 0, touched=False)
    counts = token_counts(kernel)
    for tokens in [*counts, -max(counts)]:
        case = make_case(kernel, abs(tokens))
        if tokens < 0:
            if abs(tokens) == 1 or case.poisoned is None:
                continue
            poison(case)
        run_case(cuda, function, case)
        worst = worst.worst(case.compare(sample_rows(case.tokens)))
    return {
        "id": kernel.id,
        "tokens": counts,
        "max_abs": worst.absolute,
        "max_rel": worst.relative,
        "of_tolerance": worst.ratio,
        "wrote_outside": worst.touched,
        "ok": worst.ok,
    }


def check_variants(cuda: Cuda, group: list[Kernel]) -> dict[str, Any]:
    """The first row of every tile variant, bit for bit."""
    rows = {}
    for kernel in group:
        case = make_case(kernel, kernel.tokens[0])
        run_case(cuda, cuda.function(kernel), case)
        rows[kernel.id] = case.bits(1)
    return {"ids": list(rows), "ok": len(set(rows.values())) == 1}


def main() -> None:
    """Check every kernel and print the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="build/RECIPE/kernels")
    parser.add_argument("--json", type=Path, help="also write the report there")
    parser.add_argument("--only", default="", help="only kernels whose id contains this text")
    options = parser.parse_args()
    kernels = [k for k in load_kernels(options.folder) if options.only in k.id]
    cuda = Cuda()
    print(f"{cuda.name}, numpy {np.__version__}, {len(kernels)} kernels")
    print(f"{'kernel':58} {'max abs':>10} {'max rel':>10} {'of tol.':>8}  result")
    rows = []
    for kernel in kernels:
        row = check_kernel(cuda, kernel)
        rows.append(row)
        errors = f"{row['max_abs']:10.3g} {row['max_rel']:10.3g} {row['of_tolerance']:8.3f}"
        print(f"{row['id']:58} {errors}  {verdict(row)}", flush=True)
    groups = [check_variants(cuda, group) for group in same_operation(kernels)]
    for group in groups:
        said = "same bits" if group["ok"] else "DIFFERENT BITS"
        print(f"{said} in {len(group['ids'])} tile variants: {group['ids'][0]} ...")
    ok = all(row["ok"] for row in rows) and all(group["ok"] for group in groups)
    report = {
        "schema": "aimabuild/gpu-check/v1",
        "device": cuda.name,
        "ok": ok,
        "kernels": rows,
        "variants": groups,
    }
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    print("all within tolerance" if ok else "FAILED")
    sys.exit(0 if ok else 3)


if __name__ == "__main__":
    main()
