"""Records: what the object states, compared with what the spec asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made import ARGS, GFX1100, HIDDEN, LAYOUT, code_object, record_json, write_spec

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.base.files import sha256_bytes
from aimabuild.compile.record import Made, Record, amd_record, read_record, record_bytes
from aimabuild.compile.spec import read_spec

TEXT = "\tv_wmma_f32_16x16x16_bf16 v[0:7], v[8:15], v[16:23], v[0:7]\n" * 12
MADE = Made("test 1", 128, lds_dynamic=10240, hidden=2)


def record(folder: Path, image: bytes, made: Made = MADE, **changes: Any) -> Record:
    return amd_record(read_spec(write_spec(folder, **changes)), image, TEXT, made)


def test_the_record_states_the_object(tmp_path: Path) -> None:
    image = code_object()
    made = record(tmp_path, image)
    assert made.sha256 == sha256_bytes(image)
    assert (made.bytes, made.kernarg_size, made.block, made.wave_size) == (len(image), 40, (128, 1, 1), 32)
    assert [(arg.name, arg.kind, arg.offset, arg.size, arg.align) for arg in made.args] == [
        ("x", "pointer", 0, 8, 8),
        ("y", "pointer", 8, 8, 8),
        ("tokens", "i32", 16, 4, 4),
        ("eps", "f32", 20, 4, 4),
        ("hidden0", "hidden", 24, 8, 8),
        ("hidden1", "hidden", 32, 8, 8),
    ]
    assert [arg.divisibility for arg in made.args] == [16, 16, 1, 1, 1, 1]
    assert made.lds_bytes == 10240
    resources = made.resources
    assert (resources.occupancy, resources.limiter, resources.wmma) == (12, "registers+lds", 12)
    assert resources.wmma_shape == "f32_16x16x16_bf16"


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    made = record(tmp_path, code_object())
    path = tmp_path / "record.json"
    path.write_bytes(record_bytes(made))
    assert record_bytes(read_record(path)) == path.read_bytes()


def test_cu_mode_halves_what_a_workgroup_can_have(tmp_path: Path) -> None:
    image = code_object(workgroup_processor_mode=0)
    assert record(tmp_path, image, Made("test 1", 128, 32768, 2)).resources.occupancy == 4


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ([*LAYOUT, HIDDEN[0]], "takes 5 arguments, the spec names 6"),
        ([LAYOUT[0], LAYOUT[1], (16, 8, "by_value"), (24, 4, "by_value"), (32, 8, "global_buffer"),
          (40, 8, "global_buffer")], "`tokens` lies elsewhere"),
        ([LAYOUT[0], LAYOUT[1], (20, 4, "by_value"), (16, 4, "by_value"), *HIDDEN], "`eps` lies elsewhere"),
        ([(0, 8, "by_value"), *LAYOUT[1:], *HIDDEN], "`x` is by_value in the object"),
        ([*LAYOUT, *HIDDEN, (40, 4, "hidden_block_count_x")], "reads implicit arguments"),
    ],
)  # fmt: skip
def test_a_different_argument_list_is_refused(
    tmp_path: Path, layout: list[tuple[int, int, str]], said: str
) -> None:
    with pytest.raises(AimaError, match=said):
        record(tmp_path, code_object(layout))


def test_arguments_beyond_the_block_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AimaError, match="the arguments end at 40, the block has 32 bytes"):
        record(tmp_path, code_object(kernarg_segment_size=32))


def test_another_target_symbol_or_workgroup_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AimaError, match="is for gfx1100, not gfx1151"):
        record(tmp_path, code_object(machine=GFX1100))
    with pytest.raises(AimaError, match="lacks the kernel `aima_other`"):
        record(tmp_path, code_object(), symbol="aima_other")
    with pytest.raises(AimaError, match="is for 128 threads a workgroup, 256 were asked for"):
        record(tmp_path, code_object(), Made("test 1", 256, 0, 2))


def test_a_renamed_or_retyped_source_argument_is_seen(tmp_path: Path) -> None:
    with pytest.raises(AimaError, match="`tokens` lies elsewhere"):
        record(tmp_path, code_object(), args=[*ARGS[:2], {**ARGS[2], "kind": "i64"}, ARGS[3]])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "aimabuild/kernel-record/v1"}'])
def test_bad_record_files_are_usage_errors(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"record\.json"):
        read_record(path)


def test_a_spec_without_a_key_names_it(tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    value = json.loads(path.read_text())
    del value["grid"]
    path.write_text(json.dumps(value))
    with pytest.raises(UsageError, match="grid"):
        read_spec(path)
    with pytest.raises(UsageError, match="cannot read the file"):
        read_spec(tmp_path / "missing.json")


def test_record_holds_no_path_and_no_time(tmp_path: Path) -> None:
    assert str(tmp_path).encode() not in record_bytes(record(tmp_path, code_object()))
    assert set(record_json(code_object())) == {
        *("schema", "id", "sha256", "bytes", "symbol", "kernarg_size", "args", "block", "lds_bytes"),
        *("wave_size", "resources", "compiler"),
    }
