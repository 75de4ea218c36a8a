"""Inputs, reference results and tolerances for single kernels, from the spec.json and record.json of a build.

Used where a compiled kernel is run: on a GPU (gpu_check.py) and on an emulator (emulate.py). numpy only.

Every case has rows that the kernel must not touch: outputs are larger than needed (more rows, and more
columns where the kernel takes a stride) and filled with a pattern that is compared afterwards.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
PATTERN = {"bf16": np.uint16(0x7FA5), "f32": np.uint32(0x7FA5A5A5)}  # NaNs that no computation makes
SPARE_ROWS = 3
_STRUCT = {"pointer": "<Q", "i32": "<i", "i64": "<q", "f32": "<f"}
_CHUNK = 16384


@dataclass(frozen=True)
class Kernel:
    """One kernel of a build: spec and record as JSON, and the code object."""

    id: str
    spec: Mapping[str, Any]
    record: Mapping[str, Any]
    image: Path

    @property
    def tokens(self) -> tuple[int, int]:
        """The range of tokens that it serves."""
        first, last = self.spec["tokens"]
        return first, last


@dataclass(frozen=True)
class Result:
    """Largest errors of one run. `ratio`: the largest error in units of what is allowed; above 1 fails."""

    absolute: float
    relative: float
    ratio: float
    touched: bool

    @property
    def ok(self) -> bool:
        """Within tolerance, and nothing else was written."""
        return self.ratio <= 1 and not self.touched


def load_kernels(folder: Path) -> list[Kernel]:
    """Every kernel below a build's `kernels` folder, by id."""
    found: list[Kernel] = []
    for path in sorted(folder.glob("*/spec.json")):
        spec = json.loads(path.read_text())
        home = folder / spec["object"]
        if (home / "record.json").is_file() and (spec["grid"] or spec["dims"]):
            found.append(
                Kernel(spec["id"], spec, json.loads((home / "record.json").read_text()), home / "kernel.co")
            )
    if not found:
        raise SystemExit(f"{folder}: no compiled kernels there")
    return found


def to_bf16(values: Array) -> Array:
    """f32 -> bf16 bits (uint16), to nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def from_bf16(bits: Array) -> Array:
    """bf16 bits -> f32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def grid_of(kernel: Kernel, tokens: int) -> tuple[int, int, int]:
    """Workgroups along each axis, as the table's formula gives them."""
    sizes = []
    for axis in kernel.spec["grid"]:
        value = (tokens if axis["var"] == "tokens" else 1) * axis["mul"] + axis["add"]
        sizes.append(-(-value // axis["div"]))
    return sizes[0], sizes[1], sizes[2]


def pack(kernel: Kernel, values: Mapping[str, int | float]) -> bytearray:
    """The argument block: `values` by name at the record's offsets, hidden arguments zero."""
    block = bytearray(kernel.record["kernarg_size"])
    for arg in kernel.record["args"]:
        if arg["kind"] != "hidden":
            struct.pack_into(_STRUCT[arg["kind"]], block, arg["offset"], values[arg["name"]])
    return block


def normal(seed: int, shape: tuple[int, ...]) -> Array:
    """Normal numbers, f32; the first rows are the same for any number of rows."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@lru_cache(maxsize=2)
def weights(seed: int, shape: tuple[int, ...]) -> Array:
    """bf16 weights; the largest take seconds to make, so that the last ones are kept."""
    return to_bf16(normal(seed, shape))


class Case:
    """One run: `arrays` by argument name (bits), `scalars` by name, `output` the array that is written."""

    def __init__(
        self, kernel: Kernel, tokens: int, arrays: dict[str, Array], scalars: dict[str, int | float]
    ) -> None:
        self.kernel = kernel
        self.tokens = tokens
        self.arrays = arrays
        self.scalars = {**scalars, "tokens": tokens}
        self.input = next(name for name in ("x", "a") if name in arrays)
        self.output = next(name for name in ("y", "e") if name in arrays)
        self.width = int(kernel.spec["dims"]["n"])

    def values(self, rows: Array, columns: slice) -> Array:
        """Rows and columns of the output as f32."""
        bits = self.arrays[self.output][rows, columns]
        return from_bf16(bits) if bits.dtype == np.uint16 else bits.view(np.float32)

    def bits(self, rows: int, columns: int) -> bytes:
        """The first rows and columns of the output, as they lie in memory."""
        return np.ascontiguousarray(self.arrays[self.output][:rows, :columns]).tobytes()

    def touched(self, columns: int) -> bool:
        """True when a row past the last, or a column past the last, was written."""
        out = self.arrays[self.output]
        pattern = PATTERN[self.kernel.spec["out"]]
        outside = [out[self.tokens :, :], out[: self.tokens, max(columns, 0) :]]
        return any(bool((part != pattern).any()) for part in outside)

    def reference(self, rows: Array, columns: slice) -> tuple[Array, Array]:
        """(f64 result, allowed absolute error) of some rows and columns."""
        raise NotImplementedError

    def compare(self, rows: Array, columns: int | None = None) -> Result:
        """Compare rows of the output, all columns or the first ones, with the reference."""
        end = self.width if columns is None else columns
        worst = [0.0, 0.0, 0.0]
        for start in range(0, end, _CHUNK):
            part = slice(start, min(start + _CHUNK, end))
            for i, value in enumerate(self._errors(rows, part)):
                worst[i] = max(worst[i], value)
        return Result(worst[0], worst[1], worst[2], self.touched(end))

    def _errors(self, rows: Array, columns: slice) -> tuple[float, float, float]:
        expected, allowed = self.reference(rows, columns)
        with np.errstate(invalid="ignore"):  # the pattern of untouched memory is a signalling NaN
            found = self.values(rows, columns).astype(np.float64)
        if not np.array_equal(np.isfinite(expected), np.isfinite(found)):
            return float("inf"), float("inf"), float("inf")
        special = ~np.isfinite(expected)
        if not np.array_equal(expected[special], found[special], equal_nan=True):
            return float("inf"), float("inf"), float("inf")
        keep = ~special
        error = np.abs(expected[keep] - found[keep])
        scale = np.maximum(np.abs(expected[keep]), 1e-30)
        peak = max(float(np.abs(expected[keep]).max(initial=0)), 1e-30)
        # The relative error of results near zero says nothing: only those above a hundredth of the largest
        # count.
        large = scale > peak / 100
        return (
            float(error.max(initial=0)),
            float((error / scale)[large].max(initial=0)),
            float((error / allowed[keep]).max(initial=0)),
        )


def _out_buffer(kernel: Kernel, tokens: int, stride: int) -> Array:
    pattern = PATTERN[kernel.spec["out"]]
    return np.full((tokens + SPARE_ROWS, stride), pattern, pattern.dtype)


def _rounding(kernel: Kernel, expected: Array) -> Array:
    """What rounding the result once may cost: half a unit in the last place, and a little for the tie."""
    unit = 2.0**-7 if kernel.spec["out"] == "bf16" else 2.0**-23
    return np.abs(expected) * unit * 0.51


class RmsNorm(Case):
    """y = x / sqrt(mean(x^2) + eps) * (1 + w)"""

    EPS = 1e-6

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        n = int(kernel.spec["dims"]["n"])
        x = normal(seed, (tokens, n)) * np.float32(3)
        w = to_bf16(normal(seed + 1, (n,)) * np.float32(0.5))
        arrays = {"x": x.view(np.uint32), "weight": w, "y": _out_buffer(kernel, tokens, n)}
        super().__init__(kernel, tokens, arrays, {"eps": self.EPS})

    def reference(self, rows: Array, columns: slice) -> tuple[Array, Array]:
        """Rows are independent; f32 arithmetic over n values errs by a few units of 2^-24."""
        x = self.arrays["x"].view(np.float32)[rows].astype(np.float64)
        w = from_bf16(self.arrays["weight"]).astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            y = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + self.EPS) * (1 + w)
        y = y[:, columns]
        return y, _rounding(self.kernel, y) + np.abs(y) * 1e-6 + 1e-30


class Gemm(Case):
    """E = A B^T"""

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        n, k = int(kernel.spec["dims"]["n"]), int(kernel.spec["dims"]["k"])
        a = to_bf16(normal(seed, (tokens, k + 16)))
        b = weights(seed + 1, (n if columns is None else columns, k))
        arrays = {"a": a, "b": b, "e": _out_buffer(kernel, tokens, n + 16)}
        super().__init__(kernel, tokens, arrays, {"stride_a": k + 16, "stride_e": n + 16})

    def reference(self, rows: Array, columns: slice) -> tuple[Array, Array]:
        """Products of bf16 are exact in f32; their sum errs by some 2^-24 of the sum of magnitudes."""
        k = int(self.kernel.spec["dims"]["k"])
        a = from_bf16(self.arrays["a"][rows, :k]).astype(np.float64)
        b = from_bf16(self.arrays["b"][columns]).astype(np.float64)
        with np.errstate(invalid="ignore"):
            e = a @ b.T
            magnitude = np.abs(a) @ np.abs(b).T
        return e, _rounding(self.kernel, e) + magnitude * 2e-6 + 1e-30


_CASES: dict[str, type[RmsNorm | Gemm]] = {"rms_norm": RmsNorm, "gemm": Gemm}


def make_case(kernel: Kernel, tokens: int, *, seed: int = 1, columns: int | None = None) -> Case:
    """A case whose first rows and weights are the same for every number of tokens and every tile.

    columns: make weights for the first columns of the result only, where no others will be computed.
    """
    op = kernel.spec["op"]
    if op not in _CASES:
        raise SystemExit(f"{kernel.id}: no reference for the operation `{op}`")
    return _CASES[op](kernel, tokens, seed, columns)


def poison(case: Case) -> None:
    """Put a NaN into the first row of the input and an infinity into the second: only they may change."""
    rows = case.arrays[case.input]
    nan, inf = (0x7FC00000, 0x7F800000) if rows.dtype == np.uint32 else (0x7FC0, 0x7F80)
    rows[0, 5], rows[1, 7] = nan, inf


def sample_rows(tokens: int, count: int = 24) -> Array:
    """First and last rows, the ones around block edges, and some between."""
    edges = [0, 1, 15, 16, 31, 32, 63, 64, 127, 128, tokens - 2, tokens - 1]
    between = np.linspace(0, tokens - 1, count).astype(int).tolist()
    return np.array(sorted({row for row in edges + between if 0 <= row < tokens}))


def same_operation(kernels: list[Kernel]) -> Iterator[list[Kernel]]:
    """Groups of kernels that compute the same thing: tile variants of one template, two at least."""
    groups: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        spec = kernel.spec
        key = json.dumps(
            [spec["op"], spec["template"], spec["dims"], spec["dtype"], spec["out"]], sort_keys=True
        )
        groups.setdefault(key, []).append(kernel)
    yield from (group for group in groups.values() if len(group) > 1)
