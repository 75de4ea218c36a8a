"""Counting instructions in disassembly text."""

from __future__ import annotations

from pathlib import Path

import pytest

from aimabuild.base.errors import AimaError
from aimabuild.compile.isa import main_form, matrix_ops, mnemonics, objdump_text

AMD = """\
0000000000001700 <aima_gemm>:
	s_load_b128 s[4:7], s[0:1], null                           // 000000001714: F4080100 F8000000
	v_wmma_f32_16x16x16_bf16 v[0:7], v[8:15], v[16:23], v[0:7] // 000000001720: CC414000 1C022108
	v_wmma_f32_16x16x16_bf16 v[0:7], v[8:15], v[16:23], v[0:7] // 000000001728: CC414000 1C022108
	v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]  // 000000001730: CC404000 1C022108
	s_endpgm                                                   // 000000001738: BFB00000
	s_code_end                                                 // 00000000173C: BF9F0000
"""
NVIDIA = """\
.text.aima_gemm:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 BRA `(.L_x_0) ;
        /*0d60*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], R24 ;
        /*0db0*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;
        /*0dc0*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
"""


def test_matrix_instructions_of_amd() -> None:
    ops = matrix_ops(AMD)
    assert ops == {"f32_16x16x16_bf16": 2, "f32_16x16x16_f16": 1}
    assert main_form(ops) == "f32_16x16x16_bf16"


def test_matrix_instructions_of_nvidia() -> None:
    ops = matrix_ops(NVIDIA)
    assert ops == {"HGMMA.64x64x16.F32.BF16": 2, "HMMA.16816.F32.BF16": 1}
    assert main_form(ops) == "HGMMA.64x64x16.F32.BF16"


def test_no_matrix_instruction() -> None:
    assert main_form(matrix_ops("\ts_endpgm\n")) is None


def test_equal_counts_take_the_first_form_by_name() -> None:
    assert main_form(matrix_ops("v_wmma_f32_16x16x16_f16 v_wmma_f32_16x16x16_bf16")) == "f32_16x16x16_bf16"


def test_mnemonics_leave_padding_and_predicates_out() -> None:
    assert mnemonics(AMD) == {
        "s_load_b128": 1,
        "v_wmma_f32_16x16x16_bf16": 2,
        "v_wmma_f32_16x16x16_f16": 1,
        "s_endpgm": 1,
    }
    assert mnemonics(NVIDIA) == {"LDC": 1, "BRA": 1, "HGMMA": 2, "HMMA": 1}


def test_only_the_function_is_kept(tmp_path: Path) -> None:
    tool = tmp_path / "objdump"
    tool.write_text(f"#!/bin/sh\ncat <<'X'\n\n{tmp_path}/a.co: file format elf64-amdgpu\n\n{AMD}X\n")
    tool.chmod(0o755)
    assert objdump_text([str(tool)], tmp_path / "a.co", "aima_gemm") == AMD
    with pytest.raises(AimaError, match="`aima_other` is not in the code object"):
        objdump_text([str(tool)], tmp_path / "a.co", "aima_other")
