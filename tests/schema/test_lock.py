"""The lock file: read back as written, and every mistake located."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aimabuild.base.errors import UsageError
from aimabuild.schema.lock import (
    DebianPackage,
    Lock,
    PythonPackage,
    Wheel,
    dump_lock,
    load_lock,
    parse_lock,
)

ROOT = Path(__file__).resolve().parents[2]
HASH = "0123456789abcdef" * 4
GOOD = Lock(
    suites=("sid", "experimental"),
    debian=(
        DebianPackage(
            "libx1", "1:2.0~rc1-3+b1", "amd64", "pool/main/x/x/libx1_2.0.deb", 7, HASH, "MIT", ("a", "b")
        ),
        DebianPackage("libx2", "2", "all", "pool/main/x/x/libx2_2_all.deb", 8, HASH[::-1], "Zlib", ("a",)),
    ),
    wheels=(Wheel("w", "1.0", "w-1.0-cp311-cp311-manylinux_2_28_x86_64.whl", 9, HASH, "MIT"),),
    pythons=("3.11", "3.12"),
    python=(PythonPackage("click", "8.1", "BSD-3-Clause", ("run",), (HASH,)),),
)


def edited(change: Any) -> str:
    """The good lock's text after `change(value)`."""
    value = json.loads(dump_lock(GOOD))
    change(value)
    return json.dumps(value, indent=1)


def test_read_back_as_written() -> None:
    assert parse_lock(dump_lock(GOOD), "x") == GOOD


def test_one_form_whatever_the_order() -> None:
    turned = Lock(GOOD.suites, GOOD.debian[::-1], GOOD.wheels, GOOD.pythons, GOOD.python)
    assert dump_lock(turned) == dump_lock(GOOD)


def test_groups_and_wheels_are_found_by_name() -> None:
    assert [package.name for package in GOOD.group("a")] == ["libx1", "libx2"]
    assert [package.name for package in GOOD.group("b")] == ["libx1"]
    assert GOOD.wheel("w") == GOOD.wheels
    assert GOOD.wheel("none") == ()


@pytest.mark.parametrize(
    ("filename", "fitting"),
    [
        ("w-1-py3-none-any.whl", [11, 12, 13]),
        ("w-1-py2.py3-none-manylinux_2_27_x86_64.whl", [11, 12, 13]),
        ("w-1-cp311-cp311-manylinux_2_28_x86_64.whl", [11]),
        ("w-1-cp312-abi3-manylinux_2_28_x86_64.whl", [12, 13]),
    ],
)
def test_which_python_a_wheel_fits(filename: str, fitting: list[int]) -> None:
    wheel = Wheel("w", "1", filename, 1, HASH, "MIT")
    assert [minor for minor in (11, 12, 13) if wheel.fits((3, minor))] == fitting


MISTAKES: dict[str, tuple[Any, str, str | None]] = {
    "version": (lambda v: v.update(schema="aimabuild/lock/v9"), "`schema`: expected", "only that version"),
    "no schema": (lambda v: v.pop("schema"), "the key `schema` is missing", "starts with"),
    "misspelt key": (
        lambda v: v["debian"]["packages"][1].update(sha265="x"),
        "`debian.packages[1].sha265`: unknown key",
        "did you mean `sha256`?",
    ),
    "unknown key": (lambda v: v.update(zzz=1), "`zzz`: unknown key", "known keys: schema, debian"),
    "missing key": (lambda v: v["wheels"][0].pop("size"), "`wheels[0]`: the key `size` is missing", None),
    "hash": (
        lambda v: v["debian"]["packages"][0].update(sha256="ABC"),
        "`debian.packages[0].sha256`: expected 64 hexadecimal digits, found 'ABC'",
        None,
    ),
    "path": (
        lambda v: v["debian"]["packages"][0].update(path="/etc/passwd"),
        "`debian.packages[0].path`: expected a path like",
        None,
    ),
    "path up": (
        lambda v: v["debian"]["packages"][0].update(path="pool/../../x.deb"),
        "must not contain `..`",
        None,
    ),
    "size": (
        lambda v: v["wheels"][0].update(size="9"),
        "`wheels[0].size`: expected a size in bytes, found text",
        None,
    ),
    "size true": (lambda v: v["wheels"][0].update(size=True), "found true or false", None),
    "size zero": (lambda v: v["wheels"][0].update(size=0), "found the number 0", None),
    "injection": (
        lambda v: v["wheels"][0].update(version="1.0\n--index-url x"),
        "`wheels[0].version`: expected a version",
        None,
    ),
    "filename": (lambda v: v["wheels"][0].update(filename="../w.whl"), "a wheel's file name", None),
    "arch": (lambda v: v["debian"]["packages"][0].update(arch="arm64"), "expected amd64 or all", None),
    "twice": (
        lambda v: v["debian"]["packages"].append(v["debian"]["packages"][0]),
        "`debian.packages[2]`: `libx1` is listed twice",
        None,
    ),
    "empty": (lambda v: v["python"].update(versions=[]), "`python.versions`: must not be empty", None),
    "list": (lambda v: v.update(wheels={}), "`wheels`: expected a list, found an object", None),
    "object": (lambda v: v["wheels"].append(None), "`wheels[1]`: expected an object, found null", None),
    "text": (lambda v: v["wheels"][0].update(licence=""), "expected text, found an empty string", None),
    "python hash": (
        lambda v: v["python"]["packages"][0].update(hashes=["x"]),
        "`python.packages[0].hashes[0]`",
        None,
    ),
}


@pytest.mark.parametrize("case", sorted(MISTAKES))
def test_mistakes_are_located(case: str) -> None:
    change, message, hint = MISTAKES[case]
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        parse_lock(edited(change), "aimabuild.lock")
    assert re.fullmatch(r"aimabuild\.lock:\d+:\d+", str(caught.value.where))
    assert (hint or "") in str(caught.value.hint or "")


def test_the_position_is_that_of_the_value() -> None:
    text = edited(lambda v: v["debian"]["packages"][1].update(size=-1))
    lines = text.splitlines()
    line = next(number for number, content in enumerate(lines, 1) if '"size": -1' in content)
    with pytest.raises(UsageError) as caught:
        parse_lock(text, "x")
    assert caught.value.where == f"x:{line}:{lines[line - 1].index('size')}"


def test_broken_json_and_doubled_keys(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not valid JSON") as caught:
        parse_lock('{\n "schema": oops}', "x")
    assert caught.value.where == "x:2:12"
    with pytest.raises(UsageError, match="`a` stands twice"):
        parse_lock('{"a": 1, "a": 2}', "x")
    with pytest.raises(UsageError, match="nested too deeply"):
        parse_lock("[" * 200_000, "x")
    with pytest.raises(UsageError, match="there is no lock file"):
        load_lock(tmp_path / "none.lock")
    (tmp_path / "bad.lock").write_bytes(b"\xff\xfe{}")
    with pytest.raises(UsageError, match="cannot be read"):
        load_lock(tmp_path / "bad.lock")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def _slots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, by path."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += _slots(inner, (*path, key))
    return found


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_replaced_value_is_accepted_or_located(data: st.DataObject) -> None:
    value = json.loads(dump_lock(GOOD))
    path = data.draw(st.sampled_from(_slots(value)))
    target = value
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = data.draw(JSON)
    try:
        lock = parse_lock(json.dumps(value), "x")
    except UsageError as error:
        assert re.fullmatch(r"x(:\d+:\d+)?", str(error.where))  # noqa: PT017 - both may happen
    else:
        assert parse_lock(dump_lock(lock), "x") == lock


def test_the_project_s_own_lock() -> None:
    path = ROOT / "aimabuild.lock"
    lock = load_lock(path)
    assert dump_lock(lock) == path.read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {package.name for package in lock.python}
    run = {package.name for package in lock.python if "run" in package.groups}
    for line in project["dependencies"]:
        assert re.split(r"[><=!~ ]", line)[0].lower() in run
    for line in project["optional-dependencies"]["dev"]:
        assert line.lower() in names
    assert lock.pythons == ("3.11", "3.12", "3.13", "3.14")
