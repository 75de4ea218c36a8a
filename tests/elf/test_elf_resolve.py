"""Resolution by glibc's rules; the last test compares with a real loader on random graphs."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from elfmaker import Elf, program
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aimabuild.elf.resolve import Process, SearchPath

LOADER = Path("/lib64/ld-linux-x86-64.so.2")


def start(root: Path, *, path: tuple[str, ...] = ("lib",), confine: bool = True) -> Process:
    process = Process(SearchPath(tuple(root / p for p in path), confine=root if confine else None))
    process.start(root / "bin/program")
    return process


def codes(process: Process) -> set[str]:
    return {problem.code for problem in process.problems}


def found(process: Process, name: str) -> str:
    return str(next(o.path for o in process.objects if name in o.names))


def test_library_path_and_chain(tmp_path: Path) -> None:
    program(needed=["liba.so"]).write(tmp_path / "bin/program")
    Elf(soname="liba.so", needed=["libb.so"]).write(tmp_path / "lib/liba.so")
    Elf(soname="libb.so").write(tmp_path / "lib/libb.so")
    process = start(tmp_path)
    assert not process.problems
    assert [o.path.name for o in process.objects] == ["program", "liba.so", "libb.so"]
    assert process.objects[2].chain() == ("program", "liba.so", "libb.so")


def test_unresolved_names_the_chain(tmp_path: Path) -> None:
    program(needed=["liba.so"]).write(tmp_path / "bin/program")
    Elf(needed=["libmissing.so"]).write(tmp_path / "lib/liba.so")
    problem = start(tmp_path).problems[0]
    assert problem.code == "unresolved"
    assert "`libmissing.so`" in problem.what
    assert problem.chain == ("program", "liba.so")


def test_runpath_is_not_inherited_and_rpath_is(tmp_path: Path) -> None:
    Elf(needed=["libb.so"]).write(tmp_path / "one/liba.so")
    Elf().write(tmp_path / "two/libb.so")
    dirs = "$ORIGIN/../one:$ORIGIN/../two"
    program(needed=["liba.so"], runpath=dirs).write(tmp_path / "bin/program")
    assert codes(start(tmp_path)) == {"unresolved"}
    program(needed=["liba.so"], rpath=dirs).write(tmp_path / "bin/program")
    process = start(tmp_path)
    assert not process.problems
    assert found(process, "libb.so").endswith("two/libb.so")


def test_rpath_beats_the_library_path_and_runpath_does_not(tmp_path: Path) -> None:
    for folder in ("lib", "other"):
        Elf().write(tmp_path / folder / "liba.so")
    for tag, winner in (("rpath", "other"), ("runpath", "lib")):
        program(needed=["liba.so"], **{tag: "$ORIGIN/../other"}).write(tmp_path / "bin/program")
        assert Path(found(start(tmp_path), "liba.so")).parent.name == winner


def test_runpath_switches_rpath_off(tmp_path: Path) -> None:
    Elf().write(tmp_path / "other/liba.so")
    program(needed=["liba.so"], rpath="$ORIGIN/../other", runpath="$ORIGIN").write(tmp_path / "bin/program")
    assert codes(start(tmp_path)) == {"unresolved"}


def test_braces_are_legal(tmp_path: Path) -> None:
    Elf().write(tmp_path / "other/liba.so")
    program(needed=["liba.so"], runpath="${ORIGIN}/../other").write(tmp_path / "bin/program")
    assert not start(tmp_path).problems


def test_the_file_name_provides_not_the_soname(tmp_path: Path) -> None:
    program(needed=["libq.so.1"]).write(tmp_path / "bin/program")
    Elf(soname="libq.so.1").write(tmp_path / "lib/libq.so.1.2.3")
    assert codes(start(tmp_path)) == {"unresolved"}
    (tmp_path / "lib/libq.so").symlink_to("libq.so.1.2.3")
    (tmp_path / "lib/libq.so.1").symlink_to("libq.so")
    process = start(tmp_path)
    assert not process.problems
    assert [link.name for link in process.objects[1].links] == ["libq.so.1", "libq.so"]
    assert process.objects[1].image.path.name == "libq.so.1.2.3"


def test_links_that_loop_dangle_or_leave(tmp_path: Path) -> None:
    root = tmp_path / "root"
    program(needed=["libq.so"]).write(root / "bin/program")
    (root / "lib").mkdir()
    Elf().write(tmp_path / "outside.so")
    for target, word in (
        ("libq.so", "loops"),
        ("nowhere.so", "leads nowhere"),
        ("../../outside.so", "leaves"),
    ):
        (root / "lib/libq.so").symlink_to(target)
        problem = start(root).problems[0]
        assert problem.code == "link"
        assert word in str(problem)
        (root / "lib/libq.so").unlink()


def test_links_of_folders_that_leave(tmp_path: Path) -> None:
    root = tmp_path / "root"
    program(needed=["libq.so"]).write(root / "bin/program")
    Elf().write(tmp_path / "outside/libq.so")
    (root / "lib").symlink_to("../outside")
    assert codes(start(root)) == {"link"}


def test_one_file_under_two_names_is_one_object(tmp_path: Path) -> None:
    program(needed=["liba.so", "libb.so"]).write(tmp_path / "bin/program")
    Elf().write(tmp_path / "lib/liba.so")
    (tmp_path / "lib/libb.so").symlink_to("liba.so")
    assert len(start(tmp_path).objects) == 2


def test_cycles_self_and_long_chains_end(tmp_path: Path) -> None:
    program(needed=["liba.so", "lib0.so"]).write(tmp_path / "bin/program")
    Elf(needed=["libb.so"]).write(tmp_path / "lib/liba.so")
    Elf(needed=["liba.so", "libb.so"]).write(tmp_path / "lib/libb.so")
    count = 1200
    for index in range(count):
        needed = [f"lib{index + 1}.so"] if index + 1 < count else []
        Elf(needed=needed).write(tmp_path / f"lib/lib{index}.so")
    process = start(tmp_path)
    assert not process.problems
    assert len(process.objects) == count + 3


@pytest.mark.parametrize("elf", [Elf(bits=32, machine=3), Elf(machine=183)])
def test_foreign_files_are_passed_over(elf: Elf, tmp_path: Path) -> None:
    program(needed=["liba.so"]).write(tmp_path / "bin/program")
    elf.write(tmp_path / "one/liba.so")
    assert codes(start(tmp_path, path=("one", "lib"))) == {"foreign"}
    Elf().write(tmp_path / "lib/liba.so")
    process = start(tmp_path, path=("one", "lib"))
    assert not process.problems
    assert found(process, "liba.so").endswith("lib/liba.so")


@pytest.mark.parametrize("elf", [Elf(kind=1), Elf(kind=4), program(), Elf(dynamic=False)])
def test_what_is_no_library_ends_the_search(elf: Elf, tmp_path: Path) -> None:
    program(needed=["liba.so"]).write(tmp_path / "bin/program")
    elf.write(tmp_path / "one/liba.so")
    Elf().write(tmp_path / "lib/liba.so")
    assert codes(start(tmp_path, path=("one", "lib"))) == {"kind"}


def test_a_damaged_provider_is_an_error(tmp_path: Path) -> None:
    program(needed=["liba.so"]).write(tmp_path / "bin/program")
    path = Elf(soname="liba.so").write(tmp_path / "lib/liba.so")
    path.write_bytes(path.read_bytes()[:-3])
    process = start(tmp_path)
    assert codes(process) == {"damaged"}
    assert "cut short" in str(process.problems[0])


def test_dlopen_and_host_names(tmp_path: Path) -> None:
    program(needed=["libc.so.6"]).write(tmp_path / "bin/program")
    Elf(needed=["libc.so.6"]).write(tmp_path / "lib/libplug.so.1")
    process = Process(SearchPath((tmp_path / "lib",), host=frozenset({"libc.so.6"})))
    process.start(tmp_path / "bin/program")
    assert process.dlopen("libplug.so.1") is not None
    assert not process.problems
    assert process.dlopen("libplug.so") is None
    assert codes(process) == {"unresolved"}


FOLDERS = ("lib", "lib/sub", "alt")
NAMES = tuple(f"libt{n}.so" for n in range(4))
PATHS = st.sampled_from(
    [
        None,
        None,
        None,
        "$ORIGIN",
        "$ORIGIN/sub",
        "${ORIGIN}/../alt",
        "$ORIGIN/../lib:$ORIGIN/sub",
        "$ORIGIN/..",
    ]
)
LIBRARY = st.builds(
    Elf,
    soname=st.sampled_from([None, None, *NAMES]),
    needed=st.lists(st.sampled_from([*NAMES, *NAMES, "libgone.so"]), max_size=2, unique=True),
    rpath=PATHS,
    runpath=PATHS,
    code_flags=st.just(6),
    bits=st.sampled_from([64, 64, 64, 64, 64, 32]),
    machine=st.sampled_from([62, 62, 62, 62, 62, 183]),
    kind=st.sampled_from([3] * 9 + [1]),
)
SLOT = st.one_of(
    LIBRARY, LIBRARY, st.none(), st.sampled_from([f"../{f}/{n}" for f in FOLDERS for n in NAMES])
)


def _fill(root: Path, main: Elf, slots: list[Elf | str | None]) -> None:
    main.write(root / "bin/program")
    places = [(folder, name) for folder in FOLDERS for name in NAMES]
    for (folder, name), slot in zip(places, slots, strict=True):
        path = root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(slot, Elf):
            slot.write(path)
        elif slot is not None:
            path.symlink_to(slot)


def _loader_says(root: Path) -> list[tuple[str, Path]] | None:
    """Names and files in load order as a real loader reports them; None when it cannot load."""
    run = subprocess.run(
        [LOADER, "--inhibit-cache", "--library-path", root / "lib", "--list", root / "bin/program"],
        capture_output=True,
        text=True,
        env={},
    )
    if run.returncode:
        return None
    return [(name, Path(file).resolve()) for name, file in re.findall(r"\t(libt\S+) => (\S+) \(", run.stdout)]


@pytest.mark.skipif(not LOADER.exists(), reason="no glibc loader on this host")
@settings(max_examples=int(os.environ.get("AIMA_TEST_GRAPHS", "60")), deadline=None)
@given(
    main=st.builds(
        program,
        needed=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True),
        rpath=PATHS,
        runpath=PATHS,
        code_flags=st.just(6),
    ),
    slots=st.lists(SLOT, min_size=12, max_size=12),
)
@example(main=program(needed=["libt0.so"], code_flags=6), slots=[Elf(code_flags=6), *[None] * 11])
def test_agrees_with_a_real_loader(main: Elf, slots: list[Elf | str | None]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        _fill(root, main, slots)
        process = start(root, confine=False)
        expected = _loader_says(root)
        assert bool(process.problems) == (expected is None), process.problems
        if expected is not None:
            assert [(o.name, o.image.path) for o in process.objects[1:]] == expected
