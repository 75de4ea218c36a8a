"""Compile the host code of a HIP template, which fills a kernel's argument block and grid:

    python -m aimabuild.compile.hip_host --source host.cpp --out host.o --depfile host.d
        [--include DIR ...] [--target TRIPLE] [--timeout SECONDS] and the tools of hip_tools.py

The object comes from the headers of the device code and calls nothing of the HIP runtime.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.compile.entry import check_paths, run_command, write_whole
from aimabuild.compile.hip_tools import (
    DEFAULT_TIMEOUT,
    HipTools,
    dependency_flags,
    depfile,
    environment,
    flags,
    hip_options,
    read_dependencies,
    tools_from,
)
from aimabuild.compile.process import run

# What the object may leave undefined: the C library's, which compilers call on their own.
_MAY_NEED = frozenset({"memcpy", "memset", "memmove", "memcmp"})
_TRIPLE = "x86_64-linux-gnu"


def undefined_symbols(data: bytes) -> frozenset[str]:
    """What a relocatable object needs from elsewhere."""
    table = ELFFile(io.BytesIO(data)).get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        return frozenset()
    return frozenset(s.name for s in table.iter_symbols() if s["st_shndx"] == "SHN_UNDEF" and s.name)


def compile_host(
    source: Path, tools: HipTools, includes: Sequence[Path], *, timeout: float = DEFAULT_TIMEOUT
) -> tuple[bytes, tuple[str, ...]]:
    """(object, files that were read). Raises `AimaError` when it does not compile or needs a library."""
    with tempfile.TemporaryDirectory(prefix="aima-hip-") as name:
        folder = Path(name)
        path = folder / "host.o"
        command_line = [
            *(
                *flags(tools, source),
                "--cuda-host-only",
                "-c",
                "-fPIC",
                "-fvisibility=hidden",
                "-fno-exceptions",
            ),
            *("-fno-rtti", "-fno-asynchronous-unwind-tables"),
            *(part for include in includes for part in ("-I", str(include.absolute()))),
            *(*dependency_flags(folder / "host.d"), "-o", str(path), str(source.absolute())),
        ]
        env = environment(tools, folder)
        what = "the host code cannot be compiled"
        run(command_line, timeout=timeout, env=env, cwd=folder, what=what, where=str(source))
        data = path.read_bytes()
        dependencies = read_dependencies((folder / "host.d").read_text())
        here = [folder, source.parent, Path.cwd(), Path.home()]
        check_paths(str(source), data, [*here, *tools.folders()])
    needs = sorted(undefined_symbols(data) - _MAY_NEED)
    if needs:
        raise AimaError("the host code needs a library", where=str(source), why=", ".join(needs[:8]))
    return data, dependencies


@click.command()
@click.option("--source", type=click.Path(path_type=Path), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--depfile", "depfile_path", type=click.Path(path_type=Path), required=True)
@click.option(
    "--include",
    "includes",
    type=click.Path(path_type=Path),
    multiple=True,
    default=(Path("native/include"),),
    show_default=True,
)
@click.option("--target", default=_TRIPLE, show_default=True, help="Host triple; a glibc version is ignored.")
@click.option("--timeout", type=float, default=DEFAULT_TIMEOUT, show_default=True, help="Seconds.")
@hip_options
def command(
    source: Path,
    out: Path,
    depfile_path: Path,
    includes: tuple[Path, ...],
    target: str,
    timeout: float,
    **tools: Path,
) -> None:
    """Compile the host code of one HIP kernel."""
    if target != _TRIPLE and not target.startswith(f"{_TRIPLE}."):
        raise UsageError(f"host code is compiled for {_TRIPLE}, not {target}")
    data, dependencies = compile_host(source, tools_from(tools), includes, timeout=timeout)
    write_whole({depfile_path: depfile(str(out), dependencies), out: data})


if __name__ == "__main__":
    run_command(command)
