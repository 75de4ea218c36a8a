"""Compile one Triton kernel ahead of time:

    python -m aimabuild.compile.triton_aot --spec spec.json --out kernel.co --record record.json
        --triton-site DIR --objdump COMMAND [--timeout SECONDS]

Triton runs in a child process with an environment and a cache folder of its own.
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.compile import budget
from aimabuild.compile.entry import check_paths, run_command, write_whole
from aimabuild.compile.isa import nvdisasm_text, objdump_text
from aimabuild.compile.process import base_environment, run
from aimabuild.compile.record import Made, Record, amd_record, nvidia_record, record_bytes
from aimabuild.compile.spec import KernelSpec, SpecArg, read_spec
from aimabuild.schema.targets import TARGETS

_DTYPES: Mapping[str, str] = MappingProxyType(
    {
        "bf16": "bf16",
        "f16": "fp16",
        "f32": "fp32",
        "i8": "i8",
        "u8": "u8",
        "i32": "i32",
        "i64": "i64",
        "u32": "u32",
    }
)
_HIDDEN = 2  # global scratch and profile scratch, both refused below unless empty
# Options that are Triton's own; `fp_fusion` and `buffer_ops` are spelt as environment variables too.
_OPTIONS = frozenset({"num_warps", "num_stages", "waves_per_eu", "fp_fusion", "buffer_ops"})
DEFAULT_TIMEOUT = 600.0


@dataclass(frozen=True)
class Compiled:
    """An image and its record."""

    image: bytes
    record: Record


def _type(spec: KernelSpec, arg: SpecArg) -> str:
    if arg.kind == "pointer" and arg.dtype is not None:
        return "*" + _DTYPES[arg.dtype]
    if arg.kind in {"i32", "i64"}:
        return arg.kind
    if arg.kind == "f32":
        return "fp32"
    raise UsageError(f"Triton has no argument like `{arg.name}` ({arg.kind})", where=str(spec.path))


def _target(spec: KernelSpec) -> tuple[str, str | int, int]:
    target = TARGETS[spec.target]
    if target.vendor == "nvidia":
        return ("cuda", int(spec.target.removeprefix("sm_")), target.wave_size)
    return ("hip", spec.target, target.wave_size)


def environment(spec: KernelSpec, folder: Path) -> dict[str, str]:
    """The child's whole environment. Fused multiply-add is off unless the template asks for it: a compiler
    that fuses in one tile variant and not in another would round a row differently by the length of the pass.
    Buffer instructions are off unless asked for: Triton miscompiles masked ones for gfx1151 (triton#11527).
    """
    return {
        **base_environment(folder),
        "TRITON_CACHE_DIR": str(folder / "cache"),
        "TRITON_HOME": str(folder),
        "TRITON_DISABLE_LINE_INFO": "1",
        "TRITON_DEFAULT_FP_FUSION": str(spec.options.get("fp_fusion", 0)),
        "AMDGCN_USE_BUFFER_OPS": str(spec.options.get("buffer_ops", 0)),
    }


def _request(spec: KernelSpec, site: Path, folder: Path) -> dict[str, Any]:
    unknown = sorted(set(spec.options) - _OPTIONS)
    if unknown:
        raise UsageError(f"unknown Triton option `{unknown[0]}`", where=spec.template)
    options: dict[str, Any] = {
        name: value for name, value in spec.options.items() if name not in {"fp_fusion", "buffer_ops"}
    }
    options["enable_fp_fusion"] = bool(spec.options.get("fp_fusion", 0))
    args = [
        {"name": arg.name, "type": _type(spec, arg), "divisibility": arg.divisibility} for arg in spec.args
    ]
    target = _target(spec)
    return {
        "site": str(site),
        "source": str(spec.source.absolute()),
        "symbol": spec.symbol,
        "args": args,
        "constants": dict(spec.constants),
        "target": target,
        "options": options,
        "format": "cubin" if target[0] == "cuda" else "hsaco",
        "image": str(folder / "image"),
        "metadata": str(folder / "metadata.json"),
    }


def _made(spec: KernelSpec, facts: Mapping[str, Any]) -> Made:
    for kind in ("global", "profile"):
        size = facts[f"{kind}_scratch_size"]
        if size:
            raise AimaError(
                f"the kernel needs {size} bytes of {kind} scratch memory, which the engine does not provide",
                where=spec.id,
            )
    threads = facts["num_warps"] * facts["warp_size"]
    return Made(f"triton {facts['version']}", threads, facts["shared"], _HIDDEN)


def nvdisasm(site: Path) -> list[str]:
    """The command that starts NVIDIA's disassembler, which Triton's wheel brings."""
    return [str(site / "triton/backends/nvidia/bin/nvdisasm")]


def compile_triton(
    spec: KernelSpec, site: Path, objdump: Sequence[str], *, timeout: float = DEFAULT_TIMEOUT
) -> Compiled:
    """Compile one kernel and read what was made. Raises `AimaError` on any failure or difference."""
    child = Path(__file__).with_name("triton_child.py")
    with tempfile.TemporaryDirectory(prefix="aima-triton-") as name:
        folder = Path(name)
        request = _request(spec, site.absolute(), folder)
        (folder / "request.json").write_text(json.dumps(request))
        run(
            [sys.executable, "-I", "-B", str(child), str(folder / "request.json")],
            timeout=timeout,
            env=environment(spec, folder),
            cwd=folder,
            what="Triton cannot compile the kernel",
            where=spec.id,
        )
        image_path = folder / "image"
        image = image_path.read_bytes()
        made = _made(spec, json.loads((folder / "metadata.json").read_text()))
        check_paths(spec.id, image, [folder, site, spec.path.parent, Path.cwd(), Path.home()])
        if TARGETS[spec.target].vendor == "nvidia":
            record = nvidia_record(spec, image, nvdisasm_text(nvdisasm(site), image_path), made)
        else:
            record = amd_record(spec, image, objdump_text(objdump, image_path, spec.symbol), made)
    budget.check_group_memory(spec.id, record.resources, lds_max=TARGETS[spec.target].lds_max)
    return Compiled(image, record)


@click.command()
@click.option("--spec", "spec_path", type=click.Path(path_type=Path), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--record", "record_path", type=click.Path(path_type=Path), required=True)
@click.option("--triton-site", type=click.Path(path_type=Path), required=True)
@click.option("--objdump", required=True, help="Command that starts llvm-objdump, quoted as for a shell.")
@click.option("--timeout", type=float, default=DEFAULT_TIMEOUT, show_default=True, help="Seconds.")
def command(
    spec_path: Path, out: Path, record_path: Path, triton_site: Path, objdump: str, timeout: float
) -> None:
    """Compile one Triton kernel."""
    spec = read_spec(spec_path)
    compiled = compile_triton(spec, triton_site, shlex.split(objdump), timeout=timeout)
    write_whole({out: compiled.image, record_path: record_bytes(compiled.record)})


if __name__ == "__main__":
    run_command(command)
