"""Shapes, templates and recipes as typed documents, and how a project is found and loaded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mini import Mini

from aimabuild.base.errors import UsageError
from aimabuild.schema.document import MAX_BYTES, read_input
from aimabuild.schema.project import find_root, load_project, load_template, template_names
from aimabuild.schema.targets import TARGETS

SHAPES, RECIPE = "shapes/small.yaml", "recipes/small.yaml"
SCALE, MATMUL = "templates/triton/scale.yaml", "templates/ck/matmul.yaml"

# (file, old text, new text, place, part of the message)
ERRORS = [
    (SHAPES, "kernels:", "kernel:", f"{SHAPES}:4:1", "did you mean `kernels`?"),
    (SHAPES, "hidden_size: 256", "hidden_size: 0", f"{SHAPES}:3:22", "below the minimum 1"),
    (SHAPES, "hidden_size: 256", "hidden_size: true", f"{SHAPES}:3:22", "found the truth value `true`"),
    (SHAPES, "hidden_size: 256", "hidden_size: 25_6", f"{SHAPES}:3:22", "write decimal digits alone"),
    (SHAPES, "- op: scale", "- op: Scale", f"{SHAPES}:5:9", "not an operation's name"),
    (SHAPES, "dims: {n: hidden_size}", "dims: {n: heads - 4}", f"{SHAPES}:6:15", "must be at least 1"),
    (SHAPES, "dims: {n: hidden_size}", "dims: {n: heads /}", f"{SHAPES}:6:15", "is not an expression"),
    (SHAPES, "dims: {n: hidden_size}", "dims: []", f"{SHAPES}:6:11", "at least 1 item"),
    (
        SHAPES,
        "dtype: bf16\n    templates:\n      triton",
        "dtype: bf61\n    templates:\n      triton",
        f"{SHAPES}:7:12",
        "`bf16`?",
    ),
    (SHAPES, "triton/scale:", "triton-scale:", f"{SHAPES}:9:7", "is not a template name"),
    (SHAPES, "[1, 64]", "[1, 64, 65]", f"{SHAPES}:10:20", "expected `[first, last]`"),
    (SHAPES, "[1, 64]", "[64, 1]", f"{SHAPES}:10:20", "the range is empty"),
    (SHAPES, "[1, 64]", "[0, 64]", f"{SHAPES}:10:21", "below the minimum 1"),
    (SHAPES, "[65, 8192]", "[65, 8193]", f"{SHAPES}:11:25", "above the maximum 8192"),
    (SHAPES, "{spills: 0}", "{spill: 0}", f"{SHAPES}:10:67", "did you mean `spills`?"),
    (SHAPES, "{spills: 0}", "{}", f"{SHAPES}:10:66", "limits nothing"),
    (SHAPES, "{spills: 0}", "{spills: -1}", f"{SHAPES}:10:75", "below the minimum 0"),
    (SHAPES, "budget: {gfx1151", "budget: {gfx115", f"{SHAPES}:10:57", "did you mean `gfx1151`?"),
    (RECIPE, "target: gfx1151", "target: gfx1151x", f"{RECIPE}:4:9", "did you mean `gfx1151`?"),
    (RECIPE, "name: small", "name: a/b", f"{RECIPE}:2:7", "cannot be a recipe's name"),
    (RECIPE, "math: bf16", "math: f16", f"{RECIPE}:6:7", "unknown math `f16`"),
    (RECIPE, "target: gfx1151", "target: none", f"{RECIPE}:5:1", "`shapes` needs a target"),
    (RECIPE, "shapes: [shapes/small.yaml]\n", "", f"{RECIPE}:1:1", "the key `shapes` is missing"),
    (RECIPE, "[shapes/small.yaml]", "[../x.yaml]", f"{RECIPE}:5:10", "inside the project"),
    (RECIPE, "[shapes/small.yaml]", "[/x.yaml]", f"{RECIPE}:5:10", "inside the project"),
    (
        RECIPE,
        "[shapes/small.yaml]",
        "[shapes/smal.yaml]",
        f"{RECIPE}:5:10",
        "did you mean `shapes/small.yaml`?",
    ),
    (RECIPE, "scale: triton/scale,", "scale: triton/scal,", f"{RECIPE}:8:18", "did you mean `triton/scale`?"),
    (RECIPE, "bundle:", "engine: {glibc: 2.28}\nbundle:", f"{RECIPE}:9:17", "write it in quotes"),
    (RECIPE, "bundle:", "engine: {glibc: '3'}\nbundle:", f"{RECIPE}:9:17", "is not a glibc version"),
    (SCALE, "compiler: triton", "compiler: tritn", f"{SCALE}:3:11", "did you mean `triton`?"),
    (SCALE, "targets: [gfx1151, sm_90]", "targets: []", f"{SCALE}:5:10", "at least 1 item"),
    (SCALE, "targets: [gfx1151, sm_90]", "targets: [sm_90, sm_90]", f"{SCALE}:5:18", "stands twice"),
    (
        SCALE,
        "{n: {multiple_of: 16, min: 16}}",
        "{n-m: {multiple_of: 16}}",
        f"{SCALE}:8:8",
        "cannot be the name of a dimension",
    ),
    (
        SCALE,
        "{n: {multiple_of: 16, min: 16}}",
        "{n: {multiple_of: 0}}",
        f"{SCALE}:8:25",
        "below the minimum 1",
    ),
    (SCALE, "tile: {block:", "tile: {n:", f"{SCALE}:9:8", "it means something else"),
    (SCALE, "tile: {block:", "tile: {lds_max:", f"{SCALE}:9:8", "it means something else"),
    (SCALE, "default: 4", "default: 3", f"{SCALE}:9:83", "must be one of 1, 2, 4"),
    (SCALE, 'require: "n % block == 0', 'require: "n % blok == 0', f"{SCALE}:10:19", "did you mean `block`?"),
    (
        SCALE,
        "{name: tokens, kind: i32}",
        "{name: tokens, kind: int}",
        f"{SCALE}:14:26",
        "unknown argument kind",
    ),
    (SCALE, "{name: tokens, kind: i32}", "{name: x, kind: i32}", f"{SCALE}:14:5", "stands twice"),
    (
        SCALE,
        "{name: tokens, kind: i32}",
        "{name: tokens, kind: pointer}",
        f"{SCALE}:14:5",
        "the key `dtype` is missing",
    ),
    (
        SCALE,
        "{name: tokens, kind: i32}",
        "{name: tokens, kind: f32, divisibility: 4}",
        f"{SCALE}:14:31",
        "unknown key",
    ),
    (SCALE, "constants: {N: n,", "constants: {N: m,", f"{SCALE}:15:16", "unknown name `m`"),
    (SCALE, "{var: tokens, div: 4}", "{var: token, div: 4}", f"{SCALE}:17:14", "did you mean `tokens`?"),
    (SCALE, "grid: [", "grid: [{count: 1}, {count: 1}, ", f"{SCALE}:17:7", "at most 3 axes"),
    (SCALE, "grid: [", "fill: true\ngrid: [", f"{SCALE}:18:7", "has no `grid`"),
    (SCALE, "compiler: triton", "compiler: hip", f"{SCALE}:1:1", "no source `triton/scale.hip.j2`"),
    (MATMUL, "fill: true\n", "", f"{MATMUL}:1:1", "the key `grid` is missing"),
    (MATMUL, "kind: struct, size: 64", "kind: struct", f"{MATMUL}:9:8", "the key `size` is missing"),
]


@pytest.mark.parametrize(("file", "old", "new", "where", "message"), ERRORS)
def test_a_mistake_is_named_with_its_place(
    mini: Mini, file: str, old: str, new: str, where: str, message: str
) -> None:
    mini.edit(file, old, new)
    with pytest.raises(UsageError) as caught:
        mini.project()
    assert message in str(caught.value)
    assert caught.value.where == where, str(caught.value)


def test_what_a_project_holds(mini: Mini) -> None:
    project = mini.project()
    assert project.recipe.name == "small"
    assert project.recipe.file == "recipes/small.yaml"
    assert project.recipe.engine.glibc == "2.28"
    assert project.recipe.kernels is not None
    assert project.recipe.kernels.serve == {"scale": ("triton/scale",), "matmul": ("ck/matmul",)}
    (shapes,) = project.shapes
    assert [kernel.dims for kernel in shapes.kernels] == [{"n": 256}, {"n": 256, "k": 64}, {"n": 64, "k": 64}]
    assert [kernel.out for kernel in shapes.kernels] == ["bf16", "bf16", "bf16"]
    scale = project.templates["triton/scale"]
    assert scale.tile["block"].choices == (64, 128, 256)
    assert scale.tile["num_warps"].default == 4
    assert scale.args[0].dtype == "dtype"
    assert scale.source.startswith("def {{ symbol }}")
    matmul = project.templates["ck/matmul"]
    assert (matmul.fill, matmul.grid, matmul.args[0].size) == (True, None, 64)
    assert matmul.directory == "ck"


def test_a_root_is_found_from_its_recipe(mini: Mini, tmp_path: Path) -> None:
    assert find_root(mini.recipe) == mini.root.resolve()
    outside = tmp_path / "other.yaml"
    outside.write_text("")
    with pytest.raises(UsageError, match="no project around this recipe"):
        find_root(outside)


def test_a_recipe_outside_is_loaded_with_a_root_given(mini: Mini, tmp_path: Path) -> None:
    outside = tmp_path / "other.yaml"
    outside.write_text(mini.recipe.read_text().replace("name: small", "name: other"))
    project = load_project(outside, mini.root)
    assert project.recipe.name == "other"
    assert project.recipe.file == str(outside)


def test_a_missing_recipe_suggests(mini: Mini) -> None:
    with pytest.raises(UsageError, match="no such recipe") as caught:
        load_project(mini.root / "recipes/smal.yaml", mini.root)
    assert caught.value.hint == "did you mean `small.yaml`?"


def test_template_names(mini: Mini) -> None:
    assert template_names(mini.root) == ("ck/matmul", "triton/scale")
    (mini.root / "templates/triton/scale.py.j2").write_bytes(b"a\n\xff\n")
    with pytest.raises(UsageError, match="not UTF-8 text") as caught:
        load_template(mini.root, "triton/scale")
    assert caught.value.where == "templates/triton/scale.py.j2:2"


def test_targets_state_the_same_facts() -> None:
    for name, target in TARGETS.items():
        assert target.name == name
        assert set(target.values()) == {"wave_size", "lds_max", "threads_max"}
        assert (target.vendor == "amd") == name.startswith("gfx")


@pytest.mark.parametrize("name", [SHAPES, RECIPE, SCALE, "templates/triton/scale.py.j2"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "sparse"])
def test_an_input_that_is_no_file_is_one_error(mini: Mini, name: str, kind: str) -> None:
    path = mini.root / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(UsageError) as caught:
        load_project(mini.recipe)
    if kind == "sparse":
        assert "too large" in caught.value.what


def test_a_loop_of_links_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for recipe in (tmp_path / "loop", tmp_path / "loop/recipe.yaml"):
        with pytest.raises(UsageError):
            load_project(recipe)
        with pytest.raises(UsageError):
            find_root(recipe)


def test_an_input_is_never_waited_for_nor_read_without_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match=r"not a regular file\n  why: it is a pipe"):
        read_input(tmp_path / "pipe", "pipe")
    with pytest.raises(UsageError, match="it is a device"):
        read_input(Path("/dev/zero"), "zero")
    with pytest.raises(UsageError, match="zero byte"):
        read_input(tmp_path / "a\0b", "a")
    (tmp_path / "most").write_bytes(b" " * MAX_BYTES)
    assert len(read_input(tmp_path / "most", "most")) == MAX_BYTES
    (tmp_path / "more").write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(UsageError, match="too large"):
        read_input(tmp_path / "more", "more")


def test_a_misspelt_template_in_the_shapes_has_its_place(mini: Mini) -> None:
    mini.edit(SHAPES, "triton/scale:", "triton/scal:")
    with pytest.raises(UsageError) as caught:
        load_project(mini.recipe)
    assert caught.value.where == f"{SHAPES}:9:7"
    assert caught.value.hint == "did you mean `triton/scale`?"
