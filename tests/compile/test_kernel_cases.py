"""The references that compiled kernels are compared with: they accept right results and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import code_object, record_json, spec_json

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import kernel_cases

NORM = {"op": "rms_norm", "dims": {"n": 96}, "dtype": "f32"}
GEMM = {"op": "gemm", "dims": {"n": 48, "k": 64}}


def kernel(folder: Path, **changes: Any) -> kernel_cases.Kernel:
    spec = spec_json(**changes)
    home = folder / spec["id"]
    home.mkdir(parents=True)
    (home / "spec.json").write_text(json.dumps(spec))
    (home / "record.json").write_text(json.dumps(record_json(code_object(), id=spec["id"])))
    (found,) = kernel_cases.load_kernels(folder)
    return found


def solve(case: kernel_cases.Case) -> None:
    """Write the right answer, rounded once."""
    for part in case.expected(np.arange(case.tokens), None):
        out = case.arrays[part.name]
        values = part.values.astype(np.float32)
        out[part.index] = kernel_cases.to_bf16(values) if out.dtype == np.uint16 else values.view(np.uint32)


def everything(case: kernel_cases.Case) -> kernel_cases.Result:
    return case.compare(np.arange(case.tokens))


@pytest.mark.parametrize("out", ["bf16", "f32"])
@pytest.mark.parametrize("op", [NORM, GEMM])
def test_the_right_answer_passes_and_one_wrong_value_fails(
    tmp_path: Path, op: dict[str, Any], out: str
) -> None:
    case = kernel_cases.make_case(kernel(tmp_path, out=out, **op), 5)
    assert not everything(case).ok  # nothing was computed yet
    solve(case)
    assert everything(case).ok
    array = case.arrays[case.outputs[0]]
    was = array[2, 3]
    # Two units in the last place of bf16, and 2^-15 of the value in f32, are beyond any rounding.
    array[2, 3] = was + 2 if out == "bf16" else was + 256
    assert not everything(case).ok
    array[2, 3] = was
    assert everything(case).ok


@pytest.mark.parametrize("op", [NORM, GEMM])
def test_writing_past_the_end_fails(tmp_path: Path, op: dict[str, Any]) -> None:
    case = kernel_cases.make_case(kernel(tmp_path, out="bf16", **op), 5)
    solve(case)
    case.arrays[case.outputs[0]][5, 0] = 0
    result = everything(case)
    assert result.touched
    assert not result.ok


def test_writing_past_a_row_fails(tmp_path: Path) -> None:
    case = kernel_cases.make_case(kernel(tmp_path, out="f32", **GEMM), 5)
    solve(case)
    case.arrays["e"][1, 48] = 0
    assert everything(case).touched


@pytest.mark.parametrize("op", [NORM, GEMM])
def test_nan_and_infinity_must_be_where_they_belong(tmp_path: Path, op: dict[str, Any]) -> None:
    case = kernel_cases.make_case(kernel(tmp_path, out="f32", **op), 5)
    kernel_cases.poison(case)
    solve(case)
    assert everything(case).ok
    case.arrays[case.outputs[0]][3, 0] = 0x7FC00000
    assert not everything(case).ok


def test_first_rows_and_weights_do_not_depend_on_the_number_of_tokens(tmp_path: Path) -> None:
    found = kernel(tmp_path, out="f32", **GEMM)
    few, many = (kernel_cases.make_case(found, tokens) for tokens in (3, 40))
    assert (few.arrays["a"] == many.arrays["a"][:3]).all()
    assert (few.arrays["b"] == many.arrays["b"]).all()


def test_bf16_rounds_to_even() -> None:
    values = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F800000], np.uint32).view(np.float32)
    assert kernel_cases.to_bf16(values).tolist() == [0x3F80, 0x3F82, 0x3F81, 0x7F80]
    assert kernel_cases.to_bf16(np.array([np.nan], np.float32)).tolist() == [0x7FC0]


def test_the_argument_block_follows_the_record(tmp_path: Path) -> None:
    found = kernel(tmp_path)
    block = kernel_cases.pack(found, {"x": 0x1122, "y": 0x3344, "tokens": 7, "eps": 1.5})
    assert len(block) == 40
    assert block[0:8] == (0x1122).to_bytes(8, "little")
    assert block[16:20] == (7).to_bytes(4, "little")
    assert block[20:24] == bytes.fromhex("0000c03f")
    assert not any(block[24:])
    assert kernel_cases.grid_of(found, 9) == (3, 1, 1)


def test_variants_of_one_operation_are_found(tmp_path: Path) -> None:
    first = kernel(tmp_path / "a", out="f32", **GEMM)
    second = kernel(tmp_path / "b", out="f32", **{**GEMM, "tokens": [1, 2], "id": "other"}, object="other")
    third = kernel(tmp_path / "c", out="bf16", **GEMM)
    assert list(kernel_cases.same_operation([first, second, third])) == [[first, second]]
