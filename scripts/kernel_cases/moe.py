"""The mixture of experts (model.md 3.3)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernel_cases.attention import sigmoid
from kernel_cases.base import (
    SPARE_ROWS,
    Array,
    Case,
    Expected,
    Kernel,
    blank,
    f32,
    normal,
    to_bf16,
    weights,
    wide,
)
from kernel_cases.norm import silu


def some_ids(seed: int, tokens: int, slots: int, experts: int) -> Array:
    """[tokens, slots]: different experts in each row, some experts chosen by nobody and one by many."""
    draw = np.random.default_rng(seed)
    usable = np.arange(experts - experts // 4)
    rows = [draw.permutation(usable)[:slots] for _ in range(tokens)]
    for row in rows[::2]:
        if 1 not in row:
            row[0] = 1
    return np.array(rows, np.int32).reshape(tokens, slots)


def exact(values: Array) -> Array:
    """No error is allowed."""
    return np.full(values.shape, 1e-30)


class Route(Case):
    """The greatest logits and their softmax; ties go to the lowest index."""

    poisoned = "logits"

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        experts, slots = kernel.dim("experts"), kernel.dim("slots")
        logits = normal(seed, (tokens, experts)) * np.float32(2)
        logits[0] = np.round(logits[0])  # a row of ties
        arrays = {
            "logits": f32(logits),
            "ids": blank("i32", (tokens + SPARE_ROWS, slots)),
            "weights": blank("f32", (tokens + SPARE_ROWS, slots)),
        }
        super().__init__(kernel, tokens, arrays, {}, ("ids", "weights"))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """Choices are exact."""
        del columns
        logits, slots = wide(self.arrays["logits"][rows]), self.kernel.dim("slots")
        ids = np.argsort(-logits, axis=1, kind="stable")[:, :slots]
        best = np.take_along_axis(logits, ids, axis=1)
        with np.errstate(invalid="ignore"):  # a NaN spoils its row
            p = np.exp(best - best[:, :1])
            p = p / p.sum(axis=1, keepdims=True) + 0.0 * logits.sum(axis=1, keepdims=True)
        yield Expected("ids", rows, ids.astype(np.float64), exact(ids))
        yield Expected("weights", rows, p, p * 2e-6)


class Count(Case):
    """Assignments of each expert."""

    poisoned = None

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        experts = kernel.dim("experts")
        arrays = {
            "ids": some_ids(seed, tokens, kernel.dim("slots"), experts),
            "counts": blank("i32", (experts + SPARE_ROWS,)),
        }
        super().__init__(kernel, tokens, arrays, {}, ("counts",))

    def written(self, name: str, columns: int | None) -> slice:
        """One number for each expert."""
        del name, columns
        return slice(0, self.kernel.dim("experts"))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """Counts are exact."""
        del rows, columns
        experts = self.kernel.dim("experts")
        counts = np.bincount(self.arrays["ids"].ravel(), minlength=experts).astype(np.float64)
        yield Expected("counts", slice(0, experts), counts, exact(counts))


def placed(ids: Array, experts: int, block_m: int) -> tuple[Array, Array]:
    """(rows, experts of blocks) as moe_place leaves them, unused blocks -1 and their rows left out."""
    total = ids.size
    blocks = -(-(total + experts * (block_m - 1)) // block_m)
    rows, owners = [], []
    for expert in range(experts):
        mine = np.flatnonzero(ids.ravel() == expert)
        count = -(-len(mine) // block_m)
        rows.append(np.concatenate([mine, np.full(count * block_m - len(mine), total)]))
        owners += [expert] * count
    owners += [-1] * (blocks - len(owners))
    return np.concatenate(rows).astype(np.int32), np.array(owners, np.int32)


class Place(Case):
    """Assignments sorted by expert in whole blocks."""

    poisoned = None

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        experts, block_m = kernel.dim("experts"), kernel.dim("block_m")
        ids = some_ids(seed, tokens, kernel.dim("slots"), experts)
        self.places, self.owners = placed(ids, experts, block_m)
        arrays = {
            "ids": ids,
            "counts": np.bincount(ids.ravel(), minlength=experts).astype(np.int32),
            "rows": blank("i32", (len(self.owners) * block_m + SPARE_ROWS,)),
            "experts": blank("i32", (len(self.owners) + SPARE_ROWS,)),
        }
        super().__init__(kernel, tokens, arrays, {}, ("rows", "experts"))

    def written(self, name: str, columns: int | None) -> slice:
        """Places of used blocks, and the expert of every block."""
        del columns
        return slice(0, len(self.places if name == "rows" else self.owners))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """The order is exact."""
        del rows, columns
        for name, values in (("rows", self.places), ("experts", self.owners)):
            yield Expected(name, slice(0, len(values)), values.astype(np.float64), exact(values))


class _Grouped(Case):
    """A product over sorted assignments."""

    def common(self, kernel: Kernel, tokens: int, seed: int) -> dict[str, Array]:
        """Arrays rows and experts; sets ids, places and owners."""
        experts = kernel.dim("experts")
        self.ids = some_ids(seed, tokens, kernel.dim("slots"), experts)
        self.places, self.owners = placed(self.ids, experts, int(kernel.spec["tile"]["block_m"]))
        rows = np.full(len(self.owners) * int(kernel.spec["tile"]["block_m"]), -1, np.int32)
        rows[: len(self.places)] = self.places
        return {"rows": rows, "experts": self.owners}


class GateUp(_Grouped):
    """h = silu(x G^T) * (x U^T) for each assignment"""

    poisoned = None

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        n, k, experts = (kernel.dim(name) for name in ("n", "k", "experts"))
        arrays = self.common(kernel, tokens, seed)
        arrays["x"] = to_bf16(normal(seed + 1, (tokens, k)))
        arrays["w"] = weights(seed + 2, (experts, 2 * n, k))
        arrays["h"] = blank("bf16", (len(self.places) + SPARE_ROWS, n))
        super().__init__(kernel, tokens, arrays, {}, ("h",))

    def written(self, name: str, columns: int | None) -> slice:
        """Places of used blocks, the empty ones among them too."""
        del name, columns
        return slice(0, len(self.places))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """A gate near zero makes a result whose error follows the magnitudes of both sums."""
        del columns
        n, slots = self.kernel.dim("n"), self.kernel.dim("slots")
        wanted = np.isin(self.places // slots, rows) & (self.places < self.tokens * slots)
        for place in np.flatnonzero(wanted):
            a = int(self.places[place])
            x, w = wide(self.arrays["x"][a // slots]), wide(self.arrays["w"][self.ids.ravel()[a]])
            gate, up = w[:n] @ x, w[n:] @ x
            h = silu(gate) * up
            magnitude = np.abs(w) @ np.abs(x)
            slack = (magnitude[:n] * np.abs(up) * 1.1 + magnitude[n:] * np.abs(silu(gate))) * 2e-6
            yield Expected("h", int(place), h, self.rounding("h", h) + slack + 1e-9)


class Down(_Grouped):
    """y = h D^T for each assignment, in the order of the assignments"""

    poisoned = None

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        n, k, experts, slots = (kernel.dim(name) for name in ("n", "k", "experts", "slots"))
        arrays = self.common(kernel, tokens, seed)
        arrays["h"] = to_bf16(normal(seed + 1, (len(arrays["rows"]), k)))
        arrays["w"] = weights(seed + 2, (experts, n, k))
        arrays["y"] = blank("f32", (tokens * slots + SPARE_ROWS, n))
        super().__init__(kernel, tokens, arrays, {}, ("y",))

    def written(self, name: str, columns: int | None) -> slice:
        """One row for each assignment."""
        del name, columns
        return slice(0, self.tokens * self.kernel.dim("slots"))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """f32 sums."""
        del columns
        slots = self.kernel.dim("slots")
        wanted = np.isin(self.places // slots, rows) & (self.places < self.tokens * slots)
        for place in np.flatnonzero(wanted):
            a = int(self.places[place])
            h, w = wide(self.arrays["h"][place]), wide(self.arrays["w"][self.ids.ravel()[a]])
            yield Expected("y", a, w @ h, np.abs(w) @ np.abs(h) * 2e-6 + 1e-9)


class Combine(Case):
    """x += sum_j w_j y_j + sigmoid(gate) shared"""

    poisoned = "shared"

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        n, slots = kernel.dim("n"), kernel.dim("slots")
        share = np.abs(normal(seed + 1, (tokens, slots)))
        x = blank("f32", (tokens + SPARE_ROWS, n))
        x[:tokens] = f32(normal(seed + 4, (tokens, n)))
        arrays = {
            "y": f32(normal(seed, (tokens * slots, n))),
            "weights": f32(share / share.sum(axis=1, keepdims=True)),
            "shared": f32(normal(seed + 2, (tokens, n))),
            "gate": f32(normal(seed + 3, (tokens, 3))),
            "x": x,
        }
        super().__init__(kernel, tokens, arrays, {"stride_gate": 3}, ("x",))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """A dozen additions in f32."""
        del columns
        slots = self.kernel.dim("slots")
        y = wide(self.arrays["y"]).reshape(self.tokens, slots, -1)[rows]
        with np.errstate(invalid="ignore"):
            total = (wide(self.arrays["weights"][rows])[:, :, None] * y).sum(axis=1)
            total += sigmoid(wide(self.arrays["gate"][rows])[:, :1]) * wide(self.arrays["shared"][rows])
            total += wide(self.before["x"][rows])
        yield Expected("x", rows, total, np.abs(total) * 1e-6 + 4e-6)


class SiluMul(Case):
    """y = silu(gate) * up"""

    poisoned = "gate"

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        n = kernel.dim("n")
        arrays = {
            "gate": f32(normal(seed, (tokens, n)) * np.float32(3)),
            "up": f32(normal(seed + 1, (tokens, n))),
            "y": blank(kernel.out, (tokens + SPARE_ROWS, n)),
        }
        super().__init__(kernel, tokens, arrays, {}, ("y",))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """f32, rounded once."""
        del columns
        with np.errstate(invalid="ignore"):
            y = silu(wide(self.arrays["gate"][rows])) * wide(self.arrays["up"][rows])
        yield Expected("y", rows, y, self.rounding("y", y) + np.abs(y) * 2e-6 + 1e-12)
