"""The list of a bundle: written and read alike, and nothing damaged is taken for a list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aimabuild.base.errors import CheckFailedError
from aimabuild.bundle.entries import (
    FILE,
    FOLDER,
    LINK,
    Entry,
    compare,
    list_text,
    parse_list,
    safe_path,
    safe_target,
)

HASH = "a" * 64
SAMPLE = [
    Entry(".", FOLDER, 0o755),
    Entry("bin", FOLDER, 0o755),
    Entry("bin/x", FILE, 0o755, 3, HASH),
    Entry("bin/y", LINK, 0o777, target="x"),
]

PART = st.text(
    st.characters(min_codepoint=32, exclude_characters="/\x7f", exclude_categories=["Cs"]),
    min_size=1,
    max_size=8,
)
PATHS = st.lists(PART.filter(lambda p: p not in {".", ".."}), min_size=1, max_size=4).map("/".join)


@given(paths=st.lists(PATHS, max_size=8, unique=True))
def test_round_trip(paths: list[str]) -> None:
    entries = {path: Entry(path, FILE, 0o644, index, HASH) for index, path in enumerate(paths)}
    assert parse_list(list_text(entries.values()).encode(), "list") == entries


def test_the_order_is_of_bytes_not_of_a_locale() -> None:
    names = ["b", "B", "a-", "a/x", "a", "é", "z"]
    text = list_text(Entry(name, FILE, 0o644, 0, HASH) for name in names)
    listed = [line.rsplit(" ", 1)[1] for line in text.splitlines()[1:]]
    assert listed == ["B", "a", "a-", "a/x", "b", "z", "é"]


def damage(change: tuple[str, str]) -> bytes:
    text = list_text(SAMPLE)
    assert change[0] in text
    return text.replace(*change, 1).encode()


@pytest.mark.parametrize(
    "change",
    [
        ("aima-manifest-v1", "aima-manifest-v2"),
        ("v1 4", "v1 5"),
        ("v1 4", "v1 04"),
        ("v1 4", "v1 99999999999"),
        ("d 0755 0 - bin\n", ""),
        ("d 0755 0 - bin\n", "d 0755 0 - bin\nd 0755 0 - bin\n"),
        ("0755 3 ", "755 3 "),
        ("0755 3 ", "0755 -3 "),
        ("0755 3 ", "0755 3.0 "),
        (HASH, "A" * 64),
        (HASH, "-"),
        (HASH, "a" * 63),
        ("bin/x", "bin/../x"),
        ("bin/x", "/bin/x"),
        ("bin/x", "bin//x"),
        ("bin/x", "bin/x\x01"),
        ("bin/y\tx", "bin/y"),
        ("bin/y\tx", "bin/y\t/etc/passwd"),
        ("bin/y\tx", "bin/y\t../../x"),
        ("f 0755", "x 0755"),
        ("d 0755 0 - .", "d 0755 0 - zz"),
    ],
)
def test_damaged_lists(change: tuple[str, str]) -> None:
    with pytest.raises(CheckFailedError, match="damaged"):
        parse_list(damage(change), "list")


@pytest.mark.parametrize("data", [b"", b"\xff", b"aima-manifest-v1 0", b"x" * (17 << 20)])
def test_what_is_no_list(data: bytes) -> None:
    with pytest.raises(CheckFailedError):
        parse_list(data, "list")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_or_one_error(data: bytes) -> None:
    try:
        parse_list(b"aima-manifest-v1 " + data, "list")
    except CheckFailedError as error:
        assert error.where  # noqa: PT017 - both outcomes are right, the kind of error is what counts


@pytest.mark.parametrize(
    "path", ["", "/a", "a//b", "a/./b", "../a", "a/..", "a\nb", "a\tb", "x/" * 40 + "x", "a" * 2000]
)
def test_unsafe_paths(path: str) -> None:
    assert safe_path(path)


@pytest.mark.parametrize(
    ("path", "target"), [("a", "/b"), ("a", "../b"), ("a/b", "../../c"), ("a", ""), ("a", "b\nc")]
)
def test_unsafe_targets(path: str, target: str) -> None:
    assert safe_target(path, target)


def test_safe_ones() -> None:
    assert safe_path("lib/libx＊.so") is None
    assert safe_target("lib/a/b", "../../bin/x") is None


def test_compare_lists_each_difference() -> None:
    wanted = {e.path: e for e in SAMPLE}
    found = dict(wanted)
    del found["bin/y"]
    found["bin/x"] = Entry("bin/x", FILE, 0o700, 3, "b" * 64)
    found["new"] = Entry("new", FOLDER, 0o755)
    lines = compare(wanted, found)
    assert lines == [
        "bin/x: the mode is 0700, not 0755",
        "bin/x: the content differs",
        "bin/y: is missing",
        "new: is not in the list",
    ]


def test_a_umask_is_no_difference_but_a_single_mode_is() -> None:
    wanted = {e.path: e for e in SAMPLE}
    found = {
        e.path: Entry(
            e.path, e.kind, e.mode & ~0o077 if e.kind != LINK else e.mode, e.size, e.sha256, e.target
        )
        for e in SAMPLE
    }
    assert compare(wanted, found, umask=0o077) == []
    assert compare(wanted, found)
    found["bin/x"] = wanted["bin/x"]
    assert compare(wanted, found, umask=0o077) == ["bin/x: the mode is 0755, not 0700"]
