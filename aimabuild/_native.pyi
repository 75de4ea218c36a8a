"""The native engine in process: a model folder, sequences on it, tokenizer, chat prompt (docs/bindings.md).

What fails in the engine arrives as `aimabuild.base.errors`: `UsageError` for what cannot be accepted, else
`AimaError`. The interpreter's lock is not held while the engine computes, and Ctrl-C ends a computation.
"""

import os
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

_Ids: TypeAlias = Sequence[int] | NDArray[np.integer]
_Floats: TypeAlias = NDArray[np.float32]
_Path: TypeAlias = str | os.PathLike[str]

class Tokenizer:
    """A tokenizer.json, exactly as Hugging Face `tokenizers` runs it."""

    def __init__(self, file: _Path) -> None:
        """UsageError for a missing or damaged file, and for a tokenizer of another kind."""
    @property
    def vocab_size(self) -> int:
        """Highest id that names a token, plus one."""
    def encode(self, text: str, *, added_tokens: bool = False) -> NDArray[np.int32]:
        """Ids of a text. Added tokens in it (`<|im_end|>`) are text unless `added_tokens`."""
    def decode(self, ids: _Ids, *, skip_special: bool = True) -> str:
        """Text of ids; bytes that are no UTF-8 become U+FFFD."""
    def encode_chat(self, prompt: ChatPrompt, *, typed_tokens: bool = False) -> ChatTokens:
        """Ids of a rendered chat: added tokens only in the template's own text, unless `typed_tokens`."""

class ChatPrompt:
    """A rendered prompt. Offsets count bytes of the text's UTF-8."""

    @property
    def text(self) -> str:
        """The prompt."""
    @property
    def trusted(self) -> list[tuple[int, int]]:
        """[begin, end) of what the template itself wrote."""
    @property
    def boundaries(self) -> list[int]:
        """Where turns and tool results begin."""
    @property
    def generation(self) -> int:
        """Where the generation prompt begins; the text's size when there is none."""

class ChatTokens:
    """A tokenised prompt. Positions count tokens."""

    @property
    def ids(self) -> NDArray[np.int32]:
        """The prompt."""
    @property
    def boundaries(self) -> list[int]:
        """Where turns and tool results begin."""
    @property
    def generation(self) -> int:
        """Where the generation prompt begins."""

def render_chat(request: str, *, openai: bool = False) -> ChatPrompt:
    """The prompt of a request, given as JSON text (`messages`, `tools`, `enable_thinking`, ...).

    openai: the request is what OpenAI clients send. UsageError with the place in the request.
    """

class Pass:
    """What one call computed: L layers, T tokens, V vocabulary rows, k experts per token."""

    @property
    def logits(self) -> _Floats:
        """[T, V], or [1, V] of the last token."""
    @property
    def experts(self) -> NDArray[np.int32] | None:
        """[L, T, k]: the experts chosen, in descending order of weight."""
    @property
    def weights(self) -> _Floats | None:
        """[L, T, k]: their weights; each row sums to 1."""
    @property
    def draft_logits(self) -> _Floats | None:
        """[T - 1, V] of the draft head (MTP): row t scores token t + 2."""
    @property
    def next(self) -> int:
        """The greedy next token; padding rows of the vocabulary are never chosen."""

class Snapshot:
    """A session as it was at a multiple of 64 tokens."""

    @property
    def position(self) -> int:
        """Tokens that it has taken in."""

class Session:
    """One sequence. After a call that was interrupted, only `clear` and `restore` work."""

    @property
    def position(self) -> int:
        """Tokens taken in so far."""
    @property
    def capacity(self) -> int:
        """Tokens that it can hold."""
    def prefill(self, ids: _Ids, *, every: bool = True, experts: bool = False, draft: bool = False) -> Pass:
        """Take tokens in; the position must be a multiple of 64.

        every: logits of all of them, else of the last. experts: the routers' choices too. draft: logits of
        the draft head too, which then has to see all of the sequence from its first token on.
        """
    def step(self, id: int, *, experts: bool = False) -> Pass:  # noqa: A002
        """Take one token in, by the recurrence."""
    def delta_state(self, layer: int) -> tuple[_Floats, _Floats]:
        """Of a linear-attention layer: state [value heads, key dim, value dim], conv inputs [3, channels]."""
    def snapshot(self) -> Snapshot:
        """Keep the state; the position must be a multiple of 64."""
    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot of any session of the same model."""
    def clear(self) -> None:
        """Back to position 0."""

class Model:
    """A model folder on the CPU device. One call computes at a time, others wait.

    isa: an instruction set of `usable_isas`; the default is the best.
    """

    def __init__(
        self, folder: _Path, *, math: Literal["bf16", "f32"] = "bf16", threads: int = 0, isa: str = ""
    ) -> None:
        """Load. threads: 0 is one for each usable core. UsageError for what is no such model."""
    @property
    def layers(self) -> list[str]:
        """`linear_attention` or `full_attention` for each layer."""
    @property
    def vocab(self) -> int:
        """Rows of the vocabulary, padding included."""
    @property
    def hidden(self) -> int:
        """Width of the residual stream."""
    @property
    def experts(self) -> int:
        """Experts of a layer."""
    @property
    def experts_per_token(self) -> int:
        """Experts that a token takes."""
    @property
    def max_positions(self) -> int:
        """The longest sequence."""
    @property
    def stop_ids(self) -> list[int]:
        """Tokens that end a reply."""
    @property
    def has_draft_head(self) -> bool:
        """Whether the checkpoint has the draft head's tensors (`mtp.*`)."""
    @property
    def device(self) -> str:
        """Processor, instruction set, threads."""
    @property
    def math(self) -> str:
        """`bf16` or `f32`."""
    @property
    def tokenizer(self) -> Tokenizer | None:
        """Of the folder's tokenizer.json; None without one."""
    def session(self, capacity: int, *, pass_tokens: int = 8192) -> Session:
        """A new sequence. pass_tokens: longest prefill pass, a multiple of 64; it changes no bit."""

def usable_isas() -> list[str]:
    """The instruction sets that this processor runs, the best first."""

def delta_rule(
    q: _Floats,
    k: _Floats,
    v: _Floats,
    g: _Floats,
    beta: _Floats,
    state: _Floats,
    *,
    chunks: bool,
    threads: int = 1,
    isa: str = "",
) -> tuple[_Floats, _Floats]:
    """The gated delta rule in f32 over T tokens: outputs [T, value heads, value dim] and the state after.

    q, k [T, key heads, key dim], normalised; v [T, value heads, value dim]; g (log decay) and beta
    [T, value heads]; state [value heads, key dim, value dim]. chunks: the chunk form, else the recurrence.
    """

def rope_tables(theta: float, rotary: int, start: int, count: int) -> tuple[_Floats, _Floats]:
    """cos and sin [count, rotary / 2] at positions start .. start + count - 1."""
