"""Inputs, reference results and tolerances for single kernels, from the spec.json and record.json of a build.

Used where a kernel is run: on a GPU (gpu_check.py), on an emulator (emulate.py) and in Triton's interpreter
(tests/templates). numpy only. References are computed in f64 from model.md's formulas, not from the kernels.
Outputs are larger than needed and filled with a pattern: what a kernel must not touch is compared afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernel_cases import attention, embed, gdn, gemm, moe, norm
from kernel_cases.base import (
    Array,
    Case,
    Kernel,
    Result,
    from_bf16,
    grid_of,
    load_kernels,
    pack,
    poison,
    same_operation,
    sample_rows,
    to_bf16,
    values_of,
)

__all__ = [
    "CASES",
    "Array",
    "Case",
    "Kernel",
    "Result",
    "from_bf16",
    "grid_of",
    "load_kernels",
    "make_case",
    "pack",
    "poison",
    "same_operation",
    "sample_rows",
    "to_bf16",
    "values_of",
]

CASES: Mapping[str, type[Case]] = {
    "embed": embed.Embed,
    "rms_norm": norm.RmsNorm,
    "add_rms_norm": norm.AddRmsNorm,
    "gated_rms_norm": norm.GatedRmsNorm,
    "gemm": gemm.Gemm,
    "gdn_conv": gdn.Conv,
    "gdn_gates": gdn.Gates,
    "gdn_step": gdn.Step,
    "gdn_chunk_solve": gdn.ChunkSolve,
    "gdn_chunk_apply": gdn.ChunkApply,
    "gdn_chunk_scan": gdn.ChunkScan,
    "gdn_chunk_out": gdn.ChunkOut,
    "attention_heads": attention.Heads,
    "attention": attention.Attention,
    "attention_split": attention.Split,
    "attention_merge": attention.Merge,
    "route": moe.Route,
    "moe_count": moe.Count,
    "moe_place": moe.Place,
    "moe_gate_up": moe.GateUp,
    "moe_down": moe.Down,
    "moe_combine": moe.Combine,
    "silu_mul": moe.SiluMul,
}


def make_case(kernel: Kernel, tokens: int, *, seed: int = 1, columns: int | None = None) -> Case:
    """A case whose first rows and weights are the same for every number of tokens and every tile.

    columns: make weights for the first columns of the result only, where no others will be computed.
    """
    op = kernel.spec["op"]
    if op not in CASES:
        raise SystemExit(f"{kernel.id}: no reference for the operation `{op}`")
    return CASES[op](kernel, tokens, seed, columns)  # type: ignore[call-arg,arg-type]
