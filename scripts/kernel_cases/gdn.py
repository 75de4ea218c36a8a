"""Gated DeltaNet (model.md 3.2)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernel_cases.base import SPARE_ROWS, Array, Case, Expected, Kernel, blank, f32, normal, to_bf16, wide
from kernel_cases.norm import silu

CHUNK = 64


def rows_of(values: Array, spare: int = SPARE_ROWS) -> Array:
    """The bits of f32 rows with untouchable ones behind them."""
    out = blank("f32", (len(values) + spare, *values.shape[1:]))
    out[: len(values)] = f32(values)
    return out


class Conv(Case):
    """Convolution of 4 taps, SiLU, the L2 norm of the heads of q and k, and the tail for the next pass."""

    poisoned = None

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        heads = 2 * kernel.dim("key_heads") + kernel.dim("value_heads")
        channels = heads * kernel.dim("head_dim")
        arrays = {
            "u": f32(normal(seed, (tokens, channels))),
            "tail": f32(normal(seed + 1, (3, channels))),
            "taps": f32(normal(seed + 2, (4, channels)) * np.float32(0.5)),
            "y": blank("f32", (tokens + SPARE_ROWS, channels)),
            "next_tail": blank("f32", (3 + SPARE_ROWS, channels)),
        }
        super().__init__(kernel, tokens, arrays, {}, ("y", "next_tail"))

    def written(self, name: str, columns: int | None) -> slice:
        """The tail has three rows."""
        del columns
        return slice(0, self.tokens if name == "y" else 3)

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """In f32 a sum of four products, one exponential and one root."""
        del columns
        keys, values, dim = (self.kernel.dim(name) for name in ("key_heads", "value_heads", "head_dim"))
        whole = np.concatenate([wide(self.arrays["tail"]), wide(self.arrays["u"])])
        taps = wide(self.arrays["taps"])
        y = sum(taps[j] * whole[rows + j] for j in range(4))
        y = silu(y).reshape(len(rows), 2 * keys + values, dim)
        norm = np.sqrt((y[:, : 2 * keys] ** 2).sum(axis=2, keepdims=True) + 1e-6)
        y[:, : 2 * keys] /= norm
        y[:, :keys] /= np.sqrt(dim)
        y = y.reshape(len(rows), -1)
        yield Expected("y", rows, y, np.abs(y) * 2e-6 + 1e-6)
        tail = whole[self.tokens : self.tokens + 3]
        yield Expected("next_tail", slice(0, 3), tail, np.full(tail.shape, 1e-30))


class Gates(Case):
    """g = decay * softplus(a + dt_bias), beta = sigmoid(b), in place"""

    poisoned = "a"

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        heads = kernel.dim("heads")
        a = normal(seed, (tokens, heads)) * np.float32(4)
        a[0, :2] = (40, -40)  # both ends of softplus
        arrays = {
            "a": rows_of(a),
            "b": rows_of(normal(seed + 1, (tokens, heads)) * np.float32(4)),
            "decay": f32(-np.exp(normal(seed + 2, (heads,)))),
            "dt_bias": f32(normal(seed + 3, (heads,))),
        }
        super().__init__(kernel, tokens, arrays, {}, ("a", "b"))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """softplus(x) = log(1 + e^x)"""
        del columns
        with np.errstate(over="ignore", invalid="ignore"):
            x = wide(self.before["a"][rows]) + wide(self.arrays["dt_bias"])
            g = wide(self.arrays["decay"]) * np.logaddexp(0, x)
            beta = 1 / (1 + np.exp(-wide(self.before["b"][rows])))
        yield Expected("a", rows, g, np.abs(g) * 4e-6 + 1e-7)
        yield Expected("b", rows, beta, np.abs(beta) * 2e-6)


class _Delta(Case):
    """Inputs that all stages of the delta rule share: normalised q and k, v, log decays, beta."""

    poisoned = None
    most_tokens = 500

    def common(self, kernel: Kernel, tokens: int, seed: int) -> dict[str, Array]:
        """Arrays qkv, g and beta."""
        keys, values, dim = (kernel.dim(name) for name in ("key_heads", "value_heads", "head_dim"))
        qkv = normal(seed, (tokens, 2 * keys + values, dim)).astype(np.float64)
        # Neighbouring keys are alike, as after a convolution: the triangular system is then far from I.
        qkv[1:, keys : 2 * keys] += qkv[:-1, keys : 2 * keys]
        qkv[:, : 2 * keys] /= np.sqrt((qkv[:, : 2 * keys] ** 2).sum(axis=2, keepdims=True) + 1e-6)
        qkv[:, :keys] /= np.sqrt(dim)
        draw = np.random.default_rng(seed + 5)
        g = -np.exp(draw.standard_normal((tokens, values)) - 2)
        g[:, 0] = -40.0  # a head that forgets at once
        g[:, 1 % values] = -1e-4  # and one that forgets nothing
        beta = 1 / (1 + np.exp(-draw.standard_normal((tokens, values))))
        return {"qkv": f32(qkv.reshape(tokens, -1)), "g": f32(g), "beta": f32(beta)}

    def parts(self) -> tuple[Array, Array, Array, Array, Array]:
        """q, k [T, value heads, dim] (each for its value head), v, g, beta, all f64."""
        keys, values, dim = (self.kernel.dim(name) for name in ("key_heads", "value_heads", "head_dim"))
        qkv = wide(self.arrays["qkv"]).reshape(self.tokens, -1, dim)
        group = values // keys
        q = np.repeat(qkv[:, :keys], group, axis=1)
        k = np.repeat(qkv[:, keys : 2 * keys], group, axis=1)
        return q, k, qkv[:, 2 * keys :], wide(self.arrays["g"]), wide(self.arrays["beta"])


class Step(_Delta):
    """One token of the recurrence: S <- e^g S; d = beta (v - S^T k); S <- S + k d^T; o = S^T q"""

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        values, dim = kernel.dim("value_heads"), kernel.dim("head_dim")
        arrays = self.common(kernel, tokens, seed)
        arrays["state"] = rows_of(normal(seed + 7, (values, dim, dim)), spare=1)
        arrays["o"] = blank("f32", (tokens + SPARE_ROWS, values * dim))
        super().__init__(kernel, tokens, arrays, {}, ("state", "o"))

    def written(self, name: str, columns: int | None) -> slice:
        """The states of all heads."""
        del columns
        return slice(0, self.kernel.dim("value_heads") if name == "state" else self.tokens)

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """Sums over 128 keys in f32."""
        del rows, columns
        q, k, v, g, beta = (part[0] for part in self.parts())
        values = self.kernel.dim("value_heads")
        state = wide(self.before["state"][:values]) * np.exp(g)[:, None, None]
        d = beta[:, None] * (v - np.einsum("hkv,hk->hv", state, k))
        state = state + k[:, :, None] * d[:, None, :]
        yield Expected("state", slice(0, values), state, np.full(state.shape, 1e-5))
        o = np.einsum("hkv,hk->hv", state, q).reshape(1, -1)
        yield Expected("o", slice(0, 1), o, np.full(o.shape, 1e-5))


def inverse_of(k: Array, g: Array, beta: Array) -> Array:
    """The inverse of A = I + tril(diag(beta)(D . KK^T), -1) of one head's chunk."""
    total = np.cumsum(g)
    d = np.exp(np.minimum(total[:, None] - total[None, :], 0))
    return np.linalg.inv(np.eye(len(k)) + np.tril(beta[:, None] * d * (k @ k.T), -1))


def inverses(k: Array, g: Array, beta: Array) -> Array:
    """[T, heads, CHUNK]: row i of its chunk's inverse, zero behind the chunk's last token."""
    full = np.zeros((*g.shape, CHUNK))
    for part in chunks(len(g)):
        for head in range(g.shape[1]):
            inverse = inverse_of(k[part, head], g[part, head], beta[part, head])
            full[part, head, : len(inverse)] = inverse
    return full


def applied(k: Array, v: Array, g: Array, beta: Array) -> tuple[Array, Array]:
    """U0 and W of all chunks, [T, heads, dim] each."""
    u, w = np.empty(v.shape), np.empty(v.shape)
    for part in chunks(len(g)):
        carried = beta[part] * np.exp(np.cumsum(g[part], axis=0))
        for head in range(g.shape[1]):
            inverse = inverse_of(k[part, head], g[part, head], beta[part, head])
            u[part, head] = inverse @ (beta[part, head, None] * v[part, head])
            w[part, head] = inverse @ (carried[:, head, None] * k[part, head])
    return u, w


def chunks(tokens: int) -> Iterator[slice]:
    """The chunks of a pass."""
    for first in range(0, tokens, CHUNK):
        yield slice(first, min(first + CHUNK, tokens))


class ChunkSolve(_Delta):
    """The inverse of every chunk's triangular system."""

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        arrays = self.common(kernel, tokens, seed)
        arrays["inverse"] = blank("f32", (tokens + SPARE_ROWS, kernel.dim("value_heads"), CHUNK))
        super().__init__(kernel, tokens, arrays, {}, ("inverse",))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """f32, and products of matrices as three products of bf16: 2^-16 of the magnitudes."""
        del columns
        _, k, _, g, beta = self.parts()
        inverse = inverses(k, g, beta)[rows]
        yield Expected("inverse", rows, inverse, np.full(inverse.shape, 2e-4))


class ChunkApply(_Delta):
    """U0 = A^-1 diag(beta) V and W = A^-1 diag(beta e^G) K of every chunk."""

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        width = kernel.dim("value_heads") * kernel.dim("head_dim")
        arrays = self.common(kernel, tokens, seed)
        self.kernel, self.tokens, self.arrays = kernel, tokens, arrays
        _, k, _, g, beta = self.parts()
        arrays["inverse"] = f32(inverses(k, g, beta))
        arrays["u"] = blank("f32", (tokens + SPARE_ROWS, width))
        arrays["w_high"] = blank("bf16", (tokens + SPARE_ROWS, width))
        arrays["w_low"] = blank("bf16", (tokens + SPARE_ROWS, width))
        super().__init__(kernel, tokens, arrays, {}, ("u", "w_high", "w_low"))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """2^-16 of the magnitudes."""
        del columns
        _, k, v, g, beta = self.parts()
        u, w = (full.reshape(self.tokens, -1)[rows] for full in applied(k, v, g, beta))
        yield Expected("u", rows, u, np.full(u.shape, 2e-4))
        # The second part is what the first lacks: the sum is W.
        yield Expected("w_high", rows, w, self.rounding("w_high", w) + 2e-4)
        rest = w - wide(self.arrays["w_high"][rows])
        yield Expected("w_low", rows, rest, np.full(rest.shape, 2e-4))


class ChunkScan(_Delta):
    """Chunk by chunk: the state before it is kept, U = U0 - W S, S <- e^{G_C} S + (e^{G_C - G} K)^T U"""

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        values, dim = kernel.dim("value_heads"), kernel.dim("head_dim")
        arrays = self.common(kernel, tokens, seed)
        self.kernel, self.tokens, self.arrays = kernel, tokens, arrays
        _, k, v, g, beta = self.parts()
        u, w = applied(k, v, g, beta)
        arrays["u"] = rows_of(u.reshape(tokens, -1))
        high = to_bf16(w.reshape(tokens, -1))
        arrays["w_high"] = high
        arrays["w_low"] = to_bf16(w.reshape(tokens, -1) - wide(high))
        arrays["state"] = rows_of(normal(seed + 7, (values, dim, dim)) * np.float32(0.3), spare=1)
        count = -(-tokens // CHUNK)
        arrays["states"] = blank("f32", (count * values + SPARE_ROWS, dim, dim))
        super().__init__(kernel, tokens, arrays, {}, ("u", "state", "states"))

    def written(self, name: str, columns: int | None) -> slice:
        """States of all heads, and of all chunks and heads."""
        del columns
        values, count = self.kernel.dim("value_heads"), -(-self.tokens // CHUNK)
        return slice(0, {"u": self.tokens, "state": values, "states": count * values}[name])

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """Errors carry from chunk to chunk."""
        del columns
        _, k, v, g, _ = self.parts()
        values = self.kernel.dim("value_heads")
        w = (wide(self.arrays["w_high"]) + wide(self.arrays["w_low"])).reshape(v.shape)
        u = wide(self.before["u"][: self.tokens]).reshape(v.shape)
        state = wide(self.before["state"][:values])
        states = []
        for part in chunks(self.tokens):
            states.append(state.copy())
            for head in range(values):
                u[part, head] -= w[part, head] @ state[head]
                total = np.cumsum(g[part, head])
                kept = np.exp(total[-1] - total)[:, None] * k[part, head]
                state[head] = np.exp(total[-1]) * state[head] + kept.T @ u[part, head]
        yield Expected("state", slice(0, values), state, np.full(state.shape, 3e-4))
        flat = np.concatenate(states)
        yield Expected("states", slice(0, len(flat)), flat, np.full(flat.shape, 3e-4))
        some = u.reshape(self.tokens, -1)[rows]
        yield Expected("u", rows, some, np.full(some.shape, 3e-4))


class ChunkOut(_Delta):
    """O = diag(e^G) Q S + (D . QK^T) U, D with its diagonal"""

    def __init__(self, kernel: Kernel, tokens: int, seed: int, columns: int | None) -> None:
        del columns
        values, dim = kernel.dim("value_heads"), kernel.dim("head_dim")
        arrays = self.common(kernel, tokens, seed)
        count = -(-tokens // CHUNK)
        arrays["u"] = f32(normal(seed + 8, (tokens, values * dim)))
        arrays["states"] = f32(normal(seed + 9, (count * values, dim, dim)) * np.float32(0.3))
        arrays["o"] = blank("f32", (tokens + SPARE_ROWS, values * dim))
        super().__init__(kernel, tokens, arrays, {}, ("o",))

    def expected(self, rows: Array, columns: int | None) -> Iterator[Expected]:
        """2^-16 of the magnitudes."""
        del columns
        q, k, v, g, _ = self.parts()
        values, dim = self.kernel.dim("value_heads"), self.kernel.dim("head_dim")
        u = wide(self.arrays["u"]).reshape(v.shape)
        states = wide(self.arrays["states"]).reshape(-1, values, dim, dim)
        o = np.empty(v.shape)
        for number, part in enumerate(chunks(self.tokens)):
            for head in range(values):
                total = np.cumsum(g[part, head])
                d = np.tril(np.exp(np.minimum(total[:, None] - total[None, :], 0)))
                o[part, head] = np.exp(total)[:, None] * (q[part, head] @ states[number, head])
                o[part, head] += (d * (q[part, head] @ k[part, head].T)) @ u[part, head]
        some = o.reshape(self.tokens, -1)[rows]
        yield Expected("o", rows, some, np.full(some.shape, 2e-4))
