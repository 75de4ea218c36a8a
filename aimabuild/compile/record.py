"""`record.json` (schema aimabuild/kernel-record/v1): the facts of one compiled object, read from its bytes.

The spec says what was asked for, the object's own notes say what was made: `amd_record` and `nvidia_record`
read the notes, compare the argument lists and refuse any difference. A record holds no time and no path.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.base.files import sha256_bytes
from aimabuild.compile.cubin import read_cubin
from aimabuild.compile.isa import main_form, matrix_ops
from aimabuild.compile.notes import KernelNotes, read_code_object
from aimabuild.compile.resources import MACHINES, Machine, Resources, half, occupancy
from aimabuild.compile.spec import KernelSpec, SpecArg, read_json
from aimabuild.schema.targets import TARGETS

SCHEMA = "aimabuild/kernel-record/v1"
HIDDEN = "hidden"


@dataclass(frozen=True)
class RecordArg:
    """One argument in the object's argument block; kind `hidden`: the compiler's own, to be zero."""

    name: str
    kind: str
    offset: int
    size: int
    align: int
    divisibility: int


@dataclass(frozen=True)
class Record:
    """One compiled object. `lds_bytes` is what a launch must ask for beyond what the object states itself."""

    id: str
    sha256: str
    bytes: int
    symbol: str
    kernarg_size: int
    args: tuple[RecordArg, ...]
    block: tuple[int, int, int]
    lds_bytes: int
    wave_size: int
    resources: Resources
    compiler: str

    def as_json(self) -> dict[str, Any]:
        """The file's content."""
        return {
            "schema": SCHEMA,
            "id": self.id,
            "sha256": self.sha256,
            "bytes": self.bytes,
            "symbol": self.symbol,
            "kernarg_size": self.kernarg_size,
            "args": [vars(arg) for arg in self.args],
            "block": list(self.block),
            "lds_bytes": self.lds_bytes,
            "wave_size": self.wave_size,
            "resources": self.resources.as_json(),
            "compiler": self.compiler,
        }


@dataclass(frozen=True)
class Made:
    """What a compiler says of the object that it made. `hidden`: pointers that it adds after the source's."""

    compiler: str
    threads: int
    lds_dynamic: int
    hidden: int


def record_bytes(record: Record) -> bytes:
    """The file as it is written: stable order, one final newline."""
    return (json.dumps(record.as_json(), indent=1) + "\n").encode()


def read_record(path: Path) -> Record:
    """Read one record. Raises `UsageError` when it is not one."""
    value = read_json(path, SCHEMA)
    try:
        return Record(
            id=value["id"],
            sha256=value["sha256"],
            bytes=value["bytes"],
            symbol=value["symbol"],
            kernarg_size=value["kernarg_size"],
            args=tuple(RecordArg(**arg) for arg in value["args"]),
            block=(value["block"][0], value["block"][1], value["block"][2]),
            lds_bytes=value["lds_bytes"],
            wave_size=value["wave_size"],
            resources=Resources(**value["resources"]),
            compiler=value["compiler"],
        )
    except (KeyError, TypeError, IndexError) as error:
        raise UsageError("the record is incomplete", where=str(path), why=repr(error)) from None


def _wanted(spec: KernelSpec, hidden: int) -> list[SpecArg]:
    return [*spec.args, *(SpecArg(f"hidden{i}", HIDDEN, None, 1, 8) for i in range(hidden))]


def _align(arg: SpecArg) -> int:
    return 8 if arg.kind in {"pointer", HIDDEN, "struct"} else arg.size


def match_args(
    spec: KernelSpec, found: Sequence[tuple[int, int]], *, hidden: int, kernarg_size: int
) -> tuple[RecordArg, ...]:
    """The spec's arguments at the object's (offset, size). Raises `AimaError` where they differ."""
    wanted = _wanted(spec, hidden)
    if len(wanted) != len(found):
        raise AimaError(
            f"the object takes {len(found)} arguments, the spec names {len(wanted)}",
            where=spec.id,
            why=f"spec: {', '.join(arg.name for arg in wanted)}; sizes in the object: "
            f"{', '.join(str(size) for _, size in found)}",
        )
    args: list[RecordArg] = []
    end = 0
    for arg, (offset, size) in zip(wanted, found, strict=True):
        align = _align(arg)
        if size != arg.size or offset % align or offset < end:
            raise AimaError(
                f"the argument `{arg.name}` lies elsewhere than the spec says",
                where=spec.id,
                why=f"spec: {arg.size} bytes aligned to {align}, from {end} on; "
                f"object: {size} bytes at {offset}",
            )
        end = offset + size
        args.append(RecordArg(arg.name, arg.kind, offset, size, align, arg.divisibility))
    if end > kernarg_size:
        raise AimaError(f"the arguments end at {end}, the block has {kernarg_size} bytes", where=spec.id)
    return tuple(args)


def _value_kind(arg: SpecArg) -> str:
    return "global_buffer" if arg.kind in {"pointer", HIDDEN} else "by_value"


def _check_kinds(spec: KernelSpec, notes: KernelNotes, hidden: int) -> None:
    implicit = [arg.kind for arg in notes.args if arg.kind.startswith("hidden_")]
    if implicit:
        raise AimaError(
            "the kernel reads implicit arguments, which the engine does not pass",
            where=spec.id,
            why=", ".join(implicit),
        )
    for arg, note in zip(_wanted(spec, hidden), notes.args, strict=False):
        if note.kind != _value_kind(arg):
            what = f"the argument `{arg.name}` is {note.kind} in the object, {_value_kind(arg)} in the spec"
            raise AimaError(what, where=spec.id)


def _threads(spec: KernelSpec, stated: int, made: Made) -> tuple[int, int, int]:
    if stated != made.threads:
        raise AimaError(
            f"the object is for {stated} threads a workgroup, {made.threads} were asked for", where=spec.id
        )
    return (made.threads, 1, 1)


@dataclass(frozen=True)
class _Facts:
    """What an object states, in one form for both vendors. Bytes; `registers` a lane, `frame` a lane."""

    machine: Machine
    threads: int
    kernarg_size: int
    args: list[tuple[int, int]]
    registers: int
    scalars: int
    spills: tuple[int, int]
    frame: int
    lds: int
    wave_size: int
    code_bytes: int


def _record(spec: KernelSpec, image: bytes, disassembly: str, made: Made, facts: _Facts) -> Record:
    waves = -(-made.threads // facts.wave_size)
    lds = max(facts.lds, made.lds_dynamic)
    per_simd, limiter = occupancy(facts.machine, registers=facts.registers, lds=lds, waves_per_group=waves)
    ops = matrix_ops(disassembly)
    resources = Resources(
        vgpr=facts.registers,
        sgpr=facts.scalars,
        vgpr_spills=facts.spills[0],
        sgpr_spills=facts.spills[1],
        scratch=facts.frame,
        lds_static=facts.lds,
        lds_dynamic=made.lds_dynamic,
        waves_per_group=waves,
        occupancy=per_simd,
        limiter=limiter,
        wmma=ops.total(),
        wmma_shape=main_form(ops),
        code_bytes=facts.code_bytes,
    )
    return Record(
        id=spec.id,
        sha256=sha256_bytes(image),
        bytes=len(image),
        symbol=spec.symbol,
        kernarg_size=facts.kernarg_size,
        args=match_args(spec, facts.args, hidden=made.hidden, kernarg_size=facts.kernarg_size),
        block=_threads(spec, facts.threads, made),
        lds_bytes=made.lds_dynamic,
        wave_size=facts.wave_size,
        resources=resources,
        compiler=made.compiler,
    )


def amd_record(spec: KernelSpec, image: bytes, disassembly: str, made: Made) -> Record:
    """The record of an AMD code object. Raises `AimaError` when it is not what the spec asks for."""
    code_object = read_code_object(image)
    if code_object.machine != spec.target:
        raise AimaError(f"the object is for {code_object.machine}, not {spec.target}", where=spec.id)
    if spec.symbol not in code_object.kernels:
        raise AimaError(
            f"the object lacks the kernel `{spec.symbol}`",
            where=spec.id,
            why=f"it holds {', '.join(code_object.kernels) or 'none'}",
        )
    notes = code_object.kernels[spec.symbol]
    _check_kinds(spec, notes, made.hidden)
    machine = MACHINES[spec.target]
    facts = _Facts(
        machine=machine if notes.workgroup_processor else half(machine),
        threads=notes.max_threads,
        kernarg_size=notes.kernarg_size,
        args=[(arg.offset, arg.size) for arg in notes.args],
        registers=notes.vgpr,
        scalars=notes.sgpr,
        spills=(notes.vgpr_spills, notes.sgpr_spills),
        frame=notes.scratch,
        lds=notes.lds,
        wave_size=notes.wave_size,
        code_bytes=notes.code_bytes,
    )
    return _record(spec, image, disassembly, made, facts)


def nvidia_record(spec: KernelSpec, image: bytes, disassembly: str, made: Made) -> Record:
    """The record of a cubin. It does not state spilled registers: words of local memory stand for them."""
    cubin = read_cubin(image)
    if f"sm_{cubin.compute}" != spec.target:
        raise AimaError(f"the object is for sm_{cubin.compute}, not {spec.target}", where=spec.id)
    if cubin.symbol != spec.symbol:
        raise AimaError(
            f"the object lacks the kernel `{spec.symbol}`", where=spec.id, why=f"it holds {cubin.symbol}"
        )
    facts = _Facts(
        machine=MACHINES[spec.target],
        threads=cubin.block[0] if cubin.block else made.threads,
        kernarg_size=cubin.param_size,
        args=[(param.offset, param.size) for param in cubin.params],
        registers=cubin.registers,
        scalars=0,
        spills=(-(-cubin.frame // 4), 0),
        frame=cubin.frame,
        lds=cubin.shared,
        wave_size=TARGETS[spec.target].wave_size,
        code_bytes=cubin.code_bytes,
    )
    return _record(spec, image, disassembly, made, facts)
