"""Norms of rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernel_cases.base import SPARE_ROWS, Array, Case, Expected, Kernel, blank, f32, normal, to_bf16, wide

EPS = 1e-6


def normed(x: Array, gain: Array) -> Array:
    """x / sqrt(mean(x^2) + eps) * gain over the last axis, f64."""
    with np.errstate(invalid="ignore", over="ignore"):
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPS) * gain


def silu(x: Array) -> Array:
    """x / (1 + e^-x), f64."""
    with np.errstate(over="ignore", invalid="ignore"):
        return x / (1 + np.exp(-x))


class RmsNorm(Case):
    """y = x / sqrt(mean(x^2) + eps) * (1 + w)"""

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        n = kernel.dim("n")
        arrays = {
            "x": f32(normal(seed, (tokens, n)) * np.float32(3)),
            "weight": to_bf16(normal(seed + 1, (n,)) * np.float32(0.5)),
            "y": blank(kernel.out, (tokens + SPARE_ROWS, n)),
        }
        super().__init__(kernel, tokens, arrays, {"eps": EPS}, ("y",))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """Rows are independent; f32 arithmetic over n values errs by a few units of 2^-24."""
        y = normed(wide(self.arrays["x"][rows]), 1 + wide(self.arrays["weight"]))[:, :columns]
        yield Expected("y", (rows, slice(0, columns)), y, self.rounding("y", y) + np.abs(y) * 1e-6 + 1e-30)


class AddRmsNorm(Case):
    """x += d; y = x / sqrt(mean(x^2) + eps) * (1 + w)"""

    poisoned = "d"

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        n = kernel.dim("n")
        x = blank("f32", (tokens + SPARE_ROWS, n))
        x[:tokens] = f32(normal(seed, (tokens, n)) * np.float32(3))
        arrays = {
            "x": x,
            "d": f32(normal(seed + 2, (tokens, n))),
            "weight": to_bf16(normal(seed + 1, (n,)) * np.float32(0.5)),
            "y": blank(kernel.out, (tokens + SPARE_ROWS, n)),
        }
        super().__init__(kernel, tokens, arrays, {"eps": EPS}, ("x", "y"))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """The sum is one f32 addition."""
        del columns
        with np.errstate(invalid="ignore"):
            total = wide(self.before["x"][rows]) + wide(self.arrays["d"][rows])
        yield Expected("x", rows, total, np.abs(total) * 2.0**-23 + 1e-30)
        y = normed(total, 1 + wide(self.arrays["weight"]))
        yield Expected("y", rows, y, self.rounding("y", y) + np.abs(y) * 1e-6 + 1e-30)


class GatedRmsNorm(Case):
    """Per head of `head_dim`: y = o / sqrt(mean(o^2) + eps) * w * silu(z)"""

    poisoned = "o"

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        dim = kernel.dim("head_dim")
        n = kernel.dim("heads") * dim
        arrays = {
            "o": f32(normal(seed, (tokens, n)) * np.float32(0.2)),
            "z": f32(normal(seed + 2, (tokens, n)) * np.float32(3)),
            "weight": f32(1 + normal(seed + 1, (dim,)) * np.float32(0.2)),
            "y": blank(kernel.out, (tokens + SPARE_ROWS, n)),
        }
        super().__init__(kernel, tokens, arrays, {"eps": EPS}, ("y",))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """silu of a large negative number is small with a large relative error in f32."""
        del columns
        dim = self.kernel.dim("head_dim")
        o, z = (wide(self.arrays[name][rows]).reshape(len(rows), -1, dim) for name in ("o", "z"))
        y = (normed(o, wide(self.arrays["weight"])) * silu(z)).reshape(len(rows), -1)
        yield Expected("y", rows, y, self.rounding("y", y) + np.abs(y) * 2e-6 + 1e-12)
