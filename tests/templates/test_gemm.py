"""triton/gemm in Triton's interpreter against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from interpreter import Array, Launch, grid, interpret, planned

from aimabuild.plan import PlannedObject

pytestmark = pytest.mark.toolchain
TOKENS = (1, 2, 31, 33, 65)
PATTERN = 0x7FA5A5A5
SPARE_ROWS, SPARE_COLUMNS = 3, 16
DIMS = {"n": 64, "k": 128}
TILES = (
    {"block_m": 16, "block_n": 64, "num_warps": 4},
    {"block_m": 32, "block_n": 32, "num_warps": 2},
    {"block_m": 64, "block_n": 16, "num_warps": 4, "group_m": 1},
    {"block_m": 16, "block_n": 16, "num_warps": 1, "group_m": 2},
)


def from_bf16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def some_bf16(seed: int, shape: tuple[int, int]) -> Array:
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def launch(item: PlannedObject, tokens: int, dims: dict[str, int], out: str) -> Launch:
    n, k = dims["n"], dims["k"]
    kind = np.uint16 if out == "bf16" else np.uint32
    e = np.full((tokens + SPARE_ROWS, n + SPARE_COLUMNS), PATTERN & np.iinfo(kind).max, kind)
    arrays = {"a": some_bf16(1, (tokens, k + 16)), "b": some_bf16(2, (n, k)), "e": e}
    scalars = {"tokens": tokens, "stride_a": k + 16, "stride_e": n + SPARE_COLUMNS}
    return Launch(arrays, scalars, grid(item, tokens, dims))


def product(launched: Launch, k: int) -> tuple[Array, Array]:
    """(f64 product, sum of magnitudes) of a launch's inputs."""
    a = from_bf16(launched.arrays["a"][:, :k]).astype(np.float64)
    b = from_bf16(launched.arrays["b"]).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return a @ b.T, np.abs(a) @ np.abs(b).T


def check(launched: Launch, dims: dict[str, int], out: str) -> None:
    e, (expected, magnitude) = launched.arrays["e"], product(launched, dims["k"])
    tokens, n = len(e) - SPARE_ROWS, dims["n"]
    pattern = e.dtype.type(PATTERN & np.iinfo(e.dtype).max)
    assert (e[tokens:] == pattern).all(), "a row past the end was written"
    assert (e[:tokens, n:] == pattern).all(), "a column past the end was written"
    bits = e[:tokens, :n]
    found = from_bf16(bits) if out == "bf16" else np.ascontiguousarray(bits).view(np.float32)
    unit = 2.0**-7 if out == "bf16" else 2.0**-24  # the interpreter cuts bf16 off instead of rounding
    assert (np.abs(found - expected) <= np.abs(expected) * unit * 1.02 + magnitude * 1e-6).all()


@pytest.mark.parametrize(
    ("dims", "tile", "out"),
    [
        (DIMS, TILES[0], "f32"),
        (DIMS, TILES[1], "bf16"),
        (DIMS, TILES[3], "f32"),
        ({"n": 32, "k": 96}, TILES[1], "f32"),  # K in steps of 32
    ],
)
def test_agrees_with_numpy_for_any_number_of_rows(
    tmp_path: Path, triton_site: Path, dims: dict[str, int], tile: dict[str, int], out: str
) -> None:
    item = planned(tmp_path, "triton/gemm", dims, tile, dtype="bf16", out=out)
    launches = [launch(item, tokens, dims, out) for tokens in TOKENS]
    interpret(tmp_path, item, launches, triton_site)
    for launched in launches:
        check(launched, dims, out)


def test_every_tile_gives_a_row_the_same_bits(tmp_path: Path, triton_site: Path) -> None:
    rows: list[bytes] = []
    for number, tile in enumerate(TILES):
        folder = tmp_path / str(number)
        item = planned(folder, "triton/gemm", DIMS, tile, dtype="bf16", out="f32")
        launches = [launch(item, tokens, DIMS, "f32") for tokens in (1, 65)]
        interpret(folder, item, launches, triton_site)
        rows += [launched.arrays["e"][0, : DIMS["n"]].tobytes() for launched in launches]
    assert len(set(rows)) == 1


def test_nan_and_infinity_stay_in_their_rows(tmp_path: Path, triton_site: Path) -> None:
    item = planned(tmp_path, "triton/gemm", DIMS, TILES[1], dtype="bf16", out="f32")
    clean, poisoned = (launch(item, 33, DIMS, "f32") for _ in range(2))
    poisoned.arrays["a"][1, 5] = 0x7FC0
    poisoned.arrays["a"][32, 9] = 0xFF80
    interpret(tmp_path, item, [clean, poisoned], triton_site)
    e = np.ascontiguousarray(poisoned.arrays["e"][:33, : DIMS["n"]]).view(np.float32)
    assert np.isnan(e[1]).all()
    np.testing.assert_array_equal(e[32], product(poisoned, DIMS["k"])[0][32])
    untouched = [row for row in range(33) if row not in {1, 32}]
    assert (poisoned.arrays["e"][untouched] == clean.arrays["e"][untouched]).all()
