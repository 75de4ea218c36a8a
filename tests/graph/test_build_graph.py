"""aimabuild.graph with a fake compiler: what runs, what does not, and what survives."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_tools import Fake
from mini import Mini

from aimabuild.base.errors import AimaError, CheckFailedError, UsageError


@pytest.fixture
def fake(mini: Mini, tmp_path: Path) -> Fake:
    return Fake.create(mini, tmp_path / "fake")


def kinds(log: list[str]) -> list[str]:
    """What ran, without folders, sorted."""
    return sorted(" ".join(line.split(" ")[:2]) for line in log)


EVERYTHING = [
    "aimabuild.compile.hip kernel.co",
    "aimabuild.compile.hip_host host.o",
    "aimabuild.compile.table table.c",
    "aimabuild.compile.triton_aot kernel.co",
    "aimabuild.compile.triton_aot kernel.co",
    "ar libaima-core.a",
    "c++ aima-engine.real",
    "c++ build_info.cpp.o",
    "c++ main.cpp.o",
    "c++ name.cpp.o",
    "c++ sum_avx2.cpp.o",
    "cc aima-engine",
    "cc images.o",
    "cc libaima-kernels-gfx1151.so",
    "cc main.c.o",
    "cc table.o",
]
AFTER_A_KERNEL = [
    "aimabuild.compile.table table.c",
    "aimabuild.compile.triton_aot kernel.co",
    "ar libaima-core.a",  # the engine names the plan that it was built with
    "c++ aima-engine.real",
    "c++ build_info.cpp.o",
    "cc images.o",
    "cc libaima-kernels-gfx1151.so",
    "cc table.o",
]


def test_a_build_makes_everything_and_a_second_one_nothing(fake: Fake) -> None:
    result, log, _ = fake.build()
    assert kinds(log) == EVERYTHING
    assert result.ran == len(EVERYTHING)
    for path in (
        result.engine,
        result.launcher,
        result.kernels_library,
        result.kernels_json,
        result.build_info,
    ):
        assert path is not None
        assert path.is_file()
    assert all(path.is_file() for path in result.records)
    assert len(result.records) == 3
    before = {path: path.stat().st_mtime_ns for path in result.folder.rglob("*") if path.is_file()}
    again, log, _ = fake.build()
    assert log == []
    assert again.ran == 0
    kept = {path: path.stat().st_mtime_ns for path in result.folder.rglob("*") if path.is_file()}
    changed = {path.name for path in kept if kept[path] != before.get(path)}
    assert changed <= {".ninja_log", ".ninja_deps"}


def test_touching_one_tile_builds_that_kernel_and_what_links_it(fake: Fake) -> None:
    first, _, _ = fake.build()
    fake.mini.edit("shapes/small.yaml", "tile: {block: 64}", "tile: {block: 64, num_warps: 2}")
    second, log, lines = fake.build(why=True)
    assert kinds(log) == AFTER_A_KERNEL
    changed = [
        kernel.id for kernel in second.plan.kernels if kernel.id not in {k.id for k in first.plan.kernels}
    ]
    compiled = [line for line in log if "triton_aot" in line]
    assert len(changed) == 1
    assert compiled == [f"aimabuild.compile.triton_aot kernel.co build/small/kernels/{changed[0]}"]
    assert "  plan: scale-triton-n256-bf16-t1: num_warps 4 -> 2 (shapes/small.yaml:10:11)" in lines
    assert any(line.startswith(f"  compile {changed[0]}: ") for line in lines)
    folders = {path.name for path in (second.folder / "kernels").iterdir()}
    assert folders == {kernel.id for kernel in second.plan.kernels} | {
        item.id for item in second.plan.objects
    }


def test_a_comment_in_the_shapes_builds_nothing(fake: Fake) -> None:
    fake.build()
    path = fake.mini.root / "shapes/small.yaml"
    path.write_text("# a comment\n" + path.read_text())
    assert fake.build()[1] == []


def test_a_budget_compiles_nothing(fake: Fake) -> None:
    fake.build()
    mini = fake.mini
    mini.edit("shapes/small.yaml", "{spills: 0}", "{spills: 1, vgpr_max: 20, occupancy: 17}")
    with pytest.raises(CheckFailedError) as caught:
        fake.build()
    assert fake.log() == []
    assert caught.value.exit_code == 3
    kernel = next(kernel for kernel in mini.plan().kernels if kernel.tokens == (1, 64))
    said = (
        "spills is 0, the budget says at most 1, which is loose; "
        "occupancy is 16, the budget says at least 17; vgpr_max is 24, the budget says at most 20"
    )
    command = "`aimabuild kernels recipes/small.yaml`"
    assert str(caught.value).splitlines() == [
        "small: 1 compiled object misses its budget",
        "  why: shapes/small.yaml:10:66: triton/scale",
        f"      {kernel.id}: {said}",
        "      measured: gfx1151: {spills: 0, occupancy: 16, vgpr_max: 24}",
        f"  hint: choose another tile, or state what is measured; {command} shows all",
    ]
    mini.edit(
        "shapes/small.yaml",
        "spills: 1, vgpr_max: 20, occupancy: 17",
        "spills: 0, occupancy: 16, vgpr_max: 24",
    )
    _, log, lines = fake.build(why=True)
    assert log == []
    assert any("budget: " in line and "vgpr_max unset -> 24" in line for line in lines)
    mini.edit("shapes/small.yaml", "vgpr_max: 24", "vgpr_max: 23")
    fake.build("engine")  # no kernel was asked for


def test_every_missed_budget_is_in_one_error(fake: Fake) -> None:
    fake.mini.edit(
        "shapes/small.yaml", "tile: {block: 128}}", "tile: {block: 128}, budget: {gfx1151: {wmma_min: 1}}}"
    )
    fake.mini.edit("shapes/small.yaml", "{spills: 0}", "{spills: 1}")
    with pytest.raises(CheckFailedError, match="2 compiled objects miss their budget") as caught:
        fake.build()
    assert str(caught.value).count("measured: ") == 2
    assert (fake.mini.root / "build/small/kernels.json").is_file()
    assert not (fake.mini.root / "build/small/last-plan.json").exists()


def test_a_template_rebuilds_all_of_its_kernels_alone(fake: Fake) -> None:
    fake.build()
    fake.mini.edit("templates/triton/scale.py.j2", "return", "return 0,")
    _, log, lines = fake.build(why=True)
    assert [line.split(" ")[0] for line in log].count("aimabuild.compile.triton_aot") == 2
    assert not [line for line in log if "compile.hip" in line]
    assert any("templates/triton/scale.py.j2 changed" in line for line in lines)


def test_a_header_rebuilds_what_includes_it(fake: Fake) -> None:
    fake.build()
    (fake.mini.root / "native/src/base/name.h").write_text("// another\n")
    _, log, lines = fake.build(why=True)
    assert kinds(log) == ["ar libaima-core.a", "c++ aima-engine.real", "c++ main.cpp.o", "c++ name.cpp.o"]
    assert "  c++ native/src/base/name.cpp: native/src/base/name.h changed" in lines


def test_a_new_source_is_found_and_a_removed_one_forgotten(fake: Fake) -> None:
    fake.build()
    extra = fake.mini.root / "native/src/base/extra.cpp"
    extra.write_text("// new\n")
    assert kinds(fake.build()[1]) == ["ar libaima-core.a", "c++ aima-engine.real", "c++ extra.cpp.o"]
    extra.unlink()
    assert kinds(fake.build()[1]) == ["ar libaima-core.a", "c++ aima-engine.real"]


@pytest.mark.parametrize(
    ("part", "rebuilt"),
    [
        ("triton", {"aimabuild.compile.triton_aot"}),
        ("hip-dev", {"aimabuild.compile.hip", "aimabuild.compile.hip_host"}),
    ],
)
def test_a_new_tool_rebuilds_what_it_made(fake: Fake, part: str, rebuilt: set[str]) -> None:
    fake.build()
    tools = fake.tools()
    tools = dataclasses.replace(tools, part_digests={**tools.part_digests, part: "newer"})
    _, log, _ = fake.build(tools=tools)
    assert {line.split(" ")[0] for line in log if ".compile." in line} >= rebuilt
    others = {"aimabuild.compile.triton_aot", "aimabuild.compile.hip"} - rebuilt
    assert not others & {line.split(" ")[0] for line in log}
    assert not [line for line in log if "name.cpp.o" in line]


def test_a_changed_compile_step_rebuilds_the_kernels(fake: Fake) -> None:
    fake.build()
    (fake.folder / "packages/aimabuild/compile/triton_aot.py").write_text("VERSION = 2\n")
    _, log, _ = fake.build()
    assert [line.split(" ")[0] for line in log].count("aimabuild.compile.triton_aot") == 2
    assert not [line for line in log if "name.cpp.o" in line]


def test_flags_of_an_instruction_set_go_to_its_files_alone(fake: Fake) -> None:
    fake.build()
    text = (fake.mini.root / "build/small/build.ninja").read_text()
    blocks = text.split("\nbuild ")
    avx2 = next(block for block in blocks if "sum_avx2.cpp.o:" in block)
    assert "isa = -mavx2 -mfma" in avx2
    assert not [block for block in blocks if "isa = " in block and "sum_avx2.cpp.o:" not in block]


def test_a_failing_compile_is_one_error_with_the_end_of_its_output(fake: Fake) -> None:
    (fake.folder / "fail").write_text("1")
    with pytest.raises(AimaError) as caught:
        fake.build("kernels")
    error = caught.value
    assert type(error) is AimaError
    assert error.exit_code == 1
    assert error.what.startswith("compile scale-triton-") or error.what.startswith("compile matmul-ck-")
    assert "compiler line 60" in (error.why or "")
    assert "compiler line 20" not in (error.why or "")
    whole = (fake.mini.root / "build/small/failed.log").read_text()
    assert "compiler line 1\n" in whole
    assert "-m aimabuild.compile." in whole
    (fake.folder / "fail").unlink()
    fake.build()


def test_a_compile_that_finds_a_check_broken_exits_3(fake: Fake) -> None:
    (fake.folder / "fail").write_text("3")
    with pytest.raises(CheckFailedError):
        fake.build("kernels")


def test_targets_and_their_misspelling(fake: Fake) -> None:
    result, log, _ = fake.build("native-tests")
    assert "c++ native-tests" in kinds(log)
    assert not [line for line in log if "aima-engine" in line]
    assert result.native_tests is not None
    assert result.native_tests.is_file()
    with pytest.raises(UsageError, match="there is no target `engin`") as caught:
        fake.build("engin")
    assert caught.value.hint == "did you mean `engine`?"


def test_the_python_module(fake: Fake) -> None:
    result, log, _ = fake.build("bindings")
    assert result.bindings == fake.mini.root / "build/small/python/_native.so"
    assert result.bindings.is_file()
    assert not [line for line in log if "native-tests" in line]
    _, log, _ = fake.build("tests")
    assert [line for line in log if "native-tests" in line]
    assert [line for line in log if "aima-engine" in line]


def test_without_python_headers_there_is_no_module(fake: Fake) -> None:
    tools = fake.tools(no_headers=AimaError("there is no Python.h for Python 3.99", hint="install it"))
    with pytest.raises(AimaError, match=r"there is no Python\.h") as caught:
        fake.build("bindings", tools=tools)
    assert caught.value.hint == "install it"
    result, log, lines = fake.build("tests", tools=tools)
    assert result.bindings is None
    assert [line for line in log if "native-tests" in line]
    assert any("there is no Python.h" in line for line in lines)


def test_killed_half_way_it_leaves_nothing_that_a_later_build_keeps(fake: Fake, tmp_path: Path) -> None:
    fake.build()
    expected = fake.outputs()
    # What stands is from an older plan; the change rebuilds two kernels, and one is cut off in its output.
    fake.mini.edit("templates/triton/scale.py.j2", "return", "return 0,")
    fake.build()
    wanted = fake.outputs()
    assert wanted != expected
    fake.mini.edit("templates/triton/scale.py.j2", "return 0,", "return")
    (fake.folder / "slow").write_text("5")
    script = Path(__file__).with_name("fake_tools.py")
    paths = os.pathsep.join([str(script.parent.parent), str(script.parent.parent.parent)])
    process = subprocess.Popen(
        [sys.executable, str(script), str(fake.mini.root), str(fake.folder)],
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (fake.folder / "started").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    halves = [
        path
        for path in (fake.mini.root / "build/small/kernels").rglob("kernel.co")
        if "half" in path.read_text()
    ]
    assert halves
    (fake.folder / "slow").unlink()
    _, _, lines = fake.build()
    assert any(line.startswith("waiting for another build") for line in lines)  # for what the killed one left
    assert fake.outputs() == expected
    assert fake.build()[1] == []


def test_two_folders_give_the_same_outputs(fake: Fake, tmp_path: Path) -> None:
    fake.build()
    shutil.copytree(fake.mini.root, tmp_path / "a b", ignore=shutil.ignore_patterns("build"))
    other = Fake(Mini(tmp_path / "a b"), fake.folder)
    other.build()
    assert other.outputs() == fake.outputs()


def test_build_info_names_commit_and_changes(fake: Fake) -> None:
    result, _, _ = fake.build()
    info = json.loads(result.build_info.read_text())
    assert info["schema"] == "aimabuild/build-info/v1"
    assert info["commit"] == "unknown"
    assert info["compiler"] == "clang 9.8.7 (ziglang 1.2.3)"
    assert info["kernel_count"] == 4
    assert info["kernels_digest"] in (result.folder / "build.ninja").read_text()
    root = fake.mini.root
    (root / ".gitignore").write_text("/build/\n")
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "one")):
        subprocess.run(["git", "-C", str(root), *arguments], check=True)
    commit = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    result, log, _ = fake.build()
    assert json.loads(result.build_info.read_text())["commit"] == commit
    assert f'.commit = "{commit}"' in (result.folder / "build_info.cpp").read_text()
    assert kinds(log) == ["ar libaima-core.a", "c++ aima-engine.real", "c++ build_info.cpp.o"]
    (root / "native/src/base/name.cpp").write_text("// changed\n")
    result, _, _ = fake.build()
    assert json.loads(result.build_info.read_text())["commit"] == f"{commit}-dirty"
    (root / "README.md").write_text("documents do not count\n")
    (root / "native/src/base/name.cpp").write_text('#include "base/name.h"\n')
    assert json.loads(fake.build()[0].build_info.read_text())["commit"] == commit


def test_a_hook_of_another_repository_does_not_mislead(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(
        ["git", "-C", str(other), *identity, "commit", "-q", "--allow-empty", "-m", "x"], check=True
    )
    subprocess.run(["git", "init", "-q", str(fake.mini.root)], check=True)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    info = json.loads(fake.build("launcher")[0].build_info.read_text())
    assert info["commit"] == "unknown"  # this repository has no commit yet


def test_a_build_folder_that_cannot_be_made_is_one_error(fake: Fake) -> None:
    (fake.mini.root / "build").write_text("a file in the way")
    with pytest.raises(AimaError, match="the build folder cannot be written"):
        fake.build()


def test_the_machines_python_is_not_in_the_kernels_digest(fake: Fake) -> None:
    tools = fake.tools()
    first = json.loads(fake.build("launcher", tools=tools)[0].build_info.read_text())
    other = dataclasses.replace(
        tools, part_digests={**tools.part_digests, "triton": "triton-for-another-python"}
    )
    assert json.loads(fake.build("launcher", tools=other)[0].build_info.read_text()) == first
    other = dataclasses.replace(tools, digest="1" * 64)
    second = json.loads(fake.build("launcher", tools=other)[0].build_info.read_text())
    assert second["kernels_digest"] != first["kernels_digest"]
