"""Compile one HIP C++ kernel ahead of time:

    python -m aimabuild.compile.hip --spec spec.json --out kernel.co --record record.json
        --depfile kernel.d --objdump COMMAND [--timeout SECONDS] and the tools of hip_tools.py

Device code goes straight into a code object: no fat binary, no registration with the HIP runtime.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from aimabuild.base.errors import UsageError
from aimabuild.compile import budget
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
from aimabuild.compile.isa import objdump_text
from aimabuild.compile.process import run
from aimabuild.compile.record import Made, Record, amd_record, record_bytes
from aimabuild.compile.spec import KernelSpec, read_spec
from aimabuild.schema.targets import TARGETS


@dataclass(frozen=True)
class Compiled:
    """Image, record, and the files that were read."""

    image: bytes
    record: Record
    dependencies: tuple[str, ...]


def _compiler(tools: HipTools, env: dict[str, str]) -> str:
    text = run([str(tools.zig), "clang", "--version"], timeout=60, env=env).stdout
    return "clang " + text.partition("clang version ")[2].split()[0]


def compile_hip(
    spec: KernelSpec, tools: HipTools, objdump: Sequence[str], *, timeout: float = DEFAULT_TIMEOUT
) -> Compiled:
    """Compile one kernel and read what was made. Raises `AimaError` on any failure or difference.

    objdump: the command that starts llvm-objdump. timeout: seconds.
    """
    threads = spec.options.get("threads")
    if threads is None:
        raise UsageError("a HIP template needs the option `threads`", where=spec.template)
    with tempfile.TemporaryDirectory(prefix="aima-hip-") as name:
        folder = Path(name)
        env = environment(tools, folder)
        path = folder / "kernel.co"
        command_line = [
            *(*flags(tools, spec.source), "--cuda-device-only", f"--offload-arch={spec.target}"),
            *("--no-gpu-bundle-output", *dependency_flags(folder / "device.d")),
            *("-o", str(path), str(spec.source.absolute())),
        ]
        what = "the device code cannot be compiled"
        run(command_line, timeout=timeout, env=env, cwd=folder, what=what, where=spec.id)
        image = path.read_bytes()
        made = Made(_compiler(tools, env), threads, lds_dynamic=0, hidden=0)
        record = amd_record(spec, image, objdump_text(objdump, path, spec.symbol), made)
        dependencies = read_dependencies((folder / "device.d").read_text())
        here = [folder, spec.path.parent, Path.cwd(), Path.home()]
        check_paths(spec.id, image, [*here, *tools.folders()])
    budget.check_group_memory(spec.id, record.resources, lds_max=TARGETS[spec.target].lds_max)
    return Compiled(image, record, dependencies)


@click.command()
@click.option("--spec", "spec_path", type=click.Path(path_type=Path), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--record", "record_path", type=click.Path(path_type=Path), required=True)
@click.option("--depfile", "depfile_path", type=click.Path(path_type=Path), required=True)
@click.option("--objdump", required=True, help="Command that starts llvm-objdump, quoted as for a shell.")
@click.option("--timeout", type=float, default=DEFAULT_TIMEOUT, show_default=True, help="Seconds.")
@hip_options
def command(
    spec_path: Path,
    out: Path,
    record_path: Path,
    depfile_path: Path,
    objdump: str,
    timeout: float,
    **tools: Path,
) -> None:
    """Compile one HIP kernel."""
    spec = read_spec(spec_path)
    compiled = compile_hip(spec, tools_from(tools), shlex.split(objdump), timeout=timeout)
    write_whole(
        {
            out: compiled.image,
            depfile_path: depfile(str(out), compiled.dependencies),
            record_path: record_bytes(compiled.record),
        }
    )


if __name__ == "__main__":
    run_command(command)
