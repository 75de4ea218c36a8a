"""Makes specs, AMD code objects and cubins for tests, byte by byte: no compiler."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import msgpack

GFX1151, GFX1100 = 0x4A, 0x41
EM_AMDGPU, EM_CUDA = 224, 190
ARGS = [
    {"name": "x", "kind": "pointer", "dtype": "bf16", "divisibility": 16},
    {"name": "y", "kind": "pointer", "dtype": "f32", "divisibility": 16},
    {"name": "tokens", "kind": "i32", "divisibility": 1},
    {"name": "eps", "kind": "f32", "divisibility": 1},
]
LAYOUT = [(0, 8, "global_buffer"), (8, 8, "global_buffer"), (16, 4, "by_value"), (20, 4, "by_value")]
HIDDEN = [(24, 8, "global_buffer"), (32, 8, "global_buffer")]


def spec_json(**changes: Any) -> dict[str, Any]:
    """A complete spec of a made-up kernel."""
    spec = {
        "schema": "aimabuild/kernel-spec/v1",
        "id": "scale-n64-1a2b3c4d",
        "object": "scale-n64-1a2b3c4d",
        "op": "scale",
        "template": "triton/scale",
        "compiler": "triton",
        "target": "gfx1151",
        "source": "kernel.py",
        "symbol": "aima_scale",
        "dtype": "bf16",
        "out": "f32",
        "tile": {"block": 64},
        "args": ARGS,
        "constants": {"N": 64},
        "options": {"num_warps": 4},
        "fill": None,
        "dims": {"n": 64},
        "tokens": [1, 8192],
        "primary": True,
        "grid": [
            {"var": "tokens", "mul": 1, "add": 0, "div": 4},
            *[{"var": "one", "mul": 1, "add": 0, "div": 1}] * 2,
        ],
    }
    return {**spec, **changes}


def write_spec(folder: Path, **changes: Any) -> Path:
    """A spec's file in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "spec.json"
    path.write_text(json.dumps(spec_json(**changes)))
    return path


def metadata(layout: list[tuple[int, int, str]], **changes: Any) -> dict[str, Any]:
    """One entry of amdhsa.kernels; `changes` by name without the leading point."""
    entry = {
        ".name": "aima_scale",
        ".symbol": "aima_scale.kd",
        ".kernarg_segment_size": max(offset + size for offset, size, _ in layout),
        ".args": [{".offset": o, ".size": s, ".value_kind": k} for o, s, k in layout],
        ".vgpr_count": 97,
        ".sgpr_count": 22,
        ".vgpr_spill_count": 0,
        ".sgpr_spill_count": 0,
        ".private_segment_fixed_size": 0,
        ".group_segment_fixed_size": 0,
        ".wavefront_size": 32,
        ".max_flat_workgroup_size": 128,
        ".workgroup_processor_mode": 1,
    }
    return {**entry, **{f".{name}": value for name, value in changes.items()}}


def _header(machine: int, flags: int, segments: int) -> bytes:
    ident = b"\x7fELF\x02\x01\x01\x40\x04" + bytes(7)
    return ident + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, flags, 64, 56, segments, 64, 0, 0)


def code_object(
    layout: list[tuple[int, int, str]] | None = None, *, machine: int = GFX1151, **changes: Any
) -> bytes:
    """An AMD code object that is all note: header, one PT_NOTE, the metadata."""
    kernel = metadata(layout if layout is not None else [*LAYOUT, *HIDDEN], **changes)
    desc = msgpack.packb({"amdhsa.kernels": [kernel], "amdhsa.version": [1, 2]})
    name = b"AMDGPU\0\0"
    note = struct.pack("<III", 7, len(desc), 32) + name + desc + bytes(-len(desc) % 4)
    start = 64 + 56
    segment = struct.pack("<IIQQQQQQ", 4, 4, start, start, start, len(note), len(note), 4)
    return _header(EM_AMDGPU, machine, 1) + segment + note


def record_json(image: bytes, **changes: Any) -> dict[str, Any]:
    """The record of `code_object()`'s kernel."""
    from aimabuild.compile.record import Made, amd_record
    from aimabuild.compile.spec import _spec

    spec = _spec(Path("spec.json"), spec_json())
    record = amd_record(spec, image, "", Made("test 1", 128, lds_dynamic=1024, hidden=2))
    return {**record.as_json(), **changes}
