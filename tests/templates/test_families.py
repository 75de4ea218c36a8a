"""Every Triton family in the interpreter against its reference: ragged and degenerate numbers of tokens, and the same
bits for a token whatever comes after it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from interpreter import Launch, grid, interpret, planned

from aimabuild.plan import PlannedObject

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import kernel_cases
from kernel_cases import Case, Kernel

pytestmark = pytest.mark.toolchain


@dataclass(frozen=True)
class Family:
    """A template at small dimensions."""

    template: str
    dims: dict[str, int]
    tile: dict[str, int]
    dtype: str = "f32"
    out: str = "f32"
    tokens: tuple[int, ...] = (1, 2, 31, 33)
    prefix: bool = True  # rows of a short pass equal those of a long one, bit for bit
    most: int = 8192  # tokens of one launch

    @property
    def op(self) -> str:
        """The operation."""
        return self.template.split("/")[1]


HEADS = {"key_heads": 1, "value_heads": 2, "head_dim": 32}
CHUNKS = (1, 3, 64, 65, 130)
QUERIES = {"heads": 4, "kv_heads": 2, "head_dim": 32}
EXPERTS = {"experts": 8, "slots": 3}
FAMILIES = (
    Family("triton/embed", {"n": 64, "rows": 100}, {"block_n": 32, "num_warps": 1}, dtype="bf16"),
    Family("triton/add_rms_norm", {"n": 96}, {"rows": 2, "num_warps": 1}),
    Family("triton/add_rms_norm", {"n": 64}, {"num_warps": 1}, out="bf16"),
    Family("triton/gated_rms_norm", {"heads": 3, "head_dim": 32}, {"rows": 4, "num_warps": 1}, out="bf16"),
    Family("triton/gdn_conv", {**HEADS, "head_dim": 16}, {"block_t": 4, "num_warps": 1}),
    Family("triton/gdn_gates", {"heads": 4}, {"rows": 8, "num_warps": 1}),
    Family("triton/gdn_step", HEADS, {"block_v": 16, "num_warps": 1}, tokens=(1,), most=1),
    Family("triton/gdn_chunk_solve", HEADS, {"slice": 16, "num_warps": 4}, tokens=CHUNKS),
    Family("triton/gdn_chunk_apply", HEADS, {"block_v": 16, "slice": 32, "num_warps": 4}, tokens=CHUNKS),
    Family("triton/gdn_chunk_scan", HEADS, {"block_v": 16, "slice": 16, "num_warps": 4}, tokens=CHUNKS, prefix=False),
    Family("triton/gdn_chunk_out", HEADS, {"block_v": 16, "slice": 16, "num_warps": 4}, tokens=CHUNKS),
    Family("triton/attention_heads", {**QUERIES, "rotary": 8}, {"block_t": 4, "num_warps": 1}, out="bf16"),
    Family(
        "triton/attention",
        QUERIES,
        {"block_m": 16, "block_n": 16, "slice": 16, "num_warps": 1},
        dtype="bf16",
        out="bf16",
        tokens=(1, 2, 31, 65),
    ),
    Family(
        "triton/attention_split",
        {**QUERIES, "splits": 8},
        {"block_n": 16, "slice": 16, "num_warps": 1},
        dtype="bf16",
        tokens=(1,),
        most=1,
    ),
    Family("triton/attention_merge", {"heads": 4, "head_dim": 32, "splits": 8}, {"num_warps": 1}, out="bf16", tokens=(1,), most=1),
    Family("triton/route", EXPERTS, {"rows": 2, "num_warps": 1}),
    Family("triton/moe_count", EXPERTS, {"block": 64, "num_warps": 1}, dtype="i32", out="i32"),
    Family("triton/moe_place", {**EXPERTS, "block_m": 16}, {"block": 64, "num_warps": 1}, dtype="i32", out="i32"),
    Family(
        "triton/moe_gate_up",
        {"n": 32, "k": 64, **EXPERTS},
        {"block_m": 16, "block_n": 16, "num_warps": 1},
        dtype="bf16",
        out="bf16",
    ),
    Family(
        "triton/moe_down", {"n": 32, "k": 32, **EXPERTS}, {"block_m": 16, "block_n": 32, "num_warps": 1}, dtype="bf16"
    ),
    Family("triton/moe_combine", {"n": 64, "slots": 3}, {"block_n": 32, "num_warps": 1}),
    Family("triton/silu_mul", {"n": 64}, {"block_n": 32, "num_warps": 1}, out="bf16"),
)
NAMES = [f"{family.op}-{family.out}" for family in FAMILIES]


def plan(folder: Path, family: Family) -> tuple[PlannedObject, Kernel]:
    """The planned object, and the kernel that cases take."""
    item = planned(folder, family.template, family.dims, family.tile, dtype=family.dtype, out=family.out, tokens=family.most)
    spec = {"op": family.op, "dims": family.dims, "out": family.out, "tokens": [1, 8192], "tile": dict(item.tile)}
    return item, Kernel(family.op, spec, {}, folder)


def run(folder: Path, item: PlannedObject, family: Family, cases: list[Case], site: Path) -> None:
    """Run the cases; their outputs then hold what the kernel left."""
    launches = [Launch(case.arrays, case.scalars, grid(item, case.tokens, family.dims)) for case in cases]
    interpret(folder, item, launches, site)
    for case in cases:
        case.bf16_unit = 2.0**-7 * 1.02  # the interpreter cuts bf16 off instead of rounding


@pytest.mark.parametrize("family", FAMILIES, ids=NAMES)
def test_agrees_with_the_reference_for_any_number_of_tokens(
    tmp_path: Path, triton_site: Path, family: Family
) -> None:
    item, kernel = plan(tmp_path, family)
    cases = [kernel_cases.make_case(kernel, tokens) for tokens in family.tokens]
    run(tmp_path, item, family, cases, triton_site)
    for case in cases:
        result = case.compare(np.arange(case.tokens))
        assert not result.touched, f"{case.tokens} tokens: wrote where it must not"
        assert result.ratio <= 1, f"{case.tokens} tokens: {result}"


@pytest.mark.parametrize("family", FAMILIES, ids=NAMES)
def test_an_unwritten_output_is_out_of_tolerance(tmp_path: Path, family: Family) -> None:
    _, kernel = plan(tmp_path, family)
    case = kernel_cases.make_case(kernel, family.tokens[-1])
    assert case.compare(np.arange(case.tokens)).ratio > 1


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.prefix and f.most > 1 and f.dtype != "i32"], ids=lambda f: f.op)
def test_a_token_has_the_same_bits_whatever_comes_after_it(
    tmp_path: Path, triton_site: Path, family: Family
) -> None:
    item, kernel = plan(tmp_path, family)
    long, short = family.tokens[-1], family.tokens[-1] - 2
    cases = [kernel_cases.make_case(kernel, tokens) for tokens in (long, short)]
    for name, array in cases[1].arrays.items():
        # The same inputs: the first rows of the longer case.
        other = cases[0].arrays[name]
        if name not in cases[1].outputs and array.shape[1:] == other.shape[1:]:
            array[...] = other[: len(array)]
    run(tmp_path, item, family, cases, triton_site)
    for row in (0, short - 1):
        for part in cases[1].expected(np.array([row]), None):
            if part.name in ("next_tail", "w_cache"):
                continue
            a, b = (case.arrays[part.name][part.index] for case in cases)
            np.testing.assert_array_equal(a, b, err_msg=f"{part.name} of token {row}")
