"""Matrix products."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernel_cases.base import (
    SPARE_ROWS,
    Array,
    Case,
    Expected,
    Kernel,
    blank,
    from_bf16,
    normal,
    to_bf16,
    weights,
)

_CHUNK = 16384


class Gemm(Case):
    """E = A B^T"""

    poisoned = "a"

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        n, k = kernel.dim("n"), kernel.dim("k")
        arrays = {
            "a": to_bf16(normal(seed, (tokens, k + 16))),
            "b": weights(seed + 1, (n if columns is None else columns, k)),
            "e": blank(kernel.out, (tokens + SPARE_ROWS, n + 16)),
        }
        super().__init__(kernel, tokens, arrays, {"stride_a": k + 16, "stride_e": n + 16}, ("e",))

    def written(self, name: str, columns: int | None) -> tuple[slice, slice]:
        """Rows have spare columns."""
        del name
        return slice(0, self.tokens), slice(0, self.kernel.dim("n") if columns is None else columns)

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """Products of bf16 are exact in f32; their sum errs by some 2^-24 of the sum of magnitudes."""
        end = self.kernel.dim("n") if columns is None else columns
        a = from_bf16(self.arrays["a"][rows, : self.kernel.dim("k")]).astype(np.float64)
        for start in range(0, end, _CHUNK):
            part = slice(start, min(start + _CHUNK, end))
            b = from_bf16(self.arrays["b"][part]).astype(np.float64)
            with np.errstate(invalid="ignore"):
                e = a @ b.T
                allowed = self.rounding("e", e) + np.abs(a) @ np.abs(b).T * 2e-6 + 1e-30
            yield Expected("e", (rows, part), e, allowed)
