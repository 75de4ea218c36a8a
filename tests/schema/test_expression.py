"""aimabuild.schema.expression against Python's own arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aimabuild.base.errors import UsageError
from aimabuild.schema.document import Location, parse_document
from aimabuild.schema.expression import ceil_div, expression, next_pow2, parse_expression

HERE = Location("in.yaml", 3, 7)
VALUES = {"n": 512, "k": 48, "zero": 0}


def number(text: str) -> int:
    return parse_expression(text, HERE).integer(VALUES)


def numbers() -> st.SearchStrategy[str]:
    leaves = st.one_of(st.integers(0, 10_000).map(str), st.sampled_from(sorted(VALUES)))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(
                lambda t: f"({' '.join(t)})"
            ),
            inner.map(lambda text: f"(-{text})"),
            st.tuples(st.sampled_from(["min", "max", "ceil_div"]), inner, inner).map(
                lambda t: f"{t[0]}({t[1]}, {t[2]})"
            ),
            inner.map(lambda text: f"next_pow2({text})"),
        ),
        max_leaves=8,
    )


@settings(max_examples=300, deadline=None)
@given(numbers())
def test_numbers_are_pythons(text: str) -> None:
    assume(len(text) <= 300)
    names = {**VALUES, "min": min, "max": max, "ceil_div": ceil_div, "next_pow2": next_pow2}
    try:
        wanted = eval(text, {"__builtins__": {}}, names)  # noqa: S307 - the text is made above
    except ZeroDivisionError:
        with pytest.raises(UsageError, match="divides by zero"):
            number(text)
        return
    found: int | UsageError
    try:
        found = number(text)
    except UsageError as error:
        found = error
    if isinstance(found, UsageError):  # an overflow, which needs a large value somewhere
        assert "64 bits" in str(found)
        assert len(text) > 15
    else:
        assert found == wanted


@settings(max_examples=200, deadline=None)
@given(numbers(), numbers(), st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), st.booleans())
def test_comparisons_are_pythons(left: str, right: str, sign: str, negate: bool) -> None:
    text = f"not {left} {sign} {right}" if negate else f"{left} {sign} {right}"
    assume(len(text) <= 300)
    try:
        first, second = number(left), number(right)
    except UsageError:
        return
    wanted = eval(f"a {sign} b", {"a": first, "b": second})  # noqa: S307 - three words
    assert parse_expression(text, HERE).truth(VALUES) is (not wanted if negate else wanted)


def test_functions() -> None:
    assert [next_pow2(value) for value in (-1, 0, 1, 2, 3, 4, 5, 1023)] == [1, 1, 1, 2, 4, 4, 8, 1024]
    assert [ceil_div(value, 4) for value in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_chains_and_logic() -> None:
    for text, wanted in (
        ("0 < k <= n", True),
        ("n % 16 == 0 and k % 32 == 0", False),
        ("n % 16 == 0 and not k % 32 == 0", True),
        ("zero == 1 or k == 48", True),
    ):
        assert parse_expression(text, HERE).truth(VALUES) is wanted


def test_names() -> None:
    assert parse_expression("min(n, k) + n", HERE).names == {"n", "k"}
    with pytest.raises(UsageError, match="unknown name `nn`") as caught:
        number("nn + 1")
    assert caught.value.where == "in.yaml:3:7"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "n +",
            "n.real",
            "n[0]",
            "__import__('os')",
            "open(1)",
            "min(n)",
            "ceil_div(1)",
            "ceil_div(1, 2, 3)",
        ),
        *(
            "'a'",
            "1.5",
            "n ** 2",
            "n / 2",
            "n << 1",
            "n if k else 0",
            "lambda: 1",
            "[n]",
            "n; k",
            "n := 1",
            "True",
        ),
        *("n is k", "n in k", "min(*n)", "min(a=1, b=2)", "~n", "+n", "f'{n}'", "None", "(n,)", "1" * 400),
        *("(" * 250, "9" * 30, "print", "n\0"),
    ],
)
def test_what_is_not_in_the_language(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        number(text)
    assert caught.value.where == "in.yaml:3:7"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n == k", "a whole number is needed"),
        ("1 + (n == k)", "computes with a truth value"),
        ("n // zero", "divides by zero"),
        ("n % zero", "divides by zero"),
        ("ceil_div(n, zero)", "divides by zero"),
        ("4611686018427387904 * 4", "64 bits"),
        ("next_pow2(4611686018427387904) * 4", "64 bits"),
        ("not n", "a number where a comparison is needed"),
    ],
)
def test_what_cannot_be_computed(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        number(text)


def test_truth_needs_a_comparison() -> None:
    with pytest.raises(UsageError, match="a comparison is needed"):
        parse_expression("n", HERE).truth(VALUES)


def test_a_node_is_a_number_or_an_expression() -> None:
    root = parse_document(b"a: 12\nb: n * 2\nc: true\nd: '3'\ne: -4\n", "in.yaml").root
    assert [expression(root[key]).integer(VALUES) for key in "abde"] == [12, 1024, 3, -4]
    with pytest.raises(UsageError):
        expression(root["c"])
