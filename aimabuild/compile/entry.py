"""What the compile steps that ninja runs share: their `main`, and the checks on what they made."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from aimabuild.base.errors import AimaError
from aimabuild.base.files import atomic_path
from aimabuild.base.reporter import Reporter


def run_command(command: click.Command) -> None:
    """Run a command as a process: errors are printed once, the exit code is theirs."""
    try:
        command.main(standalone_mode=False)
    except AimaError as error:
        Reporter().error(error)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)


def check_paths(kernel: str, image: bytes, folders: Iterable[Path]) -> None:
    """Raise `AimaError` when the image names one of the folders that it was built in or from."""
    for folder in folders:
        for spelling in {str(folder), str(folder.resolve())}:
            if len(spelling) > 1 and spelling.encode() in image:
                raise AimaError(
                    "the object contains a path of the build",
                    where=kernel,
                    why=f"`{spelling}` stands in it, so its bytes would change with the folder",
                )


def write_whole(files: dict[Path, bytes]) -> None:
    """Write several files by rename, in the order given: the last one stands only if all the others do."""
    for path, data in files.items():
        with atomic_path(path) as temporary:
            temporary.write_bytes(data)
