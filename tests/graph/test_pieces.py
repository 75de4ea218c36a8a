"""The parts of aimabuild.graph that need no compiler: ninja's text and output, memory, stamps, reasons."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mini import Mini

from aimabuild.base.errors import AimaError, CheckFailedError
from aimabuild.graph import explain
from aimabuild.graph.info import info_cpp, make_info, source_commit
from aimabuild.graph.memory import MIB, available_bytes, choose_jobs
from aimabuild.graph.native import isa_flags
from aimabuild.graph.ninja_file import Edge, Rule, escape_path, ninja_text, quote
from aimabuild.graph.run import (
    Finished,
    Step,
    environment,
    ninja_program,
    plain_reason,
    raise_failure,
    read_steps,
)
from aimabuild.graph.stamps import module_sources, scripts_stamp

PACKAGES = Path(__file__).parent.parent.parent
GIB = 1024 * MIB


@pytest.mark.parametrize(
    ("asked", "kinds", "available", "processors", "count"),
    [
        (None, {"cxx"}, 64 * GIB, 8, 8),
        (None, {"cxx", "hip"}, 4 * GIB, 8, 3),
        (None, {"cxx", "triton"}, 4 * GIB, 8, 4),
        (16, {"hip"}, 4 * GIB, 2, 3),
        (1, {"hip"}, 64 * GIB, 8, 1),
        (None, {"hip"}, 100 * MIB, 8, 1),
        (None, {"hip"}, None, 8, 8),
        (None, set(), 1, 8, 8),
    ],
)
def test_memory_bounds_the_jobs(
    asked: int | None, kinds: set[str], available: int | None, processors: int, count: int
) -> None:
    jobs = choose_jobs(asked, frozenset(kinds), available, processors)
    assert jobs.count == count
    assert (jobs.reason is not None) == (count < (asked or processors))


def test_memory_is_the_smaller_of_machine_and_control_group(tmp_path: Path) -> None:
    proc, group = tmp_path / "proc", tmp_path / "cgroup"
    assert available_bytes(proc, group) is None
    proc.mkdir()
    group.mkdir()
    (proc / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    2048 kB\n")
    assert available_bytes(proc, group) == 2 * MIB
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("1000\n")
    assert available_bytes(proc, group) == 2 * MIB
    (group / "memory.max").write_text(f"{MIB + 1000}\n")
    assert available_bytes(proc, group) == MIB


def test_ninja_agrees_with_the_escapes(tmp_path: Path) -> None:
    names = ["plain", "with space", "dollar$x", "colon:y", "quote'z", "all $: '\"&;()"]
    edges = [Edge("make", (f"out {name}",), (), (), {"word": quote(name)}) for name in names]
    text = ninja_text(
        ".", [Rule("make", "printf %s $word > $out", "make $out")], edges, [edges[0].outputs[0]]
    )
    (tmp_path / "build.ninja").write_text(text)
    everything = [name for edge in edges for name in edge.outputs]
    subprocess.run([ninja_program(), "-C", str(tmp_path), *everything], check=True, stdout=subprocess.DEVNULL)
    assert [(tmp_path / f"out {name}").read_text() for name in names] == names


def test_two_edges_cannot_make_one_output() -> None:
    with pytest.raises(ValueError, match="two edges make a"):
        ninja_text(".", [], [Edge("r", ("a",)), Edge("r", ("b", "a"))], [])
    assert escape_path("a b:c$") == "a$ b$:c$$"


OUTPUT = """\
ninja explain: output a.o doesn't exist
\x1e1/3\x1ec++ a.cpp
ninja explain: output build/r/b.o older than most recent input b.h (1 vs 2)
ninja explain: x is dirty
\x1e2/3\x1ec++ b.cpp
b.cpp:1: a remark
[3/3] not a status
\x1e3/3\x1ecompile k
FAILED: [code=3] build/r/k.co build/r/k.json \n\
python -m compile --spec k
error: too many registers
FAILED: again
ninja: build stopped: subcommand failed.
"""


def test_ninjas_output_becomes_steps() -> None:
    items = list(read_steps(iter(OUTPUT.strip().split("\n"))))
    steps = [item for item in items if isinstance(item, Step)]
    assert [item for item in items if isinstance(item, str)] == ["build stopped: subcommand failed."]
    assert [(step.title, step.code) for step in steps] == [
        ("c++ a.cpp", 0),
        ("c++ b.cpp", 0),
        ("compile k", 3),
    ]
    assert steps[1].output == ["b.cpp:1: a remark", "[3/3] not a status"]
    assert steps[2].command == "python -m compile --spec k"
    assert steps[2].output == ["error: too many registers", "FAILED: again"]
    assert [plain_reason(reason, "build/r") for reason in steps[1].reasons] == [
        "b.h changed",
        "x is made anew",
    ]


@pytest.mark.parametrize(
    ("codes", "kind", "more"),
    [
        ([3], CheckFailedError, ""),
        ([3, 3], CheckFailedError, " (and 1 more)"),
        ([3, 1], AimaError, " (and 1 more)"),
    ],
)
def test_the_error_of_a_failed_run(
    tmp_path: Path, codes: list[int], kind: type[AimaError], more: str
) -> None:
    steps = tuple(
        Step(f"compile {i}", [], ["line"] * 40 + ["error: last", "  why: w"], code, "cmd")
        for i, code in enumerate(codes)
    )
    with pytest.raises(AimaError) as caught:
        raise_failure(Finished(steps, (), codes[0]), tmp_path / "failed.log", "failed.log")
    assert type(caught.value) is kind
    assert caught.value.what == f"compile 0 failed{more}"
    assert (caught.value.why or "").count("line") == 23
    assert "error: " not in str(caught.value)
    assert (tmp_path / "failed.log").read_text().count("line") == 40 * len(codes)


def test_a_run_that_failed_without_a_command(tmp_path: Path) -> None:
    finished = Finished((), ("error: unknown target 'x'",), 1)
    with pytest.raises(AimaError, match="unknown target 'x'"):
        raise_failure(finished, tmp_path / "failed.log", "failed.log")


def test_the_environment_is_not_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CPATH", "CC", "ROCM_PATH", "LD_PRELOAD", "PYTHONSTARTUP", "LANG", "CFLAGS", "HOME"):
        monkeypatch.setenv(name, "/evil")
    monkeypatch.setenv("TMPDIR", "/big")
    found = environment(Path("/p"), "build/r", Path("/z"), Path("/code"))
    assert "/evil" not in found.values()
    assert found["TMPDIR"] == "/big"
    assert found["PATH"] == "/usr/bin:/bin"


@pytest.mark.parametrize(
    ("source", "flag", "absent"),
    [
        ("a/dot_avx2.cpp", "-mavx2", "-mavx512f"),
        ("a/dot_avx512.cpp", "-mavx512vl", "-mavx512bf16"),
        ("a/dot_avx512bf16.cpp", "-mavx512bf16", "-mamx-tile"),
        ("a/dot_amx.cpp", "-mamx-bf16", "-mavx2 "),
    ],
)
def test_flags_by_the_end_of_a_name(source: str, flag: str, absent: str) -> None:
    assert flag in isa_flags(source)
    assert absent not in isa_flags(source)
    assert isa_flags("a/avx2_dot.cpp") == ""


def test_scripts_are_followed_through_their_imports(tmp_path: Path) -> None:
    for name, text in {
        "aimabuild/__init__.py": "",
        "aimabuild/compile/one.py": "from aimabuild.base.files import x\nimport os\n",
        "aimabuild/base/files.py": "def f():\n    from aimabuild.base import deep\n",
        "aimabuild/base/deep.py": "",
        "aimabuild/base/other.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = module_sources(tmp_path, [tmp_path / "aimabuild/compile/one.py"])
    assert [path.name for path in found] == ["deep.py", "files.py", "one.py"]
    before = scripts_stamp(tmp_path)
    (tmp_path / "aimabuild/base/other.py").write_text("x = 1\n")
    assert scripts_stamp(tmp_path) == before
    (tmp_path / "aimabuild/base/deep.py").write_text("x = 1\n")
    assert scripts_stamp(tmp_path) != before


def test_the_real_compile_steps_do_not_depend_on_the_graph() -> None:
    start = sorted((PACKAGES / "aimabuild/compile").glob("*.py"))
    names = {path.relative_to(PACKAGES).as_posix() for path in module_sources(PACKAGES, start)}
    assert "aimabuild/base/errors.py" in names
    assert not [name for name in names if name.startswith(("aimabuild/graph", "aimabuild/cli"))]


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs")), max_size=30))
def test_build_info_quotes_its_texts(text: str) -> None:
    from fake_tools import Fake

    tools = Fake(Mini(Path("/p")), Path("/f")).tools()
    plan = explain.Plan("r", None, (), (), "")
    info = make_info(plan, tools, commit=text, clang="1", math="bf16", host_target="h", kernels_digest="d")
    line = next(line for line in info_cpp(info).splitlines() if line.strip().startswith(".commit"))
    inner = line.strip().removeprefix('.commit = "').removesuffix('",')
    assert inner.replace("\\\\", "").replace('\\"', "").count('"') == 0
    assert info.kernels_digest == ""


def test_a_folder_inside_another_repository_has_no_commit(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "inner").mkdir()
    assert source_commit(tmp_path / "inner") == "unknown"
    assert source_commit(tmp_path) == "unknown"  # no commit yet


def test_what_changed_in_a_plan(mini: Mini) -> None:
    old = explain.facts(mini.plan())
    assert explain.plan_changes(None, mini.plan()) == []
    assert explain.plan_changes(old, mini.plan()) == []
    mini.edit("shapes/small.yaml", "[1, 64], tile: {block: 64}", "[1, 32], tile: {block: 128, num_warps: 1}")
    mini.edit("shapes/small.yaml", "[65, 8192]", "[33, 8192]")
    change = "block 64 -> 128, num_warps 4 -> 1, tokens 1-64 -> 1-32"
    assert explain.plan_changes(old, mini.plan()) == [
        "scale-triton-n256-bf16-t65: not in the plan any more",
        f"scale-triton-n256-bf16-t1: {change} (shapes/small.yaml:10:11)",
        "scale-triton-n256-bf16-t33: new, asked for at shapes/small.yaml:11:11",
    ]


def test_a_damaged_last_plan_is_no_plan(mini: Mini, tmp_path: Path) -> None:
    path = tmp_path / "last.json"
    assert explain.load(path) is None
    path.write_text("{")
    assert explain.load(path) is None
    path.write_text('{"schema": "other"}')
    assert explain.load(path) is None
    explain.save(path, mini.plan())
    assert explain.load(path) == explain.facts(mini.plan())
