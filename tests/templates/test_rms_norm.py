"""triton/rms_norm in Triton's interpreter against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from interpreter import Array, Launch, grid, interpret, planned

pytestmark = pytest.mark.toolchain
EPS = 1e-6
TOKENS = (1, 2, 31, 33, 65)
PATTERN = np.uint32(0x7FA5A5A5)
SPARE = 3


def from_bf16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def bf16(values: Array) -> Array:
    """Rounded to nearest, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def reference(x: Array, w: Array) -> Array:
    x64 = x.astype(np.float64)
    with np.errstate(all="ignore"):
        return (
            x64
            / np.sqrt((x64 * x64).mean(axis=1, keepdims=True) + EPS)
            * (1 + from_bf16(w).astype(np.float64))
        )


def inputs(tokens: int, n: int) -> tuple[Array, Array]:
    """x and weight: the first rows are the same for any number of tokens."""
    x = np.random.default_rng(1).standard_normal((tokens, n), np.float32) * np.float32(3)
    return x, bf16(np.random.default_rng(2).standard_normal(n, np.float32))


def launch(item: object, x: Array, w: Array, out: str, n: int) -> Launch:
    tokens = len(x)
    kind = np.uint16 if out == "bf16" else np.uint32
    y = np.full((tokens + SPARE, n), PATTERN & np.iinfo(kind).max, kind)
    arrays = {"x": x, "weight": w, "y": y}
    return Launch(arrays, {"tokens": tokens, "eps": EPS}, grid(item, tokens, {"n": n}))  # type: ignore[arg-type]


def result(launched: Launch, out: str) -> Array:
    """The rows that belong to tokens, f32; fails when another row was written."""
    y = launched.arrays["y"]
    rows = len(y) - SPARE
    assert (y[rows:] == y.dtype.type(PATTERN & np.iinfo(y.dtype).max)).all(), "a row past the end was written"
    return from_bf16(y[:rows]) if out == "bf16" else y[:rows].view(np.float32)


@pytest.mark.parametrize(
    ("n", "tile", "out"),
    [
        (2048, {"rows": 1, "num_warps": 4}, "bf16"),
        (64, {"rows": 4, "num_warps": 1}, "f32"),
        (48, {"rows": 2, "num_warps": 1}, "f32"),
        (1, {"rows": 8, "num_warps": 1}, "f32"),
    ],
)
def test_agrees_with_numpy_for_any_number_of_rows(
    tmp_path: Path, triton_site: Path, n: int, tile: dict[str, int], out: str
) -> None:
    item = planned(tmp_path, "triton/rms_norm", {"n": n}, tile, dtype="f32", out=out)
    launches = [launch(item, *inputs(tokens, n), out, n) for tokens in TOKENS]
    interpret(tmp_path, item, launches, triton_site)
    longest = launches[-1].arrays["y"]
    for tokens, launched in zip(TOKENS, launches, strict=True):
        expected = reference(*inputs(tokens, n))
        unit = 2.0**-7 if out == "bf16" else 2.0**-23  # the interpreter cuts bf16 off instead of rounding
        np.testing.assert_allclose(result(launched, out), expected, rtol=unit * 1.02 + 2e-7, atol=1e-12)
        # A row's bits do not depend on how many rows there are.
        assert (launched.arrays["y"][:tokens] == longest[:tokens]).all()


def test_nan_and_infinity_stay_in_their_rows(tmp_path: Path, triton_site: Path) -> None:
    n = 256
    item = planned(tmp_path, "triton/rms_norm", {"n": n}, {"rows": 2, "num_warps": 1}, dtype="f32", out="f32")
    x, w = inputs(5, n)
    clean = launch(item, x.copy(), w, "f32", n)
    x[1, 3], x[2, 7], x[2, 9] = np.nan, np.inf, -np.inf
    poisoned = launch(item, x, w, "f32", n)
    interpret(tmp_path, item, [clean, poisoned], triton_site)
    y, was = result(poisoned, "f32"), result(clean, "f32")
    assert np.isnan(y[1]).all()
    expected = reference(x, w)
    np.testing.assert_array_equal(np.isnan(y[2]), np.isnan(expected[2]))
    assert (y[2][~np.isnan(expected[2])] == 0).all()
    for row in (0, 3, 4):
        assert (y[row] == was[row]).all()


def test_zero_row_is_zero_and_tiny_row_is_held_by_eps(tmp_path: Path, triton_site: Path) -> None:
    n = 64
    item = planned(tmp_path, "triton/rms_norm", {"n": n}, {"num_warps": 1}, dtype="f32", out="f32")
    x, w = inputs(2, n)
    x[0] = 0
    x[1] *= np.float32(1e-4)
    launched = launch(item, x, w, "f32", n)
    interpret(tmp_path, item, [launched], triton_site)
    y = result(launched, "f32")
    assert (y[0] == 0).all()
    np.testing.assert_allclose(y[1], reference(x, w)[1], rtol=1e-6)
