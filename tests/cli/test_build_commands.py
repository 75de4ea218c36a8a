"""`aimabuild plan` and `render` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from mini import Mini

from aimabuild.base.errors import UsageError
from aimabuild.cli import cli
from aimabuild.cli.build import find_recipe


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def test_plan_prints_a_table_and_counts(mini: Mini) -> None:
    result = run("plan", str(mini.recipe))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[-1] == "small: 4 kernels from 3 objects for gfx1151"
    assert lines[0].split() == ["kernel", "template", "tokens", "tile", "budget"]
    assert len(lines) == 6


def test_the_reasons_of_a_plan_are_grouped_by_the_line_that_asks(mini: Mini) -> None:
    lines = run("plan", str(mini.recipe), "--why").stdout.splitlines()
    ids = [kernel.id for kernel in mini.plan().kernels]
    choice = "the recipe's choice for its operation"
    assert lines[:3] == [
        f"shapes/small.yaml:10:11 asks for triton/scale, {choice}",
        "  tokens 1-64, tile block=64 num_warps=4, budget spills=0",
        f"    {ids[0]}",
    ]
    assert lines[3].startswith("shapes/small.yaml:11:11 asks for")
    assert lines[6] == f"shapes/small.yaml:17:11 asks for ck/matmul, {choice}"
    shared = mini.plan().kernels[2].object
    assert lines[8:10] == [f"    {name}  (object {shared} serves 2 kernels)" for name in ids[2:]]
    assert lines[10:] == ["small: 4 kernels from 3 objects for gfx1151"]


def test_plan_as_json(mini: Mini) -> None:
    value = json.loads(run("plan", str(mini.recipe), "--json").stdout)
    assert value["schema"] == "aimabuild/plan/v1"
    assert [kernel["tokens"] for kernel in value["kernels"]] == [[1, 64], [65, 8192], [1, 8192], [1, 8192]]
    assert value["kernels"][0]["asked_at"] == "shapes/small.yaml:10:11"
    assert len(value["objects"]) == 3


def test_render_writes_once(mini: Mini) -> None:
    target = mini.root / "out"
    first = json.loads(run("render", str(mini.recipe), "--to", str(target), "--json").stdout)
    assert first["schema"] == "aimabuild/render/v1"
    assert sorted(first["written"]) == sorted(first["files"])
    assert all((target / name).is_file() for name in first["files"])
    second = json.loads(run("render", str(mini.recipe), "--to", str(target), "--json").stdout)
    assert second["written"] == []
    result = run("render", str(mini.recipe))
    assert (mini.root / "build/small/kernels").is_dir()
    assert "9 files" in result.stdout


def test_render_prints_one_kernel(mini: Mini) -> None:
    result = run("render", str(mini.recipe), "--stdout", "scale-triton-n256-bf16-t1")
    assert result.exit_code == 0, result.output
    assert "def aima_scale_triton_n256_bf16_t1(" in result.stdout
    shared = run("render", str(mini.recipe), "--stdout", "matmul-ck-n64")
    assert "aima_fill_matmul_ck_" in shared.stdout
    with pytest.raises(UsageError, match="no kernel `scal`"):
        cli.main(["render", str(mini.recipe), "--stdout", "scal"], standalone_mode=False)


def test_a_mistake_in_the_shapes_is_a_usage_error(mini: Mini) -> None:
    mini.edit("shapes/small.yaml", "{block: 128}", "{blok: 128}")
    with pytest.raises(UsageError, match="no tile parameter `blok`"):
        cli.main(["plan", str(mini.recipe)], standalone_mode=False)


def test_a_recipe_may_be_named_shortly(mini: Mini, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mini.root)
    for name in ("small", "small.yaml", "recipes/small", "recipes/small.yaml"):
        assert find_recipe(Path(name)) == Path("recipes/small.yaml")
    assert find_recipe(mini.recipe) == mini.recipe
    assert "small: 4 kernels" in run("plan", "small").stdout


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("smal", "did you mean `recipes/small.yaml`?"),
        ("recipes/smal.yaml", "did you mean `recipes/small.yaml`?"),
        ("kernels", "name the recipe first: aimabuild build recipes/gfx1151-bf16.yaml kernels"),
        ("zzz", "recipes: recipes/small.yaml"),
        ("recipes", "recipes: recipes/small.yaml"),
    ],
)
def test_an_unknown_recipe_has_a_hint(
    mini: Mini, monkeypatch: pytest.MonkeyPatch, name: str, hint: str
) -> None:
    monkeypatch.chdir(mini.root)
    with pytest.raises(UsageError, match="no such recipe") as caught:
        find_recipe(Path(name))
    assert caught.value.hint == hint


def test_outside_the_project_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="this is no project") as caught:
        find_recipe(Path("small"))
    assert "project's folder" in str(caught.value.hint)
