"""The embedding table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernel_cases.base import SPARE_ROWS, Array, Case, Expected, Kernel, blank, normal, to_bf16, wide


class Embed(Case):
    """y[t] = table[ids[t]], widened; the last row among them."""

    poisoned = None

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        n, rows = kernel.dim("n"), kernel.dim("rows")
        table = np.zeros((rows, n), np.uint16)
        ids = np.random.default_rng(seed).integers(0, rows, tokens).astype(np.int32)
        ids[0] = rows - 1
        table[ids] = to_bf16(normal(seed + 1, (tokens, n)))
        arrays = {"ids": ids, "table": table, "y": blank("f32", (tokens + SPARE_ROWS, n))}
        super().__init__(kernel, tokens, arrays, {}, ("y",))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """Widening is exact."""
        y = wide(self.arrays["table"][self.arrays["ids"][rows]])[:, :columns]
        yield Expected("y", (rows, slice(0, columns)), y, np.full(y.shape, 1e-30))
