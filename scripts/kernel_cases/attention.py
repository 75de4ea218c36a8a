"""Full attention (model.md 3.1)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernel_cases.base import SPARE_ROWS, Array, Case, Expected, Kernel, blank, f32, normal, to_bf16, wide
from kernel_cases.norm import EPS, normed

START = 70  # a position inside the second block of 64


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), f64."""
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def gates_of(case: Case, rows: Array) -> Array:
    """The gates [rows, heads, dim] of `qg`."""
    heads, dim = case.kernel.dim("heads"), case.kernel.dim("head_dim")
    return sigmoid(wide(case.arrays["qg"][rows]).reshape(len(rows), heads, 2, dim)[:, :, 1])


def attend(q: Array, keys: Array, values: Array, group: int) -> tuple[Array, Array]:
    """(result, sum of p |v|) [heads, dim] of a token: q [heads, dim], keys, values [kv heads, keys, dim]."""
    k, v = np.repeat(keys, group, axis=0), np.repeat(values, group, axis=0)
    scores = np.einsum("hd,hnd->hn", q, k) / np.sqrt(q.shape[1])
    with np.errstate(invalid="ignore"):
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return np.einsum("hn,hnd->hd", p, v), np.einsum("hn,hnd->hd", p, np.abs(v))


class Heads(Case):
    """Norms and rotary embedding of heads, keys and values into the cache."""

    poisoned = "qg"

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        heads, kv, dim, rotary = (kernel.dim(name) for name in ("heads", "kv_heads", "head_dim", "rotary"))
        capacity = START + tokens + 5
        angles = np.arange(capacity)[:, None] * 1e7 ** (-2 * np.arange(rotary // 2) / rotary)
        arrays = {
            "qg": f32(normal(seed, (tokens, heads * 2 * dim))),
            "k": f32(normal(seed + 1, (tokens, kv * dim))),
            "v": f32(normal(seed + 2, (tokens, kv * dim))),
            "q_norm": to_bf16(normal(seed + 3, (dim,)) * np.float32(0.3)),
            "k_norm": to_bf16(normal(seed + 4, (dim,)) * np.float32(0.3)),
            "cos": f32(np.cos(angles)),
            "sin": f32(np.sin(angles)),
            "q": blank("bf16", (tokens + SPARE_ROWS, heads * dim)),
            "k_cache": blank("bf16", (kv, capacity, dim)),
            "v_cache": blank("bf16", (kv, capacity, dim)),
        }
        scalars = {"start": START, "capacity": capacity, "eps": EPS}
        super().__init__(kernel, tokens, arrays, scalars, ("q", "k_cache", "v_cache"))

    def written(self, name: str, columns: int | None) -> tuple[slice, slice]:
        """Queries of all tokens; the cache at their positions."""
        del columns
        if name == "q":
            return slice(0, self.tokens), slice(None)
        return slice(None), slice(START, START + self.tokens)

    def _turned(self, x: Array, norm: str, rows: Array) -> Array:
        half = self.kernel.dim("rotary") // 2
        x = normed(x, 1 + wide(self.arrays[norm]))
        cos, sin = (wide(self.arrays[name])[START + rows][:, None] for name in ("cos", "sin"))
        a, b = x[..., :half], x[..., half : 2 * half]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]], axis=-1)

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """f32 until the one rounding."""
        del columns
        heads, kv, dim = (self.kernel.dim(name) for name in ("heads", "kv_heads", "head_dim"))
        queries = wide(self.arrays["qg"][rows]).reshape(-1, heads, 2, dim)[:, :, 0]
        q = self._turned(queries, "q_norm", rows).reshape(len(rows), -1)
        yield Expected("q", rows, q, self.rounding("q", q) + 4e-6)
        k = self._turned(wide(self.arrays["k"][rows]).reshape(-1, kv, dim), "k_norm", rows)
        v = wide(self.arrays["v"][rows]).reshape(-1, kv, dim)
        for name, values in (("k_cache", k), ("v_cache", v)):
            for head in range(kv):
                part = values[:, head]
                yield Expected(name, (head, START + rows), part, self.rounding(name, part) + 4e-6)


class _Cached(Case):
    """Queries, gates and a filled cache."""

    poisoned = "q"

    def common(self, kernel: Kernel, tokens: int, start: int, seed: int) -> dict[str, Array]:
        """Arrays q, qg, k_cache, v_cache; nothing finite lies behind the last position."""
        heads, kv, dim = (kernel.dim(name) for name in ("heads", "kv_heads", "head_dim"))
        end = start + tokens
        arrays = {
            "q": to_bf16(normal(seed, (tokens, heads * dim)) * np.float32(2)),
            "qg": f32(normal(seed + 1, (tokens, heads * 2 * dim))),
        }
        for number, name in enumerate(("k_cache", "v_cache")):
            cache = blank("bf16", (kv, end + 7, dim))
            for head in range(kv):
                cache[head, :end] = to_bf16(normal(seed + 2 + 10 * number + head, (end, dim)))
            arrays[name] = cache
        return arrays

    def result(self, t: int, position: int) -> tuple[Array, Array]:
        """(attention, magnitude) [heads, dim] of token t at `position`."""
        heads, kv, dim = (self.kernel.dim(name) for name in ("heads", "kv_heads", "head_dim"))
        keys, values = (wide(self.arrays[name][:, : position + 1]) for name in ("k_cache", "v_cache"))
        return attend(wide(self.arrays["q"][t]).reshape(heads, dim), keys, values, heads // kv)


class Attention(_Cached):
    """Causal attention of a pass that starts inside the sequence."""

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        arrays = self.common(kernel, tokens, START, seed)
        arrays["o"] = blank("bf16", (tokens + SPARE_ROWS, arrays["q"].shape[1]))
        scalars = {"start": START, "capacity": arrays["k_cache"].shape[1]}
        super().__init__(kernel, tokens, arrays, scalars, ("o",))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """Probabilities are rounded to bf16 before they multiply v."""
        del columns
        some = [self.result(int(t), START + int(t)) for t in rows]
        gates = gates_of(self, rows)
        o = (np.stack([part[0] for part in some]) * gates).reshape(len(rows), -1)
        magnitude = (np.stack([part[1] for part in some]) * gates).reshape(len(rows), -1)
        yield Expected("o", rows, o, self.rounding("o", o) + magnitude * self.bf16_unit + 1e-5)


class Split(_Cached):
    """Shares of the keys of one token: compared after they are put together."""

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None, start: int = 333) -> None:
        del columns
        heads, dim, splits = (kernel.dim(name) for name in ("heads", "head_dim", "splits"))
        arrays = self.common(kernel, tokens, start, seed)
        arrays["position"] = np.array([start], np.int32)
        arrays["maximum"] = blank("f32", (heads + 1, splits))
        arrays["total"] = blank("f32", (heads + 1, splits))
        arrays["partial"] = blank("f32", (heads + 1, splits, dim))
        self.start = start
        scalars = {"capacity": arrays["k_cache"].shape[1]}
        super().__init__(kernel, tokens, arrays, scalars, ("partial", "maximum", "total"))

    def written(self, name: str, columns: int | None) -> slice:
        """Rows are heads."""
        del name, columns
        return slice(0, self.kernel.dim("heads"))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """Each share as (greatest score, sum, sum times v); a share without keys is -inf, 0, 0."""
        del rows, columns
        heads, kv, dim, splits = (self.kernel.dim(n) for n in ("heads", "kv_heads", "head_dim", "splits"))
        block = int(self.kernel.spec["tile"]["block_n"])
        blocks = self.start // block + 1
        share = -(-blocks // splits) * block
        q = wide(self.arrays["q"][0]).reshape(heads, dim)
        maximum, total = np.full((heads, splits), -np.inf), np.zeros((heads, splits))
        partial, magnitude = np.zeros((heads, splits, dim)), np.zeros((heads, splits, dim))
        for s in range(splits):
            keys = slice(s * share, min((s + 1) * share, self.start + 1))
            if keys.start >= keys.stop:
                continue
            for h in range(heads):
                k, v = (wide(self.arrays[n][h * kv // heads, keys]) for n in ("k_cache", "v_cache"))
                scores = k @ q[h] / np.sqrt(dim)
                p = np.exp(scores - scores.max())
                maximum[h, s], total[h, s] = scores.max(), p.sum()
                partial[h, s], magnitude[h, s] = p @ v, p @ np.abs(v)
        place = slice(0, heads)
        with np.errstate(invalid="ignore"):
            yield Expected("maximum", place, maximum, np.full(maximum.shape, 1e-4))
        yield Expected("total", place, total, np.abs(total) * 1e-4 + 1e-6)
        yield Expected("partial", place, partial, magnitude * self.bf16_unit + 1e-4)


class Merge(Case):
    """Shares put together, some of them empty."""

    poisoned = None

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        heads, dim, splits = (kernel.dim(name) for name in ("heads", "head_dim", "splits"))
        maximum = normal(seed, (heads, splits)) * np.float32(5)
        total = np.abs(normal(seed + 1, (heads, splits))) + np.float32(0.5)
        partial = normal(seed + 2, (heads, splits, dim))
        empty = slice(splits - splits // 4, splits)
        maximum[:, empty], total[:, empty], partial[:, empty] = -np.inf, 0, 0
        arrays = {
            "maximum": f32(maximum),
            "total": f32(total),
            "partial": f32(partial),
            "qg": f32(normal(seed + 3, (tokens, heads * 2 * dim))),
            "o": blank("bf16", (tokens + SPARE_ROWS, heads * dim)),
        }
        super().__init__(kernel, tokens, arrays, {}, ("o",))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """f32 until the one rounding."""
        del columns
        maximum, total, partial = (wide(self.arrays[name]) for name in ("maximum", "total", "partial"))
        factor = np.exp(maximum - maximum.max(axis=1, keepdims=True))
        o = (factor[:, :, None] * partial).sum(axis=1) / (factor * total).sum(axis=1, keepdims=True)
        o = (o[None] * gates_of(self, rows)).reshape(1, -1)
        yield Expected("o", rows, o, self.rounding("o", o) + 1e-5)
