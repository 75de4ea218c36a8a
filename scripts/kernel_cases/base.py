"""What every case shares: the kernels of a build, bf16, argument blocks, and the comparison of outputs."""

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
BITS: Mapping[str, Any] = {"bf16": np.uint16, "f32": np.uint32, "i32": np.int32}
PATTERN: Mapping[str, Any] = {  # bf16 and f32: NaNs that no computation makes
    "bf16": np.uint16(0x7FA5),
    "f32": np.uint32(0x7FA5A5A5),
    "i32": np.int32(-0x5A5A5A5B),
}
SPARE_ROWS = 3
_STRUCT = {"pointer": "<Q", "i32": "<i", "i64": "<q", "f32": "<f"}


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

    def dim(self, name: str) -> int:
        """A dimension by name."""
        return int(self.spec["dims"][name])

    @property
    def out(self) -> str:
        """Element type of the result."""
        return str(self.spec["out"])


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

    def worst(self, other: Result) -> Result:
        """The larger error of each kind."""
        return Result(
            max(self.absolute, other.absolute),
            max(self.relative, other.relative),
            max(self.ratio, other.ratio),
            touched=self.touched or other.touched,
        )


@dataclass(frozen=True)
class Expected:
    """What part `index` of an output must hold: `values` (f64), and `allowed` absolute errors, as many."""

    name: str
    index: Any
    values: Array
    allowed: Array


def load_kernels(folder: Path) -> list[Kernel]:
    """Every kernel below a build's `kernels` folder, by id."""
    found: list[Kernel] = []
    for path in sorted(folder.glob("*/spec.json")):
        spec = json.loads(path.read_text())
        home = folder / spec["object"]
        launched = spec["grid"] or (spec["fill"] and spec["dims"])  # neither: an object that kernels share
        if launched and (home / "record.json").is_file():
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


def values_of(bits: Array) -> Array:
    """The numbers that an array of bits holds: f32 for bf16 and f32, i32 as it is."""
    if bits.dtype == np.uint16:
        return from_bf16(bits)
    return bits.view(np.float32) if bits.dtype == np.uint32 else bits


def wide(bits: Array) -> Array:
    """The numbers as f64."""
    with np.errstate(invalid="ignore"):  # the pattern of untouched memory is a signalling NaN
        return values_of(bits).astype(np.float64)


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


def f32(values: Array) -> Array:
    """The bits of f32 numbers."""
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


_PERIOD = (1 << 24) + 43  # a prime: repeated, it meets every row and column of a large matrix differently


@lru_cache(maxsize=2)
def weights(seed: int, shape: tuple[int, ...]) -> Array:
    """bf16 weights; large ones repeat, and the last ones are kept, since making them takes seconds."""
    count = int(np.prod(shape))
    return np.resize(to_bf16(normal(seed, (min(count, _PERIOD),))), shape)


def blank(dtype: str, shape: tuple[int, ...]) -> Array:
    """Memory that holds the pattern everywhere."""
    return np.full(shape, PATTERN[dtype], BITS[dtype])


class Case:
    """One run: `arrays` by argument name (bits), `scalars` by name, `outputs` the arrays that are written.

    What a kernel may write of an output is `written(name)`; the rest must keep what it held. `bf16_unit` is
    what one rounding to bf16 may cost, relative; more where numbers are cut off, as in the interpreter.
    """

    poisoned: str | None = "x"  # the input whose rows may be made NaN without harm to others
    most_tokens = 8192  # more would keep the reference busy for minutes

    def __init__(
        self,
        kernel: Kernel,
        tokens: int,
        arrays: dict[str, Array],
        scalars: dict[str, int | float],
        outputs: tuple[str, ...],
    ) -> None:
        self.kernel = kernel
        self.tokens = tokens
        self.arrays = arrays
        self.scalars = {**scalars, "tokens": tokens}
        self.outputs = outputs
        self.before = {name: arrays[name].copy() for name in outputs}
        self.bf16_unit = 2.0**-8 * 1.02

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """What outputs must hold for the tokens `rows`; `columns`: only so many were computed."""
        raise NotImplementedError

    def written(self, name: str, columns: int | None) -> Any:
        """Index of all that may be written of an output: its first rows, unless a case says otherwise."""
        del name
        return (slice(0, self.tokens), slice(0, columns))

    def rounding(self, name: str, values: Array) -> Array:
        """What rounding the result once may cost."""
        unit = self.bf16_unit if self.arrays[name].dtype == np.uint16 else 2.0**-24 * 1.02
        return np.abs(values) * unit

    def touched(self, columns: int | None = None) -> bool:
        """True when an element that is not the kernel's to write has changed."""
        for name in self.outputs:
            changed = self.arrays[name] != self.before[name]
            changed[self.written(name, columns)] = False
            if changed.any():
                return True
        return False

    def compare(self, rows: Array, columns: int | None = None) -> Result:
        """Compare the results of some tokens with the reference."""
        result = Result(0, 0, 0, touched=self.touched(columns))
        for part in self.expected(rows, columns):
            result = result.worst(_errors(part, wide(self.arrays[part.name][part.index])))
        return result

    def bits(self, rows: int, columns: int | None = None) -> bytes:
        """The first rows and columns of the outputs, as they lie in memory."""
        return b"".join(
            np.ascontiguousarray(self.arrays[name][:rows, :columns]).tobytes() for name in self.outputs
        )


def _errors(part: Expected, found: Array) -> Result:
    inf = float("inf")
    wrong = Result(inf, inf, inf, touched=False)
    if not np.array_equal(np.isfinite(part.values), np.isfinite(found)):
        return wrong
    special = ~np.isfinite(part.values)
    if not np.array_equal(part.values[special], found[special], equal_nan=True):
        return wrong
    keep = ~special
    expected = part.values[keep]
    error = np.abs(expected - found[keep])
    scale = np.maximum(np.abs(expected), 1e-30)
    # The relative error of results near zero says nothing: only those above a hundredth of the largest count.
    large = scale > max(float(scale.max(initial=0)), 1e-30) / 100
    return Result(
        float(error.max(initial=0)),
        float((error / scale)[large].max(initial=0)),
        float((error / part.allowed[keep]).max(initial=0)),
        touched=False,
    )


def poison(case: Case) -> None:
    """Put a NaN into the first row of the input and an infinity into the second: only they may change."""
    if case.poisoned is None:
        raise ValueError(f"{case.kernel.id}: rows of its inputs are not independent")
    rows = case.arrays[case.poisoned]
    nan, inf = (0x7FC00000, 0x7F800000) if rows.dtype == np.uint32 else (0x7FC0, 0x7F80)
    rows[0, 5], rows[1, 7] = nan, inf
    if case.poisoned in case.before:
        case.before[case.poisoned] = rows.copy()


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
