"""`aimabuild toolchain sync|show|lock`."""

from __future__ import annotations

from pathlib import Path

import click

from aimabuild.base.files import write_text
from aimabuild.base.reporter import Reporter


@click.group()
def toolchain() -> None:
    """List, fetch or lock compilers, headers and libraries."""


@toolchain.command()
@click.pass_obj
def lock(reporter: Reporter) -> None:
    """Resolve."""
    from aimabuild.schema.lock import dump_lock, load_lock
    from aimabuild.toolchain.resolve import changes, resolve

    path = Path("aimabuild.lock")
    old = load_lock(path) if path.is_file() else None
    new = resolve(Path(), old, reporter=reporter)
    write_text(path, dump_lock(new))
    for line in changes(old, new):
        reporter.result(line)


@toolchain.command()
@click.pass_obj
def sync(reporter: Reporter) -> None:
    """Fetch."""
    from aimabuild.toolchain import open_toolchain

    open_toolchain(Path(), reporter=reporter)
