"""The generated kernel table: refusals, the data beside it, and the library as C sees it."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from made import HIDDEN, LAYOUT, code_object, record_json, spec_json, write_spec

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.compile.spec import read_spec
from aimabuild.compile.table import command, entries, load_objects
from aimabuild.toolchain import Toolchain

ROOT = Path(__file__).resolve().parents[2]
FILL = """\
#include <stddef.h>
#include <stdint.h>
int aima_fill_scale(const void *args, void *kernarg, size_t capacity, uint32_t grid[3]) {
  (void)args; (void)kernarg; grid[0] = 7; return capacity < 40 ? -4 : 0;
}
"""


def put(folder: Path, image: bytes | None = None, **changes: Any) -> Path:
    """A kernel folder with spec, object and record; the folder is named by the id."""
    spec = spec_json(**changes)
    home = folder / spec["id"]
    write_spec(home, **changes)
    data = image or code_object()
    (home / "kernel.co").write_bytes(data)
    (home / "record.json").write_text(json.dumps(record_json(data, id=spec["id"])))
    return home


def generate(folder: Path, *homes: Path, target: str = "gfx1151") -> Any:
    words = [
        w
        for home in homes
        for w in ("--spec", str(home / "spec.json"), "--record", str(home / "record.json"))
    ]
    outs = [w for name in ("c", "s", "json") for w in (f"--out-{name}", str(folder / f"table.{name}"))]
    args = ["--target", target, "--build", "b" * 64, *words, *outs]
    return CliRunner().invoke(command, args, catch_exceptions=True)


def test_the_data_beside_the_table(tmp_path: Path) -> None:
    result = generate(tmp_path, put(tmp_path))
    assert result.exit_code == 0, result.exception
    value = json.loads((tmp_path / "table.json").read_text())
    assert (value["schema"], value["target"], value["build"]) == ("aimabuild/kernels/v1", "gfx1151", "b" * 64)
    (kernel,) = value["kernels"]
    assert (kernel["id"], kernel["dtype"], kernel["tokens"]) == ("scale-n64-1a2b3c4d", "bf16->f32", [1, 8192])
    assert kernel["args"][2]["offset"] == 16
    assert kernel["resources"]["vgpr"] == 97


def test_images_are_named_by_object_and_the_sources_hold_no_path(tmp_path: Path) -> None:
    assert generate(tmp_path, put(tmp_path)).exit_code == 0
    assert '.incbin "scale-n64-1a2b3c4d/kernel.co"' in (tmp_path / "table.s").read_text()
    for name in ("c", "s", "json"):
        assert str(tmp_path) not in (tmp_path / f"table.{name}").read_text()


def test_order_of_inputs_does_not_matter(tmp_path: Path) -> None:
    first, second = put(tmp_path), put(tmp_path, id="add-n64", object="add-n64")
    assert generate(tmp_path, first, second).exit_code == 0
    texts = [(tmp_path / f"table.{name}").read_bytes() for name in ("c", "s", "json")]
    assert generate(tmp_path, second, first).exit_code == 0
    assert texts == [(tmp_path / f"table.{name}").read_bytes() for name in ("c", "s", "json")]


def test_a_changed_object_is_refused(tmp_path: Path) -> None:
    home = put(tmp_path)
    (home / "kernel.co").write_bytes(code_object(vgpr_count=98))
    with pytest.raises(AimaError, match="not the one that the record describes"):
        load_objects("gfx1151", [home / "record.json"])


@pytest.mark.parametrize(
    "change",
    [{"kernarg_size": 48}, {"args": []}, {"symbol": "aima_other"}],
)
def test_a_record_that_does_not_fit_its_object_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    home = put(tmp_path)
    record = json.loads((home / "record.json").read_text())
    (home / "record.json").write_text(json.dumps({**record, **change}))
    with pytest.raises(AimaError, match="object"):
        load_objects("gfx1151", [home / "record.json"])


def test_swapped_offsets_are_refused(tmp_path: Path) -> None:
    home = put(tmp_path)
    record = json.loads((home / "record.json").read_text())
    record["args"][2]["offset"], record["args"][3]["offset"] = 20, 16
    (home / "record.json").write_text(json.dumps(record))
    with pytest.raises(AimaError, match="arguments are not those of the object"):
        load_objects("gfx1151", [home / "record.json"])


def test_specs_without_object_twice_or_for_another_target_are_refused(tmp_path: Path) -> None:
    home = put(tmp_path)
    objects = load_objects("gfx1151", [home / "record.json"])
    spec = read_spec(home / "spec.json")
    with pytest.raises(UsageError, match="stands twice"):
        entries("gfx1151", [spec, spec], objects)
    with pytest.raises(UsageError, match="no record of the object"):
        entries("gfx1151", [spec], {})
    with pytest.raises(UsageError, match="the table for gfx1100"):
        entries("gfx1100", [spec], objects)


def test_an_object_that_nothing_uses_and_an_empty_table_are_refused(tmp_path: Path) -> None:
    first, second = put(tmp_path), put(tmp_path, id="add-n64", object="add-n64")
    (second / "spec.json").write_text(
        (first / "spec.json").read_text().replace('"scale-n64', '"x-scale-n64', 1)
    )
    assert "no kernel uses the object `add-n64`" in str(generate(tmp_path, first, second).exception)
    assert "at least one kernel" in str(generate(tmp_path).exception)


class _Arg(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        *((n, ctypes.c_uint32) for n in ("kind", "offset", "size", "align", "div")),
    )


class _Dim(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("value", ctypes.c_int64))


class _Kernel(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_char_p) for name in ("id", "op", "template_name", "dtype", "symbol")),
        ("dims", ctypes.POINTER(_Dim)),
        *((name, ctypes.c_uint32) for name in ("dim_count", "token_min", "token_max", "primary")),
        ("image", ctypes.c_void_p),
        ("image_size", ctypes.c_uint64),
        ("image_sha256", ctypes.c_uint8 * 32),
        *((name, ctypes.c_uint32) for name in ("kernarg_size", "arg_count")),
        ("args", ctypes.POINTER(_Arg)),
        ("fill", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 4 * 3),
        ("block", ctypes.c_uint32 * 3),
        *((name, ctypes.c_uint32) for name in ("lds_bytes", "wave_size")),
    )


class _Table(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("magic", "struct_size", "kernel_size", "kernel_count")),
        *((name, ctypes.c_char_p) for name in ("target", "build")),
        ("kernels", ctypes.POINTER(_Kernel)),
    )


def link(folder: Path, tools: Toolchain) -> Path:
    """The library, by the commands that table.py states."""
    (folder / "fill.c").write_text(FILL)
    library = folder / "kernels.so"
    cc = [str(tools.zig), "cc", "-target", "x86_64-linux-gnu.2.28", "-fPIC", "-fvisibility=hidden", "-g0"]
    env = {"PATH": os.defpath, "HOME": str(folder), "ZIG_GLOBAL_CACHE_DIR": str(tools.zig_cache)}
    env["ZIG_LOCAL_CACHE_DIR"] = str(folder / "zig")
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-I", str(ROOT / "native/include")]
    (folder / "table.S").write_bytes((folder / "table.s").read_bytes())
    for command_line in (
        [*cc, *warnings, "-c", "table.c", "-o", "table.o"],
        [*cc, "-I", str(folder), "-c", "table.S", "-o", "images.o"],
        [*cc, "-c", "fill.c", "-o", "fill.o"],
        [*cc, "-shared", "-s", "-Wl,--no-undefined", "-o", str(library), "table.o", "images.o", "fill.o"],
    ):
        done = subprocess.run(command_line, cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return library


@pytest.mark.toolchain
def test_the_library_as_c_sees_it(tmp_path: Path, toolchain: Toolchain) -> None:
    plain = put(tmp_path)
    other = code_object(vgpr_count=24)
    filled = put(
        tmp_path,
        other,
        id="zoom-n64",
        object="zoom-n64",
        fill={"source": "host.cpp", "symbol": "aima_fill_scale"},
        grid=None,
        primary=False,
        tokens=[1, 64],
    )
    assert generate(tmp_path, plain, filled).exit_code == 0
    library = ctypes.CDLL(str(link(tmp_path, toolchain)))
    table = _Table.in_dll(library, "aima_kernels_v1")
    assert (table.magic, table.struct_size, table.kernel_size) == (
        int.from_bytes(b"AKN1", "little"),
        ctypes.sizeof(_Table),
        ctypes.sizeof(_Kernel),
    )
    assert (table.kernel_count, table.target, table.build) == (2, b"gfx1151", b"b" * 64)
    scale, zoom = table.kernels[0], table.kernels[1]
    assert (scale.id, scale.op, scale.dtype, scale.symbol) == (
        b"scale-n64-1a2b3c4d", b"scale", b"bf16->f32", b"aima_scale",
    )  # fmt: skip
    assert [(scale.dims[i].name, scale.dims[i].value) for i in range(scale.dim_count)] == [(b"n", 64)]
    assert (scale.token_min, scale.token_max, scale.primary) == (1, 8192, 1)
    assert ctypes.string_at(scale.image, scale.image_size) == code_object()
    assert ctypes.string_at(zoom.image, zoom.image_size) == other
    found = [(scale.args[i].name, scale.args[i].kind, scale.args[i].offset) for i in range(scale.arg_count)]
    assert found == [
        (b"x", 0, 0),
        (b"y", 0, 8),
        (b"tokens", 1, 16),
        (b"eps", 3, 20),
        (b"hidden0", 5, 24),
        (b"hidden1", 5, 32),
    ]
    assert len(found) == len(LAYOUT) + len(HIDDEN)
    assert (scale.kernarg_size, scale.lds_bytes, scale.wave_size) == (40, 1024, 32)
    assert [list(axis) for axis in scale.grid] == [[1, 1, 0, 4], [0, 1, 0, 1], [0, 1, 0, 1]]
    assert list(scale.block) == [128, 1, 1]
    assert not scale.fill
    grid = (ctypes.c_uint32 * 3)()
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
    )
    fill = prototype(zoom.fill)
    assert (fill(None, None, 40, grid), grid[0]) == (0, 7)
    assert fill(None, None, 8, grid) == -4
