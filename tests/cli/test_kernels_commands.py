"""`aimabuild kernels` and `aimabuild disasm` on a build that is written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from mini import Mini

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.cli import cli
from aimabuild.cli import kernels as module
from aimabuild.compile.report import natural

RESOURCES = {
    "vgpr": 97,
    "sgpr": 22,
    "vgpr_spills": 0,
    "sgpr_spills": 0,
    "scratch": 0,
    "lds_static": 0,
    "lds_dynamic": 10240,
    "waves_per_group": 4,
    "occupancy": 12,
    "limiter": "registers+lds",
    "wmma": 16,
    "wmma_shape": "f32_16x16x16_bf16",
    "code_bytes": 2048,
}


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def build(mini: Mini, **changes: Any) -> list[dict[str, Any]]:
    """kernels.json of the plan's kernels; `changes` go into the first one."""
    kernels: list[dict[str, Any]] = [
        {
            "id": kernel.id,
            "object": kernel.object,
            "op": kernel.op,
            "template": kernel.template,
            "tokens": list(kernel.tokens),
            "primary": kernel.primary,
            "symbol": "aima_x",
            "block": [128, 1, 1],
            "bytes": 5000,
            "resources": RESOURCES,
        }
        for kernel in mini.plan().kernels
    ]
    kernels[0].update(changes)
    folder = mini.root / "build/small"
    folder.mkdir(parents=True, exist_ok=True)
    table = {"schema": "aimabuild/kernels/v1", "target": "gfx1151", "build": "b", "kernels": kernels}
    (folder / "kernels.json").write_text(json.dumps(table))
    return kernels


def test_the_table_shows_what_a_kernel_uses(mini: Mini) -> None:
    kernels = build(mini)
    result = run("kernels", str(mini.recipe))
    assert result.exit_code == 0, result.exception
    line = next(line for line in result.stdout.splitlines() if line.startswith(kernels[0]["id"]))
    assert line.split() == [
        *(kernels[0]["id"], "1-64", "128", "97", "22", "0", "0", "10240", "12", "registers+lds"),
        *("16", "f32_16x16x16_bf16", "5000", "kept"),
    ]
    # Two kernels share one object: its bytes count once.
    objects = {kernel["object"] for kernel in kernels}
    assert (
        f"{len(kernels)} kernels in {len(objects)} objects for gfx1151, {5000 * len(objects)} bytes"
        in result.stdout
    )
    assert len(objects) < len(kernels)


def test_as_json_with_dynamic_lds(mini: Mini) -> None:
    build(mini)
    value = json.loads(run("kernels", str(mini.recipe), "--json", "--op", "scale").stdout)
    assert value["schema"] == "aimabuild/kernels-report/v1"
    assert {item["op"] for item in value["kernels"]} == {"scale"}
    assert value["kernels"][0]["resources"]["lds"] == 10240
    assert value["kernels"][0]["budget_state"] == "kept"


@pytest.mark.parametrize(
    ("budget", "state"),
    [
        (None, "none"),
        ("occupancy: 12, wmma_min: 4", "kept"),
        ("occupancy: 8, reason: other K", "loose"),
        ("occupancy: 16", "broken"),
    ],
)
def test_the_state_of_a_budget_is_that_of_the_recipe_today(
    mini: Mini, budget: str | None, state: str
) -> None:
    build(mini)
    old = ", budget: {gfx1151: {spills: 0}}"
    mini.edit("shapes/small.yaml", old, f", budget: {{gfx1151: {{{budget}}}}}" if budget else "")
    value = json.loads(run("kernels", str(mini.recipe), "--json").stdout)
    item = next(item for item in value["kernels"] if item["tokens"] == [1, 64])
    assert item["budget_state"] == state
    assert item["budget"].get("reason") == ("other K" if state == "loose" else None)


def test_a_kernel_that_the_recipe_lost_is_stale(mini: Mini) -> None:
    build(mini)
    mini.edit("shapes/small.yaml", "tile: {block: 128}", "tile: {block: 256}")
    value = json.loads(run("kernels", str(mini.recipe), "--json").stdout)
    assert sorted(item["budget_state"] for item in value["kernels"]) == ["kept", "none", "none", "stale"]


def test_an_unknown_operation_is_an_error(mini: Mini) -> None:
    build(mini)
    with pytest.raises(UsageError, match="no kernel of the operation `scal`") as caught:
        cli.main(["kernels", str(mini.recipe), "--op", "scal"], standalone_mode=False)
    assert caught.value.hint == "did you mean `scale`?"


def test_a_recipe_without_kernels_says_so(mini: Mini) -> None:
    mini.edit("recipes/small.yaml", "target: gfx1151\nshapes: [shapes/small.yaml]\n", "target: none\n")
    mini.edit("recipes/small.yaml", "kernels:\n  serve: {scale: triton/scale, matmul: ck/matmul}\n", "")
    with pytest.raises(UsageError, match="this recipe has no kernels"):
        cli.main(["kernels", str(mini.recipe)], standalone_mode=False)


def test_kernels_are_sorted_as_a_reader_counts(mini: Mini) -> None:
    names = ["k-t257", "k-t33", "k-n64-t1", "k-n2048-t1"]
    assert sorted(names, key=natural) == ["k-n64-t1", "k-n2048-t1", "k-t33", "k-t257"]


def test_an_alternative_is_marked(mini: Mini) -> None:
    kernels = build(mini, primary=False)
    assert f"{kernels[0]['id']} (alternative)" in run("kernels", str(mini.recipe)).stdout


def test_without_a_build_it_says_what_to_run(mini: Mini) -> None:
    with pytest.raises(AimaError, match="the kernels are not built") as caught:
        cli.main(["kernels", str(mini.recipe)], standalone_mode=False)
    assert caught.value.hint == f"run `aimabuild build {mini.recipe}` first"


def test_a_build_older_than_the_recipe_is_named(mini: Mini) -> None:
    build(mini)
    assert "older than the recipe" not in run("kernels", str(mini.recipe)).stderr
    mini.edit("shapes/small.yaml", "tile: {block: 128}", "tile: {block: 256}")
    assert "older than the recipe" in run("kernels", str(mini.recipe)).stderr


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> str:
    """The disassembly that the tool gives."""
    shown = "0000 <aima_x>:\n\ts_mov_b32 s0, 1 // 0\n\ts_mov_b32 s1, 1 // 4\n\ts_endpgm // 8\n"
    seen: list[str] = []

    def disassembly(folder: Path, kernel: dict[str, Any], target: str, reporter: object) -> str:
        del folder, reporter
        seen.append(f"{kernel['object']} {target}")
        return shown

    monkeypatch.setattr(module, "_disassembly", disassembly)
    return shown


def test_disasm_takes_the_start_of_an_id(mini: Mini, text: str) -> None:
    kernels = build(mini)
    result = run("disasm", kernels[0]["id"][:-4], "--recipe", str(mini.recipe))
    assert result.stdout == text


def test_disasm_counts(mini: Mini, text: str) -> None:
    kernels = build(mini)
    words = ("disasm", kernels[0]["id"], "--recipe", str(mini.recipe))
    assert [line.split() for line in run(*words, "--counts").stdout.splitlines()] == [
        ["instruction", "count"],
        ["s_mov_b32", "2"],
        ["s_endpgm", "1"],
    ]
    value = json.loads(run(*words, "--json").stdout)
    assert value["counts"] == {"s_mov_b32": 2, "s_endpgm": 1}
    assert value["text"] == text


def test_disasm_of_an_unknown_or_ambiguous_name(mini: Mini, text: str) -> None:
    build(mini)
    for name, said in (("nothing", "no kernel `nothing`"), ("scale", "`scale` fits 2 kernels")):
        with pytest.raises(UsageError, match=said):
            cli.main(["disasm", name, "--recipe", str(mini.recipe)], standalone_mode=False)
