"""`aimabuild toolchain sync|show|lock`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aimabuild.base.errors import CheckFailedError, UsageError
from aimabuild.base.files import write_if_changed
from aimabuild.base.reporter import Reporter
from aimabuild.cli import SuggestingGroup

if TYPE_CHECKING:
    from aimabuild.toolchain.state import PartState

_root = click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=".",
    help="Project folder.",
)
_mirror = click.option("--mirror", metavar="URL", help="Debian mirror to use instead of the host's own.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(cls=SuggestingGroup)
def toolchain() -> None:
    """List, fetch or lock compilers, headers and libraries.

    Everything comes from files that `aimabuild.lock` names by version and sha256, and lies in
    `$XDG_CACHE_HOME/aimabuild`; nothing is installed on the host.
    """


@toolchain.command()
@_root
@_mirror
@click.option("--offline", is_flag=True, help="Use the cache only; fail if something is missing.")
@click.option("--part", "parts", multiple=True, metavar="NAME", help="Only this part (may be repeated).")
@click.option(
    "--rocm", type=click.Path(path_type=Path), help="Use this ROCm tree instead of the fetched headers."
)
@click.option("--ck", type=click.Path(path_type=Path), help="Use this Composable Kernel tree.")
@_json
@click.pass_obj
def sync(
    reporter: Reporter,
    root: Path,
    mirror: str | None,
    offline: bool,
    parts: tuple[str, ...],
    rocm: Path | None,
    ck: Path | None,
    as_json: bool,
) -> None:
    """Fetch and unpack what the cache does not have yet."""
    from aimabuild.toolchain import open_toolchain

    tools = open_toolchain(
        root, reporter=reporter, offline=offline, mirror=mirror, rocm=rocm, ck=ck, parts=parts or None
    )
    report = tools.synced
    if as_json:
        value = {
            "schema": "aimabuild/toolchain-sync/v1",
            "digest": tools.digest,
            "fetched_bytes": report.fetched_bytes,
            "seconds": round(report.seconds, 3),
            "unpacked": list(report.unpacked),
            "parts": [part.name for part in tools.parts],
            "overrides": dict(tools.overrides),
        }
        reporter.json(value)
    elif report.unpacked:
        reporter.result(
            f"toolchain ready: {len(report.unpacked)} parts unpacked, "
            f"{report.fetched_bytes / 1e6:.1f} MB fetched, {report.seconds:.1f} s"
        )
    else:
        reporter.result("toolchain ready: nothing to fetch")


@toolchain.command()
@_root
@click.option("--verify", is_flag=True, help="Hash every cached file and tree again.")
@_json
@click.pass_obj
def show(reporter: Reporter, root: Path, verify: bool, as_json: bool) -> None:
    """List every part: version, size, licence, and where it lies."""
    from aimabuild.schema.lock import load_lock
    from aimabuild.toolchain import LOCK_NAME
    from aimabuild.toolchain.cache import Cache
    from aimabuild.toolchain.state import inspect
    from aimabuild.toolchain.state import verify as verify_cache

    lock, cache = load_lock(root / LOCK_NAME), Cache.default()
    states = inspect(lock, cache)
    problems = verify_cache(lock, cache) if verify else []
    if as_json:
        value: dict[str, Any] = {
            "schema": "aimabuild/toolchain/v1",
            "cache": str(cache.root),
            "to_fetch_bytes": sum(state.missing_bytes for state in states),
            "parts": [_row(state) for state in states],
        }
        if verify:
            value["problems"] = problems
        reporter.json(value)
    else:
        _print(reporter, states, cache.root)
        if verify and not problems:
            reporter.result("every cached file and tree is what the lock says")
    if problems:
        shown = "\n  ".join(problems[:20])
        raise CheckFailedError(
            f"{len(problems)} files of the toolchain cache are damaged",
            where=str(cache.root),
            why=f"{shown}{'' if len(problems) <= 20 else ' ...'}",
            hint="remove the trees and files named here, and run `aimabuild toolchain sync`",
        )


def _row(state: PartState) -> dict[str, Any]:
    part = state.part
    return {
        "name": part.name,
        "version": part.version,
        "kind": part.kind,
        "licence": part.licence,
        "size": part.size,
        "sha256": list(part.sha256),
        "why": state.why,
        "present": state.present,
        "path": str(state.tree),
        "to_fetch_bytes": state.missing_bytes,
        "packages": list(state.packages),
    }


def _print(reporter: Reporter, states: list[PartState], cache: Path) -> None:
    rows = [
        [
            state.part.name,
            state.part.version,
            f"{state.part.size / 1e6:.1f}",
            "yes" if state.present else "no",
            str(len(state.packages)),
            state.part.licence if len(state.part.licence) < 60 else f"{state.part.licence[:57]}...",
            state.tree.name,
        ]
        for state in states
    ]
    header = ["part", "version", "MB", "there", "files", "licence", "tree"]
    reporter.table(header, rows, right=frozenset({"MB", "files"}))
    missing = sum(state.missing_bytes for state in states)
    reporter.result(f"in {cache}/trees; {missing / 1e6:.1f} MB to fetch")


@toolchain.command()
@_root
@_mirror
@click.option("--relock-missing", is_flag=True, help="Keep every entry that can still be fetched.")
@click.pass_obj
def lock(reporter: Reporter, root: Path, mirror: str | None, relock_missing: bool) -> None:
    """Resolve versions and write `aimabuild.lock` (needs apt-get, not root)."""
    from aimabuild.schema.lock import dump_lock, load_lock
    from aimabuild.toolchain import LOCK_NAME
    from aimabuild.toolchain.relock import relock_missing as relock
    from aimabuild.toolchain.resolve import changes, resolve

    path = root / LOCK_NAME
    if relock_missing:
        new, lines = relock(load_lock(path), reporter=reporter, mirror=mirror)
    else:
        try:
            old = load_lock(path) if path.is_file() else None
        except UsageError as error:
            reporter.warn(f"the old lock file is ignored: {error}")
            old = None
        new = resolve(root, old, reporter=reporter, mirror=mirror)
        lines = changes(old, new)
    written = write_if_changed(path, dump_lock(new).encode())
    for line in lines:
        reporter.result(line)
    reporter.result(f"wrote {path}" if written else f"{path} is up to date")
