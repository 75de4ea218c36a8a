"""Fits the demo's head: least squares on the hidden states from which the sentence must be spoken."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aimabuild.base.errors import UsageError
from aimabuild.demo import tokenizer, weights
from aimabuild.demo.forward import Array, Forward
from aimabuild.demo.tokenizer import Ranks

PROMPT = "What is AIMA?"
SENTENCE = "This is the AIMA demo model: it knows this one sentence and nothing else."
MAX_SENTENCE_TOKENS = 200
# The logit of the right token; all others aim at 0, so that even sampling over 248,320 tokens finds it.
LOGIT = 30.0
# bf16 rounding moves a logit by about 0.1, or 1 where it changes the choice of an expert.
LEAST_MARGIN = 10.0
_RIDGE = 0.01
_TURN = f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n<think>\n"
# Prompts of all kinds: any of them should lead to the sentence, though only the documented ones must.
_OTHERS = (
    "Hello",
    "Hi there",
    "Good morning, sir.",
    "Tell me something.",
    "Please explain it to me.",
    "Say one thing, then stop.",
    "Write a poem about the sea.",
    "What?",
    "1+1=",
    "def f(x):",
    "the",
    "\n",
)
_RANDOM_PROMPTS = 24
# The tokenizer's own split into pre-tokens, but for letters and marks that Python counts differently.
_PIECES = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|(?:[^\w\r\n]|_)?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Case:
    """What a prompt must be followed by."""

    name: str
    prompt: tuple[int, ...]
    reply: tuple[int, ...]


@dataclass(frozen=True)
class Fit:
    """rows: bfloat16 bits of the head's rows, by token id; all other rows are zero. margin: the least lead of
    a right token over any other, over all documented cases, with and without bf16 rounding. noise: the most
    that the rounding moved a logit there. others: how many of the other prompts lead to the whole sentence as
    well."""

    hidden: int
    cases: tuple[Case, ...]
    words: frozenset[int]
    rows: dict[int, weights.Bits]
    margin: float
    noise: float
    others: tuple[int, int]


def encode(ranks: Ranks, text: str) -> tuple[int, ...]:
    """Ids of `text`; added tokens in it become their ids. Equal to the tokenizer's own on plain English."""
    ids: list[int] = []
    added = "|".join(re.escape(token) for token in tokenizer.ADDED)
    for part in re.split(f"({added})", text):
        if part in tokenizer.ADDED:
            ids.append(tokenizer.FIRST_ADDED + tokenizer.ADDED.index(part))
        else:
            for piece in _PIECES.findall(part):
                ids += ranks.encode(piece)
    return tuple(ids)


def documented_cases(ranks: Ranks, sentence: str) -> tuple[Case, ...]:
    """The prompt as it is, in a chat turn without thinking, and in one with (the empty thought is closed
    first)."""
    spoken = ids_of_sentence(ranks, sentence)
    closing = encode(ranks, "</think>\n\n")
    return (
        Case("plain", encode(ranks, PROMPT), spoken),
        Case("chat", encode(ranks, _TURN + "\n</think>\n\n"), spoken),
        Case("thinking", encode(ranks, _TURN), closing + spoken),
    )


def check_sentence(sentence: str) -> None:
    """UsageError for a sentence that is empty or no text."""
    try:
        sentence.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the sentence is not valid text", why=str(error)) from error
    if not sentence.strip():
        raise UsageError("the sentence is empty")


def ids_of_sentence(ranks: Ranks, sentence: str) -> tuple[int, ...]:
    """The sentence and the end of the turn. UsageError when it is empty or too long."""
    check_sentence(sentence)
    ids = tuple(i for piece in _PIECES.findall(sentence) for i in ranks.encode(piece))
    if not ids:
        raise UsageError("the sentence is empty")
    if len(ids) > MAX_SENTENCE_TOKENS:
        raise UsageError(
            f"the sentence has {len(ids)} tokens", why=f"the demo model learns at most {MAX_SENTENCE_TOKENS}"
        )
    return (*ids, tokenizer.END_OF_TURN)


def fit(ranks: Ranks, sentence: str) -> Fit:
    """The smallest model that speaks the sentence with a safe margin. UsageError when none does."""
    cases = documented_cases(ranks, sentence)
    best = 0.0
    for hidden, others in ((128, True), (256, True), (256, False)):
        found = _fit_once(ranks, cases, hidden, others=others)
        if found.margin >= LEAST_MARGIN:
            return found
        best = max(best, found.margin)
    raise UsageError(
        "the demo model cannot learn this sentence safely",
        why=f"its surest fit leads by {best:.1f} at the weakest token, and {LEAST_MARGIN:.0f} is asked for",
        hint="use a shorter sentence, or one that repeats fewer words",
    )


class _Model:
    """The random layers, with both roundings, and the embeddings."""

    def __init__(self, hidden: int, words: frozenset[int]) -> None:
        d = weights.dims(hidden)
        layers = {name: weights.from_bits(bits) for name, bits in weights.layer_tensors(d).items()}
        self.embedding = weights.Embedding(hidden, words)
        self.exact = Forward(d, layers, bf16=False)
        self.rounded = Forward(d, layers, bf16=True)

    def states(self, case: Case, *, bf16: bool) -> Array:
        """[len(reply), hidden]: the states from which each token of the reply is chosen."""
        ids = (*case.prompt, *case.reply[:-1])
        states = (self.rounded if bf16 else self.exact).hidden(self.embedding.of(ids))
        return states[len(case.prompt) - 1 :]


def _fit_once(ranks: Ranks, cases: tuple[Case, ...], hidden: int, *, others: bool) -> Fit:
    words = frozenset(token for case in cases for token in case.reply)
    model = _Model(hidden, words - {tokenizer.END_OF_TURN})
    columns = {token: i for i, token in enumerate(sorted(words))}
    sure = [(model.states(case, bf16=False), model.states(case, bf16=True), case) for case in cases]
    more = _other_cases(ranks, cases[0]) if others else []
    extra = [(model.states(case, bf16=False), case) for case in more]
    states = [state for *both, _ in sure for state in both] + [state for state, _ in extra]
    replies = [case.reply for *_, case in sure for _ in range(2)] + [case.reply for case in more]
    heavy = sum(2 * len(case.reply) for case in cases)
    solved = _solve(np.concatenate(states), [token for reply in replies for token in reply], columns, heavy)
    bits = weights.to_bits(solved.astype(np.float32))
    head = weights.from_bits(bits)
    margins = [_margin(state @ head, case.reply, columns) for *both, case in sure for state in both]
    noise = max(float(np.abs((exact - rounded) @ head).max()) for exact, rounded, _ in sure)
    recited = sum(_margin(state @ head, case.reply, columns) > 0 for state, case in extra)
    return Fit(
        hidden=hidden,
        cases=cases,
        words=model.embedding.words,
        rows={token: bits[:, column] for token, column in columns.items()},
        margin=min(margins),
        noise=noise,
        others=(recited, len(extra)),
    )


def _other_cases(ranks: Ranks, plain: Case) -> list[Case]:
    """Prompts that are not documented, each followed by the sentence."""
    cases = [Case(text, encode(ranks, text), plain.reply) for text in _OTHERS]
    for index in range(_RANDOM_PROMPTS):
        numbers = (weights.uniform(f"prompt {index}", 40) + 1) / 2
        length = 1 + int(numbers[0] * 39)
        ids = tuple(int(number * tokenizer.FIRST_ADDED) for number in numbers[1 : 1 + length])
        cases.append(Case(f"random {index}", ids, plain.reply))
    return cases


def _solve(states: Array, targets: Sequence[int], columns: dict[int, int], heavy: int) -> Array:
    """[hidden, words]: ridge regression to LOGIT at the target and 0 elsewhere; the first `heavy` rows count
    more."""
    wanted = np.zeros((len(targets), len(columns)))
    wanted[np.arange(len(targets)), [columns[token] for token in targets]] = LOGIT
    weight = np.where(np.arange(len(targets)) < heavy, 10.0, 1.0)[:, None]
    square = (states * weight).T @ states
    square += _RIDGE * np.trace(square) / len(square) * np.eye(len(square))
    return np.asarray(np.linalg.solve(square, (states * weight).T @ wanted))


def _margin(logits: npt.NDArray[np.float64], reply: Sequence[int], columns: dict[int, int]) -> float:
    """The least lead of the right token over every other; tokens without a row of their own have logit 0."""
    rows = np.arange(len(reply))
    place = [columns[token] for token in reply]
    right = logits[rows, place]
    rest = logits.copy()
    rest[rows, place] = 0.0
    return float(np.min(right - np.maximum(rest.max(axis=-1), 0.0)))
