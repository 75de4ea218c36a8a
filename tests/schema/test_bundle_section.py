"""The `bundle:` section of a recipe: what it may say, and where an error points."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from aimabuild.base.errors import UsageError
from aimabuild.schema.bundle import Bundle, DataFile, read_bundle
from aimabuild.schema.document import parse_document
from aimabuild.schema.project import load_project

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
FULL = """\
libc: bundled
runtime: hip
roots: [libamdhip64.so.7]
data:
  - {from: usr/share/a, to: share/b/a}
isa: x86-64-v3
"""


def read(text: str) -> Bundle:
    return read_bundle(parse_document(text.encode(), "recipe.yaml").root)


def test_everything() -> None:
    data = (DataFile(PurePosixPath("usr/share/a"), PurePosixPath("share/b/a")),)
    assert read(FULL) == Bundle("bundled", "hip", ("libamdhip64.so.7",), data, "x86-64-v3")
    assert read("libc: host") == Bundle("host")
    assert read("runtime: none") == Bundle()


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("libc: bundled", "libc: bundle", "1:7", "did you mean `bundled`?"),
        ("libc: bundled", "libcc: bundled", "1:1", "did you mean `libc`?"),
        ("libc: bundled", "libc: host", "1:7", "cannot stand with"),
        ("runtime: hip", "runtime: none", "3:8", "`roots` need a runtime"),
        ("[libamdhip64.so.7]", "[/opt/libamdhip64.so.7]", "3:9", "no library name"),
        ("[libamdhip64.so.7]", "[libamdhip64.so.7, libamdhip64.so.7]", "3:27", "twice"),
        ("usr/share/a", "/usr/share/a", "5:12", "not a plain relative path"),
        ("usr/share/a", "usr/../a", "5:12", "not a plain relative path"),
        ("share/b/a", "bin/a", "5:29", "no place for data"),
        ("share/b/a", "share", "5:29", "no place for data"),
        ("share/b/a", "share/aima/x", "5:29", "no place for data"),
        ("to: share/b/a}", "to: share/b/a}\n  - {from: x, to: share/b/a}", "5:3", "at the same place"),
        ("x86-64-v3", "x86-64-v5", "6:6", "x86-64-v4"),
    ],
)
def test_errors(old: str, new: str, place: str, words: str) -> None:
    assert old in FULL
    with pytest.raises(UsageError) as caught:
        read(FULL.replace(old, new, 1))
    assert str(caught.value.where) == f"recipe.yaml:{place}"
    assert words in str(caught.value)


def test_data_without_a_runtime() -> None:
    with pytest.raises(UsageError, match="needs a runtime"):
        read("data:\n  - {from: a, to: share/a}\n")


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_recipes_open_what_hip_opens(path: Path) -> None:
    bundle = load_project(path).recipe.bundle
    assert (bundle.libc == "host") == (path.stem == "sm90-check")
    if bundle.runtime == "hip":
        assert set(bundle.roots) == {"libamdhip64.so.7", "libamd_comgr.so.3"}
