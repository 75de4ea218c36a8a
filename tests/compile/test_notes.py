"""Reading code objects and cubins: facts, and one kind of error for anything else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made import GFX1100, HIDDEN, LAYOUT, code_object

from aimabuild.base.errors import AimaError
from aimabuild.compile.cubin import read_cubin
from aimabuild.compile.notes import NoteArg, read_code_object


def test_facts_of_a_kernel() -> None:
    found = read_code_object(code_object(vgpr_spill_count=2, private_segment_fixed_size=64))
    assert found.machine == "gfx1151"
    kernel = found.kernels["aima_scale"]
    assert kernel.args == tuple(NoteArg(*arg) for arg in [*LAYOUT, *HIDDEN])
    assert (kernel.kernarg_size, kernel.vgpr, kernel.sgpr, kernel.vgpr_spills) == (40, 97, 22, 2)
    assert (kernel.scratch, kernel.lds, kernel.wave_size, kernel.max_threads) == (64, 0, 32, 128)
    assert kernel.workgroup_processor


def test_machine_is_read_from_the_header() -> None:
    assert read_code_object(code_object(machine=GFX1100)).machine == "gfx1100"
    assert read_code_object(code_object(machine=0x33)).machine == "mach-0x33"


def test_a_descriptor_of_another_name_is_refused() -> None:
    with pytest.raises(AimaError, match=r"unexpected descriptor `other\.kd`"):
        read_code_object(code_object(symbol="other.kd"))


def test_host_objects_are_refused() -> None:
    image = bytearray(code_object())
    image[18:20] = (62).to_bytes(2, "little")
    with pytest.raises(AimaError, match="not an AMD code object"):
        read_code_object(bytes(image))
    with pytest.raises(AimaError, match="not a cubin"):
        read_cubin(bytes(image))


@settings(max_examples=150)
@given(st.data())
def test_damage_is_one_kind_of_error(data: st.DataObject) -> None:
    image = bytearray(code_object())
    for _ in range(data.draw(st.integers(1, 6))):
        image[data.draw(st.integers(0, len(image) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(image[: data.draw(st.integers(0, len(image)))])
    for read in (read_code_object, read_cubin):
        try:
            read(cut)
        except AimaError as error:
            assert error.exit_code == 1  # noqa: PT017 - any other kind of exception fails the test
