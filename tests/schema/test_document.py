"""aimabuild.schema.document: what is read, what is refused, and that every refusal has its place."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mini import MATMUL, RECIPE, SCALE, SHAPES

from aimabuild.base.errors import UsageError
from aimabuild.schema.document import MAX_BYTES, MAX_DEPTH, MAX_NODES, Document, Location, parse_document
from aimabuild.schema.recipe import recipe_from
from aimabuild.schema.shapes import shapes_from
from aimabuild.schema.template import template_from

PLACE = re.compile(r"in\.yaml:[0-9]+:[0-9]+\Z")
TEXTS = {".py.j2": "", ".hip.j2": "", ".host.cpp.j2": ""}


def parse(text: str | bytes) -> Document:
    return parse_document(text.encode() if isinstance(text, str) else text, "in.yaml")


def refusal(text: str | bytes) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse(text)
    return caught.value


def read(kind: str, data: bytes) -> object:
    document = parse_document(data, "in.yaml")
    if kind == "shapes":
        return shapes_from(document)
    if kind == "recipe":
        return recipe_from(document)
    return template_from(document, "triton/scale", TEXTS)


VALID = [("shapes", SHAPES), ("recipe", RECIPE), ("template", SCALE), ("template", MATMUL)]


def test_nodes_know_their_path_and_place() -> None:
    root = parse("a:\n  b: [1, {c: 2}]\n").root
    node = root["a"].mapping()["b"].sequence()[1].mapping()["c"]
    assert node.path == "a.b[1].c"
    assert node.location == Location("in.yaml", 2, 14)
    assert node.integer() == 2


def test_integers_texts_and_truth_values_do_not_mix() -> None:
    root = parse("i: 1\nt: 'x'\nq: '1'\nb: true\nn: -3\nz: 0\nr: 1.5\n").root
    assert root["i"].integer() == 1
    assert root["n"].integer() == -3
    assert root["z"].integer() == 0
    assert root["q"].text() == "1"
    assert root["b"].boolean() is True
    assert root["r"].number() == 1.5
    assert root["i"].number() == 1.0
    for key, method in (
        ("b", "integer"),
        ("q", "integer"),
        ("r", "integer"),
        ("i", "boolean"),
        ("i", "text"),
    ):
        with pytest.raises(UsageError):
            getattr(root[key], method)()


@pytest.mark.parametrize(
    "word", ["on", "off", "yes", "No", "TRUE", "null", "~", "1_000", "0x10", "0o7", "1e3", "1:30"]
)
def test_words_that_yaml_may_read_otherwise_are_refused(word: str) -> None:
    node = parse(f"a: {word}\n").root["a"]
    for method in ("text", "integer", "boolean"):
        with pytest.raises(UsageError, match=r"`a`: expected"):
            getattr(node, method)()
    assert parse(f"a: '{word}'\n").root["a"].text() == word


@pytest.mark.parametrize("word", [".inf", "-.inf", ".nan", "nan", "1e999", "0x1p3"])
def test_numbers_are_finite(word: str) -> None:
    with pytest.raises(UsageError, match="expected a finite number"):
        parse(f"a: {word}\n").root["a"].number()


@pytest.mark.parametrize("word", ["007", "1_000", "+1", "1.0", "9" * 30])
def test_integers_are_plain_decimal(word: str) -> None:
    with pytest.raises(UsageError, match="expected a whole number"):
        parse(f"a: {word}\n").root["a"].integer()


def test_limits_of_integers() -> None:
    node = parse("a: 5\n").root["a"]
    assert node.integer(minimum=5, maximum=5) == 5
    with pytest.raises(UsageError, match="5 is below the minimum 6"):
        node.integer(minimum=6)
    with pytest.raises(UsageError, match="5 is above the maximum 4"):
        node.integer(maximum=4)


def test_unknown_missing_and_misspelt_keys() -> None:
    root = parse("summary: x\ntarget: y\n").root
    root.only(("summary",), ("target",))
    with pytest.raises(UsageError, match="unknown key `target`") as caught:
        root.only(("summary",), ("targets",))
    assert caught.value.where == "in.yaml:2:1"
    assert caught.value.hint == "did you mean `targets`?"
    with pytest.raises(UsageError, match="the key `name` is missing"):
        root.only(("summary", "name"), ("target",))


def test_choices_suggest() -> None:
    with pytest.raises(UsageError) as caught:
        parse("a: gfx1115\n").root["a"].choice(("gfx1151", "gfx1100"), "target")
    assert caught.value.hint == "did you mean `gfx1151`?"
    assert "unknown target `gfx1115`" in caught.value.what


REFUSED = [
    ("", "empty", "in.yaml:1:1"),
    ("# only a comment\n", "empty", "in.yaml:1:1"),
    ("- a\n", "expected a mapping", "in.yaml:1:1"),
    ("a: 1\na: 2\n", "stands twice", "in.yaml:2:1"),
    ("a: {b: 1, b: 2}\n", "stands twice", "in.yaml:1:11"),
    ("a: &x 1\nb: *x\n", "anchors and aliases", "in.yaml:1:4"),
    ("a: [1, *x]\n", "anchors and aliases", "in.yaml:1:8"),
    ("<<: *x\n", "anchors and aliases", "in.yaml:1:5"),
    ("a: !!python/object:os.system x\n", "tags", "in.yaml:1:4"),
    ("a: !foo {b: 1}\n", "tags", "in.yaml:1:4"),
    ("a: 1\n---\nb: 2\n", "second document", "in.yaml:2:1"),
    ("? [1, 2]\n: 3\n", "a key must be a word", "in.yaml:1:3"),
    ("a: [1\nb: 2\n", "not valid YAML", "in.yaml:2:2"),
    ("a: 'x\n", "not valid YAML", "in.yaml:2:1"),
    ("a: b: c\n", "not valid YAML", "in.yaml:1:5"),
    ("\ta: 1\n", "not valid YAML", "in.yaml:1:1"),
    ("a: \x07\n", "a character that YAML does not allow: U+0007", "in.yaml:1:4"),
    (b"a: 1\nb: \xff\n", "not UTF-8 text: byte 0xff", "in.yaml:2:4"),
    (b"\xff\xfea\x00", "not UTF-8 text", "in.yaml:1:1"),
    ('a: "\\UFFFFFFFF"\n', "not valid YAML", "in.yaml:1:1"),
    ("[" * 5000, "nested deeper", f"in.yaml:1:{MAX_DEPTH + 2}"),
    ("a: " + "{b: " * 3000 + "\n", "nested deeper", None),
    ("a: [" + "1," * (MAX_NODES + 1) + "]\n", "more than", None),
    ("a" * (MAX_BYTES + 1), "too large", "in.yaml:1:1"),
]


@pytest.mark.parametrize(("text", "message", "where"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_what_is_no_document_of_ours(text: str | bytes, message: str, where: str | None) -> None:
    error = refusal(text)
    assert message in str(error)
    assert where is None or error.where == where
    assert PLACE.match(error.where or "")
    assert len(str(error)) < 600


def test_a_byte_order_mark_is_accepted() -> None:
    assert parse(b"\xef\xbb\xbfa: 1\n").root["a"].integer() == 1


def test_versions() -> None:
    assert parse("schema: aimabuild/shapes/v1\n").expect("shapes")
    for text, message in (
        ("a: 1\n", "the key `schema` is missing"),
        ("schema: aimabuild/shapes/v2\n", "unknown version"),
        ("schema: aimabuild/recipe/v1\n", "expected `aimabuild/shapes/v1`"),
        ("schema: 1\n", "expected text"),
    ):
        with pytest.raises(UsageError, match=message) as caught:
            parse(text).expect("shapes")
        assert PLACE.match(caught.value.where or "")


@pytest.mark.parametrize(("kind", "text"), VALID)
def test_the_samples_are_valid(kind: str, text: str) -> None:
    assert read(kind, text.encode())


def check_place(action: Callable[[], object]) -> None:
    """`action` succeeds, or raises a `UsageError` of one line with a place."""
    found: UsageError | None = None
    try:
        action()
    except UsageError as error:
        found = error
    assert found is None or PLACE.match(found.where or ""), found
    assert found is None or (found.what and "\n" not in found.what)


def mutated(text: str, choice: st.DataObject) -> bytes:
    """`text` after a few small edits: of bytes, of words, of lines."""
    data = text.encode()
    for _ in range(choice.draw(st.integers(1, 3))):
        at = choice.draw(st.integers(0, len(data)))
        kind = choice.draw(st.sampled_from(("insert", "delete", "word", "line", "swap")))
        if kind == "insert":
            data = data[:at] + choice.draw(st.binary(min_size=1, max_size=4)) + data[at:]
        elif kind == "delete":
            data = data[:at] + data[at + choice.draw(st.integers(1, 12)) :]
        elif kind == "word":
            words = [
                "on",
                "1_0",
                ".nan",
                "null",
                "[]",
                "{}",
                "&a",
                "*a",
                "!x",
                "-1",
                "9" * 25,
                "'",
                '"',
                "é",
                "a: b",
            ]
            data = data[:at] + choice.draw(st.sampled_from(words)).encode() + data[at:]
        else:
            lines = data.split(b"\n")
            first, second = (choice.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
            lines[first], lines[second] = lines[second], lines[first] if kind == "swap" else lines[second]
            data = b"\n".join(lines)
    return data


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_change_of_a_valid_file_loads_or_is_refused_with_its_place(data: st.DataObject) -> None:
    kind, text = data.draw(st.sampled_from(VALID))
    changed = mutated(text, data)
    check_place(lambda: read(kind, changed))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_parse_or_are_refused_with_their_place(data: bytes) -> None:
    check_place(lambda: parse(data))


def test_a_key_with_controls_is_shown_escaped() -> None:
    with pytest.raises(UsageError) as caught:
        parse('"a\\e[2J\\n": 1\n').root.only(("b",))
    assert caught.value.what == "unknown key `a\\x1b[2J\\n`"
    assert parse('"a\\e": {b: 1}\n').root["a\x1b"].mapping()["b"].path == "a\\x1b.b"
