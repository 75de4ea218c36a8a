"""One archive from a build: stage, seal, verify, prove; only then does it appear where the user looks."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aimabuild.base.errors import AimaError
from aimabuild.base.files import write_text
from aimabuild.base.reporter import Reporter
from aimabuild.bundle.archive import SUFFIX, Sealed, tar_size, write_archive
from aimabuild.bundle.assemble import Assembled, assemble
from aimabuild.bundle.entries import TEXT_LIST
from aimabuild.bundle.inputs import Inputs
from aimabuild.bundle.prove import Demo, prove
from aimabuild.bundle.verify import Report, require, verify


@dataclass(frozen=True)
class Packaged:
    """A finished archive and the files beside it."""

    archive: Path
    release: Path
    size: int
    sha256: str
    proved: bool


def package(
    inputs: Inputs,
    work: Path,
    out: Path,
    reporter: Reporter,
    *,
    demo: Callable[[], Demo] | None = None,
    run: bool = True,
) -> Packaged:
    """Make `out`/NAME.tar.zst, its .sha256 and NAME.release.json from `inputs`.

    work: the build's folder; the unpacked bundle stays there as bundle/NAME. demo: makes the model that the
    sealed run uses. run: False leaves the sealed run out. Nothing appears in `out` unless all checks hold.
    """
    with reporter.step("staging and auditing the bundle"):
        made = _stage(inputs, work, reporter)
    with _folder(out) as temporary:
        sealed = _seal(made, temporary, reporter)
        write_text(temporary / f"{sealed.path.name}.sha256", f"{sealed.sha256}  {sealed.path.name}\n")
        with (
            reporter.step("verifying the archive"),
            reporter.task("reading", sealed.tar_size, unit="bytes") as task,
        ):
            report = verify(sealed.path, advance=task.advance)
            require(report, sealed.path)
        record = prove(sealed.path, demo() if demo else None, reporter) if run else None
        text = json.dumps(_release(inputs, sealed, report, record), indent=2, ensure_ascii=False) + "\n"
        write_text(temporary / f"{inputs.name}.release.json", text)
        # The archive last: whoever sees it also sees what belongs to it.
        for name in (f"{inputs.name}.release.json", f"{sealed.path.name}.sha256", sealed.path.name):
            (temporary / name).replace(out / name)
    release = out / f"{inputs.name}.release.json"
    return Packaged(out / sealed.path.name, release, sealed.size, sealed.sha256, record is not None)


def _stage(inputs: Inputs, work: Path, reporter: Reporter) -> Assembled:
    """Assemble in a scratch folder, then put it in the place of the last one."""
    final = work / "bundle" / inputs.name
    before = _libraries(final)
    with tempfile.TemporaryDirectory(prefix=".bundle-", dir=work) as name:
        made = assemble(inputs, Path(name) / inputs.name)
        shutil.rmtree(work / "bundle", ignore_errors=True)
        final.parent.mkdir()
        made.root.rename(final)
    after = _libraries(final)
    if before:
        for what, names in (("new", after - before), ("gone", before - after)):
            for library in sorted(names):
                reporter.line(f"  closure: {library} is {what} since the last package")
    total = sum(entry.size for entry in made.entries.values())
    count = f"{len(made.entries) - 1} entries and the list of them"
    reporter.line(f"  {count}, {total / 1e6:.1f} MB, {len(after)} names in lib/")
    return Assembled(final, made.name, made.entries, made.loader)


def _libraries(root: Path) -> set[str]:
    return {path.name for path in (root / "lib").iterdir()} if (root / "lib").is_dir() else set()


@contextmanager
def _folder(out: Path) -> Iterator[Path]:
    """A scratch folder on the file system of `out`, gone afterwards."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".package-", dir=out) as name:
            yield Path(name)
    except OSError as error:
        raise AimaError("the package cannot be written", where=str(out), why=error.strerror) from None


def _seal(made: Assembled, folder: Path, reporter: Reporter) -> Sealed:
    size = tar_size(made.name, made.entries)
    with reporter.step("compressing"), reporter.task("compressing", size, unit="bytes") as task:
        return write_archive(made.root, made.name, made.entries, folder, advance=task.advance)


def _release(inputs: Inputs, sealed: Sealed, report: Report, record: dict[str, Any] | None) -> dict[str, Any]:
    """Schema aima/release/v1: what stands beside the archive, since it cannot stand inside it."""
    return {
        "schema": "aima/release/v1",
        "name": inputs.name,
        "version": inputs.version,
        "recipe": inputs.recipe,
        "target": inputs.target,
        "archive": {"file": f"{inputs.name}{SUFFIX}", "size": sealed.size, "sha256": sealed.sha256},
        "tar": {"size": sealed.tar_size, "sha256": sealed.tar_sha256},
        "list": {"file": TEXT_LIST, "sha256": report.list_sha256, "entries": report.entries},
        "compressor": sealed.compressor(),
        "build": json.loads(inputs.build_info.read_text(encoding="utf-8")),
        "sealed_run": record,
    }
