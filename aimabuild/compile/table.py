"""The kernel table, `aima_kernels_v1` of native/include/aima/kernels_v1.h, from specs, records and objects.

    python -m aimabuild.compile.table --target gfx1151 --build DIGEST --spec ID/spec.json ...
        --record ID/record.json ... --out-c table.c --out-s images.S --out-json kernels.json

Every spec with an own table entry is given, and the record of every object, with its `kernel.co` beside it.
The objects' notes are read once more and compared with the records, so that a stale file cannot enter the
table.
images.S names the objects as `<object id>/kernel.co`. The library is then made, from anywhere, by

    zig cc -target x86_64-linux-gnu.2.28 -std=c11 -O2 -fPIC -fvisibility=hidden -Wall -Wextra -Werror -s -g0
        -I native/include -c table.c
    zig cc -target x86_64-linux-gnu.2.28 -I FOLDER_OF_THE_OBJECTS -c images.S
    zig cc -target x86_64-linux-gnu.2.28 -shared -s -Wl,-soname,libaima-kernels-TARGET.so -Wl,--no-undefined
        -o libaima-kernels-TARGET.so table.o images.o ID/host.o ...

with the host.o of every object that has one. The result exports `aima_kernels_v1` alone and needs at most
libc.so.6, for memcpy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.base.files import sha256_bytes
from aimabuild.compile.cubin import read_cubin
from aimabuild.compile.entry import run_command, write_whole
from aimabuild.compile.notes import read_code_object
from aimabuild.compile.record import Record, read_record
from aimabuild.compile.spec import KernelSpec, SpecAxis, read_spec
from aimabuild.schema.targets import TARGETS

SCHEMA = "aimabuild/kernels/v1"
IMAGE_NAME = "kernel.co"
_KINDS = {
    "pointer": "AIMA_ARG_POINTER",
    "i32": "AIMA_ARG_I32",
    "i64": "AIMA_ARG_I64",
    "f32": "AIMA_ARG_F32",
    "struct": "AIMA_ARG_STRUCT",
    "hidden": "AIMA_ARG_HIDDEN",
}
_VARS = {"one": "AIMA_VAR_ONE", "tokens": "AIMA_VAR_TOKENS"}
_FILLED = (SpecAxis("one", 1, 0, 1),) * 3  # the grid of a kernel whose host code decides it


@dataclass(frozen=True)
class Object:
    """One compiled object: its record, and its name in the generated sources."""

    record: Record
    number: int

    @property
    def image(self) -> str:
        """Its symbol in images.S."""
        return f"aima_image_{self.number}"


@dataclass(frozen=True)
class Entry:
    """One kernel of the table."""

    spec: KernelSpec
    object: Object


def dtype_name(spec: KernelSpec) -> str:
    """What the table calls the dtypes: `bf16`, or `bf16->f32` where results differ from inputs."""
    return spec.dtype if spec.dtype == spec.out else f"{spec.dtype}->{spec.out}"


def check_object(record: Record, image: bytes, target: str) -> None:
    """Raise `AimaError` unless the record describes this image: digest, symbol, argument block."""
    if sha256_bytes(image) != record.sha256 or len(image) != record.bytes:
        raise AimaError("the object is not the one that the record describes", where=record.id)
    if TARGETS[target].vendor == "nvidia":
        cubin = read_cubin(image)
        symbols, size = {cubin.symbol}, cubin.param_size
        found = [(param.offset, param.size) for param in cubin.params]
    else:
        kernels = read_code_object(image).kernels
        notes = kernels.get(record.symbol)
        symbols, size = set(kernels), notes.kernarg_size if notes else 0
        found = [(arg.offset, arg.size) for arg in notes.args] if notes else []
    if record.symbol not in symbols:
        raise AimaError(f"the object lacks the kernel `{record.symbol}`", where=record.id)
    if size != record.kernarg_size or found != [(arg.offset, arg.size) for arg in record.args]:
        raise AimaError(
            "the record's arguments are not those of the object",
            where=record.id,
            why=f"record: {record.kernarg_size} bytes; object: {size} bytes, (offset, size) {found}",
        )


def entries(target: str, specs: Iterable[KernelSpec], objects: Mapping[str, Object]) -> tuple[Entry, ...]:
    """The table's kernels, sorted by id. Raises `UsageError` when spec and objects do not fit together."""
    found: dict[str, Entry] = {}
    for spec in specs:
        where = str(spec.path)
        if spec.target != target:
            raise UsageError(f"the spec is for {spec.target}, the table for {target}", where=where)
        if spec.id in found:
            raise UsageError(f"the kernel `{spec.id}` stands twice", where=where)
        if spec.object not in objects:
            raise UsageError(f"no record of the object `{spec.object}`", where=where)
        item = objects[spec.object]
        if item.record.symbol != spec.symbol:
            raise UsageError(f"the object's kernel is `{item.record.symbol}`", where=where)
        found[spec.id] = Entry(spec, item)
    return tuple(found[key] for key in sorted(found))


def _text(value: str) -> str:
    return json.dumps(value)  # C and JSON agree on ASCII strings


def _arg_lines(item: Object) -> list[str]:
    lines = [f"static const aima_arg_v1 args_{item.number}[] = {{"]
    lines += [
        f"    {{{_text(a.name)}, {_KINDS[a.kind]}, {a.offset}, {a.size}, {a.align}, {a.divisibility}}},"
        for a in item.record.args
    ]
    return [*lines, "};"]


def _dim_lines(number: int, spec: KernelSpec) -> list[str]:
    dims = ", ".join(f"{{{_text(name)}, {value}}}" for name, value in spec.dims.items())
    return [f"static const aima_dim_v1 dims_{number}[] = {{{dims}}};"]


def _kernel_lines(number: int, entry: Entry) -> list[str]:
    spec, record = entry.spec, entry.object.record
    digest = ", ".join(f"0x{byte:02x}" for byte in bytes.fromhex(record.sha256))
    grid = ", ".join(f"{{{_VARS[a.var]}, {a.mul}, {a.add}, {a.div}}}" for a in spec.grid or _FILLED)
    fields: dict[str, str | int] = {
        "id": _text(spec.id),
        "op": _text(spec.op),
        "template_name": _text(spec.template),
        "dtype": _text(dtype_name(spec)),
        "symbol": _text(record.symbol),
        "dims": f"dims_{number}",
        "dim_count": len(spec.dims),
        "token_min": spec.tokens[0],
        "token_max": spec.tokens[1],
        "primary": int(spec.primary),
        "image": entry.object.image,
        "image_size": record.bytes,
        "image_sha256": f"{{{digest}}}",
        "kernarg_size": record.kernarg_size,
        "arg_count": len(record.args),
        "args": f"args_{entry.object.number}",
        "fill": spec.fill_symbol or "0",
        "grid": f"{{{grid}}}",
        "block": f"{{{', '.join(map(str, record.block))}}}",
        "lds_bytes": record.lds_bytes,
        "wave_size": record.wave_size,
    }
    return ["    {", *(f"        .{name} = {value}," for name, value in fields.items()), "    },"]


# The generated C was written for exactly this layout; another compiler's would show here.
_ASSERTS = (
    ("sizeof(aima_arg_v1) == 32", "the layout of an argument"),
    ("sizeof(aima_dim_v1) == 16", "the layout of a dimension"),
    ("sizeof(aima_kernel_v1) == 208", "the layout of a kernel"),
    ("sizeof(aima_kernels_table_v1) == 40", "the layout of the table"),
)


def table_source(target: str, build: str, kernels: Sequence[Entry], objects: Sequence[Object]) -> str:
    """table.c: the table, its strings and numbers."""
    lines = [
        f"// Kernel table for {target}, made by aimabuild. One entry for each kernel, images in images.S.",
        '#include "aima/kernels_v1.h"',
        "",
        *(f"_Static_assert({test}, {_text(why)});" for test, why in _ASSERTS),
        "",
        *(f"extern const unsigned char {item.image}[];" for item in objects),
    ]
    fills = sorted({entry.spec.fill_symbol for entry in kernels if entry.spec.fill_symbol})
    lines += [f"int {name}(const void *, void *, size_t, uint32_t[3]);" for name in fills]
    for item in objects:
        lines += ["", *_arg_lines(item)]
    lines.append("")
    for number, entry in enumerate(kernels):
        lines += _dim_lines(number, entry.spec)
    lines += ["", "static const aima_kernel_v1 kernels[] = {"]
    for number, entry in enumerate(kernels):
        lines += _kernel_lines(number, entry)
    lines += [
        "};",
        "",
        '__attribute__((visibility("default"))) const aima_kernels_table_v1 aima_kernels_v1 = {',
        "    .magic = AIMA_KERNELS_MAGIC,",
        "    .struct_size = sizeof(aima_kernels_table_v1),",
        "    .kernel_size = sizeof(aima_kernel_v1),",
        "    .kernel_count = sizeof kernels / sizeof kernels[0],",
        f"    .target = {_text(target)},",
        f"    .build = {_text(build)},",
        "    .kernels = kernels,",
        "};",
    ]
    return "\n".join(lines) + "\n"


def images_source(objects: Sequence[Object]) -> str:
    """images.S: every object's bytes, named relative to the folder that holds the objects' folders."""
    lines = ["// Compiled kernels as they were made.", "    .section .rodata"]
    for item in objects:
        path = f"{item.record.id}/{IMAGE_NAME}"
        lines += [
            f"    .globl {item.image}",
            f"    .hidden {item.image}",
            "    .balign 64",
            f"{item.image}:",
            f"    .incbin {_text(path)}",
        ]
    return "\n".join([*lines, '    .section .note.GNU-stack,"",@progbits']) + "\n"


def _grid_json(axes: Sequence[SpecAxis] | None) -> list[dict[str, Any]] | None:
    return [vars(axis) for axis in axes] if axes is not None else None


def table_json(target: str, build: str, kernels: Sequence[Entry]) -> dict[str, Any]:
    """The same facts as data, with the tile and the resource report (schema aimabuild/kernels/v1)."""
    items: list[dict[str, Any]] = []
    for entry in kernels:
        spec, record = entry.spec, entry.object.record
        facts = {key: value for key, value in record.as_json().items() if key not in {"schema", "id"}}
        items.append(
            {
                "id": spec.id,
                "object": spec.object,
                "op": spec.op,
                "template": spec.template,
                "dtype": dtype_name(spec),
                "dims": dict(spec.dims),
                "tokens": list(spec.tokens),
                "primary": spec.primary,
                "tile": dict(spec.tile),
                "grid": _grid_json(spec.grid),
                "fill": spec.fill_symbol,
                **facts,
            }
        )
    return {"schema": SCHEMA, "target": target, "build": build, "kernels": items}


def load_objects(target: str, records: Iterable[Path]) -> dict[str, Object]:
    """Object id -> checked object, numbered in the order of ids."""
    found: dict[str, Record] = {}
    for path in records:
        record = read_record(path)
        try:
            image = path.with_name(IMAGE_NAME).read_bytes()
        except OSError as error:
            raise AimaError(f"cannot read the object: {error.strerror}", where=record.id) from None
        check_object(record, image, target)
        found[record.id] = record
    return {key: Object(found[key], number) for number, key in enumerate(sorted(found))}


@click.command()
@click.option("--target", type=click.Choice(list(TARGETS)), required=True)
@click.option("--build", required=True, help="Digest of plan and toolchain.")
@click.option("--spec", "spec_paths", type=click.Path(path_type=Path), multiple=True)
@click.option("--record", "record_paths", type=click.Path(path_type=Path), multiple=True)
@click.option("--out-c", type=click.Path(path_type=Path), required=True)
@click.option("--out-s", type=click.Path(path_type=Path), required=True)
@click.option("--out-json", type=click.Path(path_type=Path), required=True)
def command(
    target: str,
    build: str,
    spec_paths: tuple[Path, ...],
    record_paths: tuple[Path, ...],
    out_c: Path,
    out_s: Path,
    out_json: Path,
) -> None:
    """Generate the kernel table."""
    objects = load_objects(target, record_paths)
    kernels = entries(target, (read_spec(path) for path in spec_paths), objects)
    if not kernels:
        raise UsageError("a table needs at least one kernel", hint="give --spec and --record")
    unused = sorted(set(objects) - {entry.spec.object for entry in kernels})
    if unused:
        raise UsageError(f"no kernel uses the object `{unused[0]}`")
    ordered = list(objects.values())
    text = json.dumps(table_json(target, build, kernels), indent=1) + "\n"
    write_whole(
        {
            out_c: table_source(target, build, kernels, ordered).encode(),
            out_s: images_source(ordered).encode(),
            out_json: text.encode(),
        }
    )


if __name__ == "__main__":
    run_command(command)
