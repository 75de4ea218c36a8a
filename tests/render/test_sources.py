"""aimabuild.render: golden texts, determinism, and errors in templates."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from mini import Mini

from aimabuild.base.errors import UsageError
from aimabuild.plan import make_plan
from aimabuild.render import render_object, render_plan, specs
from aimabuild.schema.project import load_project

ROOT = Path(__file__).parent.parent.parent
GOLDEN = Path(__file__).parent / "golden"
SCALE_SOURCE = "templates/triton/scale.py.j2"


def compare(name: str, text: str, *, update: bool) -> None:
    path = GOLDEN / name
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), "run pytest with --update-golden if the change is meant"


def test_rendered_files_are_the_golden_ones(mini: Mini, update_golden: bool) -> None:
    files = render_plan(mini.plan())
    text = "".join(f"===== {name}\n{data.decode()}" for name, data in sorted(files.items()))
    compare("mini.txt", text, update=update_golden)


@pytest.mark.parametrize("recipe", ["gfx1151-bf16", "gfx1201-bf16", "sm90-check"])
def test_the_repositorys_plans_are_the_golden_ones(recipe: str, update_golden: bool) -> None:
    project = load_project(ROOT / f"recipes/{recipe}.yaml", ROOT)
    plan = make_plan(project.recipe, project.shapes, project.templates)
    lines = [
        f"{kernel.name} {kernel.template} tokens={list(kernel.tokens)} primary={kernel.primary}"
        for kernel in plan.kernels
    ]
    compare(f"{recipe}.txt", "\n".join(lines) + "\n", update=update_golden)


@pytest.mark.parametrize("recipe", sorted(path.stem for path in (ROOT / "recipes").glob("*.yaml")))
def test_every_recipe_renders(recipe: str) -> None:
    project = load_project(ROOT / f"recipes/{recipe}.yaml", ROOT)
    assert project.recipe.name == recipe
    plan = make_plan(project.recipe, project.shapes, project.templates)
    files = render_plan(plan)
    assert len([name for name in files if name.endswith("/spec.json")]) >= len(plan.kernels)
    for item in plan.objects:
        source = files[f"{item.id}/{'kernel.py' if item.template.compiler == 'triton' else 'kernel.hip'}"]
        assert item.symbol.encode() in source


def test_the_tiny_shapes_plan_and_render(tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.yaml"
    text = (ROOT / "recipes/sm90-check.yaml").read_text()
    recipe.write_text(text.replace("shapes/qwen3.6-35b-a3b.yaml", "shapes/tiny.yaml"))
    project = load_project(recipe, ROOT)
    plan = make_plan(project.recipe, project.shapes, project.templates)
    assert {kernel.op for kernel in plan.kernels} == {"rms_norm", "gemm"}
    assert render_plan(plan)


@pytest.mark.parametrize("target", ["gfx1151"])
def test_every_kernel_of_the_release_states_its_budget(target: str) -> None:
    project = load_project(ROOT / f"recipes/{target}-bf16.yaml", ROOT)
    plan = make_plan(project.recipe, project.shapes, project.templates)
    for item in plan.objects:
        assert item.budget is not None, item.id
        assert item.budget.spills == 0, item.id
        assert item.budget.scratch == 0, item.id
        assert item.budget.occupancy is not None, item.id
        assert item.template.op != "gemm" or (item.budget.wmma_min or 0) > 0, item.id


def test_rendering_does_not_depend_on_place_or_time(mini: Mini, tmp_path: Path) -> None:
    first = render_plan(mini.plan())
    shutil.copytree(mini.root, tmp_path / "else where")
    assert render_plan(Mini(tmp_path / "else where").plan()) == first


def test_no_path_of_the_machine_is_rendered(mini: Mini) -> None:
    for name, data in render_plan(mini.plan()).items():
        assert str(mini.root).encode() not in data, name


def test_specs_of_shared_and_own_objects(mini: Mini) -> None:
    plan = mini.plan()
    found = specs(plan)
    assert list(found) == [kernel.id for kernel in plan.kernels] + [plan.objects[2].id]
    own, shared, whole = found[plan.kernels[0].id], found[plan.kernels[2].id], found[plan.objects[2].id]
    assert own["object"] == own["id"]
    assert own["grid"] == [
        {"var": "tokens", "mul": 1, "add": 0, "div": 4},
        {"var": "one", "mul": 4, "add": 0, "div": 1},
        {"var": "one", "mul": 1, "add": 0, "div": 1},
    ]
    assert "budget" not in own  # nothing that is made follows from it
    assert shared["object"] == whole["id"] == whole["object"]
    assert (shared["dims"], whole["dims"]) == ({"n": 256, "k": 64}, {})
    assert shared["fill"] == whole["fill"] == {"source": "host.cpp", "symbol": plan.objects[2].fill_symbol}
    assert (shared["tokens"], whole["tokens"]) == ([1, 8192], [1, 8192])
    json.dumps(found)


def test_the_header_names_id_template_and_tile(mini: Mini) -> None:
    item = mini.plan().objects[0]
    lines = render_object(item)["kernel.py"].splitlines()
    assert lines[0] == f"# {item.id}"
    assert lines[1] == "# templates/triton/scale.py.j2 for shapes/small.yaml on gfx1151: block=64 num_warps=4"
    host = render_object(mini.plan().objects[2])["host.cpp"]
    assert host.startswith(
        f"// {mini.plan().objects[2].id}\n// templates/ck/matmul.host.cpp.j2 for shapes/small.yaml"
    )


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("a\n{{ nothing }}\n", 2, "'nothing' is undefined"),
        ("a\nb\n{{ heads }}\n", 3, "'heads' is undefined"),
        ("{% if %}\n", 1, "cannot be parsed"),
        ("a\n{% for x in y %}\n", 2, "cannot be parsed"),
        ("a\n{{ BLOCK // 0 }}\n", 2, "cannot be rendered"),
        ("\n\n{{ cycler(3) }}\n", 3, "'cycler' is undefined"),
        ("{{ symbol.nope }}\n", 1, "has no attribute 'nope'"),
        ("{% include 'x' %}\n", 1, "cannot be rendered"),
    ],
)
def test_a_broken_template_is_named_with_its_line(mini: Mini, source: str, line: int, message: str) -> None:
    (mini.root / SCALE_SOURCE).write_text(source)
    with pytest.raises(UsageError) as caught:
        render_plan(mini.plan())
    assert message in str(caught.value)
    assert caught.value.where == f"{SCALE_SOURCE}:{line}"


def test_dimensions_that_are_not_compiled_in_are_out_of_reach(mini: Mini) -> None:
    path = mini.root / "templates/ck/matmul.hip.j2"
    path.write_text(path.read_text() + "{{ n }}\n")
    with pytest.raises(UsageError, match="'n' is undefined") as caught:
        render_plan(mini.plan())
    assert "constants" in (caught.value.hint or "")
