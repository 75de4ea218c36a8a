"""One build: plan, files, graph, ninja, results."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.base.files import write_if_changed
from aimabuild.base.reporter import Reporter
from aimabuild.graph import explain, memory
from aimabuild.graph.budgets import check_budgets
from aimabuild.graph.info import clang_version, info_cpp, make_info, source_commit
from aimabuild.graph.kernels import export_list, kernel_edges, kernel_rules
from aimabuild.graph.layout import Layout
from aimabuild.graph.native import host_target, native_edges, native_rules
from aimabuild.graph.ninja_file import ninja_text
from aimabuild.graph.run import Finished, environment, ninja_program, raise_failure, run_ninja
from aimabuild.graph.stamps import stamps
from aimabuild.graph.tools import Tools, tools_of
from aimabuild.plan import Plan, make_plan
from aimabuild.plan.make import digest_of
from aimabuild.render import render_plan
from aimabuild.schema.document import suggest
from aimabuild.schema.project import Project, load_project
from aimabuild.toolchain import Toolchain

INFO_SOURCE = "build_info.cpp"


@dataclass(frozen=True)
class BuildResult:
    """What a build made. Paths are absolute; a part that the recipe or the sources lack is None.

    native_tests, bindings: where the unit tests and the Python module lie once these targets were built.
    ran: how many commands.
    """

    recipe: str
    plan: Plan
    folder: Path
    engine: Path
    launcher: Path | None
    kernels_library: Path | None
    kernels_json: Path | None
    build_info: Path
    native_tests: Path | None
    bindings: Path | None
    records: tuple[Path, ...]
    ran: int


def build(
    recipe_path: Path,
    root: Path,
    toolchain: Toolchain,
    reporter: Reporter,
    *,
    jobs: int | None = None,
    targets: Sequence[str] = (),
    why: bool = False,
) -> BuildResult:
    """Build a recipe, or some targets of it, in build/<recipe>/: engine, launcher, kernels, native-tests,
    bindings, or tests, which is all of them (without bindings, and a warning, where Python's headers miss).

    Raises `UsageError` for what the inputs say, `CheckFailedError` when a budget is not met, `AimaError` when
    a command fails.
    """
    project = load_project(recipe_path, root)
    plan = make_plan(project.recipe, project.shapes, project.templates)
    return build_plan(
        project, plan, tools_of(toolchain, root, plan), reporter, jobs=jobs, targets=targets, why=why
    )


def build_plan(
    project: Project,
    plan: Plan,
    tools: Tools,
    reporter: Reporter,
    *,
    jobs: int | None = None,
    targets: Sequence[str] = (),
    why: bool = False,
) -> BuildResult:
    """`build` of a plan that was made, with the tools given."""
    layout = Layout(plan.recipe, plan.target)
    root = project.root.resolve()
    folder = root / layout.base
    with _writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder, reporter):
        with _writable(folder):
            known = _write_graph(project, plan, tools, layout, root)
        wanted = [path for name in targets for path in _paths(name, known, tools, reporter)]
        last = folder / "last-plan.json"
        if why:
            for line in explain.plan_changes(explain.load(last), plan):
                reporter.line(f"  plan: {line}")
        finished = _run(plan, tools, layout, root, reporter, jobs=jobs, wanted=wanted, why=why)
        if plan.kernels and (not wanted or layout.kernels_library in wanted):
            check_budgets(plan, layout, root, project.recipe.file)
        explain.save(last, plan)
    return _result(plan, layout, root, known, len(finished.steps))


def _run(
    plan: Plan,
    tools: Tools,
    layout: Layout,
    root: Path,
    reporter: Reporter,
    *,
    jobs: int | None,
    wanted: Sequence[str],
    why: bool,
) -> Finished:
    kinds = frozenset({"cxx"} | {item.template.compiler for item in plan.objects})
    chosen = memory.choose_jobs(jobs, kinds, memory.available_bytes(), memory.processors())
    if chosen.reason:
        reporter.line(f"memory allows {chosen.reason}")
    command = [str(ninja_program()), "-f", layout.ninja_file, "-j", str(chosen.count), *wanted]
    variables = environment(root, layout.base, tools.zig_cache, tools.packages)
    finished = run_ninja(command, root, variables, reporter, base=layout.base, why=why)
    if finished.code:
        raise_failure(finished, root / layout.base / "failed.log", f"{layout.base}/failed.log")
    return finished


def _write_graph(project: Project, plan: Plan, tools: Tools, layout: Layout, root: Path) -> dict[str, str]:
    """Write sources, stamps, build info and build.ninja where they differ; returns target name -> path."""
    folder = root / layout.base
    host = host_target(project.recipe)
    marks = stamps(tools)
    digest = digest_of([plan.digest, tools.digest, marks["scripts"]])
    info = make_info(
        plan,
        tools,
        commit=source_commit(root),
        clang=clang_version(tools, folder / "compiler.txt"),
        math=project.recipe.math,
        host_target=host,
        kernels_digest=digest,
    )
    files = {f"kernels/{name}": data for name, data in render_plan(plan).items()}
    files |= {f"stamps/{name}": text.encode() for name, text in marks.items()}
    files[INFO_SOURCE] = info_cpp(info).encode()
    files["build-info.json"] = (json.dumps(info.as_json(), indent=2) + "\n").encode()
    rules = native_rules(project.recipe, tools, root)
    edges = native_edges(layout, root, [f"{layout.base}/{INFO_SOURCE}"], tools.bindings)
    if plan.kernels:
        files["kernels.map"] = export_list().encode()
        rules += kernel_rules(project.recipe, layout, tools, root, digest)
        edges += kernel_edges(layout, plan)
    made = {output for edge in edges for output in edge.outputs}
    known = {
        name: path
        for name, path in (
            ("engine", layout.engine),
            ("launcher", layout.launcher),
            ("kernels", layout.kernels_library),
            ("native-tests", layout.native_tests),
            ("bindings", layout.bindings(tools.bindings.suffix)),
        )
        if path in made
    }
    defaults = [path for name, path in known.items() if name not in {"native-tests", "bindings"}]
    files["build.ninja"] = ninja_text(layout.base, rules, edges, defaults).encode()
    _remove_old_kernels(
        root / layout.kernels, {name.split("/")[1] for name in files if name.startswith("kernels/")}
    )
    for name, data in files.items():
        write_if_changed(folder / name, data)
    return known


def _remove_old_kernels(folder: Path, current: set[str]) -> None:
    """Remove the folders of kernels that the plan no longer has."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in current and (path / "spec.json").is_file():
            shutil.rmtree(path)


def _paths(name: str, known: Mapping[str, str], tools: Tools, reporter: Reporter) -> list[str]:
    """The files of a target."""
    missing = tools.bindings.missing
    if name == "tests":
        if missing:
            reporter.warn(f"the Python module is left out: {missing}")
        return list(known.values())
    if name == "bindings" and missing:
        raise missing
    if name not in known:
        names = [*known, "tests"]
        raise UsageError(
            f"there is no target `{name}`", why=f"targets: {', '.join(names)}", hint=suggest(name, names)
        )
    return [known[name]]


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = str(error.filename or folder)
        raise AimaError("the build folder cannot be written", where=where, why=error.strerror) from None


@contextmanager
def _locked(folder: Path, reporter: Reporter) -> Iterator[None]:
    """Hold the build folder. Commands inherit the lock, so those of a killed build are waited for."""
    with _writable(folder):
        file = (folder / ".lock").open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reporter.line(f"waiting for another build in {folder}")
            fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.fcntl(file, fcntl.F_SETFD, 0)  # not closed on exec
        yield


def _result(plan: Plan, layout: Layout, root: Path, known: Mapping[str, str], ran: int) -> BuildResult:
    def path(name: str) -> Path | None:
        return root / known[name] if name in known else None

    return BuildResult(
        recipe=plan.recipe,
        plan=plan,
        folder=root / layout.base,
        engine=root / layout.engine,
        launcher=path("launcher"),
        kernels_library=path("kernels"),
        kernels_json=root / layout.kernels_json if plan.kernels else None,
        build_info=root / layout.build_info,
        native_tests=path("native-tests"),
        bindings=path("bindings"),
        records=tuple(root / layout.record(item.id) for item in plan.objects),
        ran=ran,
    )
