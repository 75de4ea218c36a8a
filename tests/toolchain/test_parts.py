"""The table of parts against the project's own lock, and what enters the keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aimabuild.schema.lock import Lock, load_lock
from aimabuild.toolchain import parts
from aimabuild.toolchain.licences import debian_licence, python_licence
from aimabuild.toolchain.parts import BY_NAME, PARTS, describe, files_of, lock_digest, tree_key

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def lock() -> Lock:
    """The project's lock."""
    return load_lock(ROOT / "aimabuild.lock")


@pytest.mark.parametrize("spec", PARTS, ids=lambda spec: spec.name)
def test_every_part_is_locked_for_every_python(spec: parts.PartSpec, lock: Lock) -> None:
    for text in lock.pythons:
        major, minor = text.split(".")
        assert files_of(spec, lock, (int(major), int(minor)))
    part = describe(spec, lock)
    assert part.version
    assert part.licence
    assert "see " not in part.licence
    assert part.size == sum(file.size for file in files_of(spec, lock))


def test_the_lock_holds_nothing_else(lock: Lock) -> None:
    groups = {group for package in lock.debian for group in package.groups}
    assert groups == {spec.name for spec in PARTS if spec.kind == "debian"}
    assert {wheel.name for wheel in lock.wheels} == {spec.name for spec in PARTS if spec.kind == "wheel"}


def test_the_runtime_closure_has_a_loader_and_no_development_files(lock: Lock) -> None:
    names = {package.name for package in lock.group("hip-runtime")}
    assert {"libc6", "libamdhip64-7", "libllvm22", "libstdc++6", "libdrm-common", "gcc-16-base"} <= names
    assert not [name for name in names if name.endswith("-dev")]


def test_wants() -> None:
    triton, kernels, zig = BY_NAME["triton"], BY_NAME["amd-aiter"], BY_NAME["ziglang"]
    assert triton.wants("triton/backends/nvidia/bin/ptxas")
    assert not triton.wants("triton/backends/nvidia/lib/cupti/libcupti.so")
    assert kernels.wants("aiter_meta/3rdparty/composable_kernel/include/ck_tile/core.hpp")
    assert not kernels.wants("aiter/__init__.py")
    assert zig.wants("ziglang/lib/libc/include/x86-linux-gnu/bits/wordsize.h")
    assert zig.wants("ziglang/lib/libc/include/generic-glibc/stdio.h")
    assert not zig.wants("ziglang/lib/libc/include/any-windows-any/windows.h")


def test_keys_change_with_what_they_stand_for(lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = BY_NAME["native"]
    other = Lock(
        lock.suites,
        tuple(replace(p, sha256="0" * 64) if p.name == "doctest-dev" else p for p in lock.debian),
        lock.wheels,
        lock.pythons,
        lock.python,
    )
    keys = {tree_key(spec, lock), tree_key(spec, other), tree_key(replace(spec, drop=()), lock)}
    keys.add(tree_key(replace(spec, keep=("usr/",)), lock))
    digests = {lock_digest(lock, {}), lock_digest(other, {}), lock_digest(lock, {"rocm": "7.2 sha256:1"})}
    monkeypatch.setattr(parts, "UNPACK_VERSION", 99)
    keys.add(tree_key(spec, lock))
    digests.add(lock_digest(lock, {}))
    assert len(keys) == 5
    assert len(digests) == 4


def test_the_digest_does_not_depend_on_the_python(lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    before, key = lock_digest(lock, {}), tree_key(BY_NAME["triton"], lock)
    monkeypatch.setattr(parts.sys, "version_info", type("V", (), {"major": 3, "minor": 13})())
    assert lock_digest(lock, {}) == before
    assert tree_key(BY_NAME["triton"], lock) != key


def test_every_licence_is_known(lock: Lock) -> None:
    entries = [*lock.debian, *lock.wheels, *lock.python]
    assert [entry.name for entry in entries if entry.licence.startswith("see ")] == []


def test_licences_of_new_packages() -> None:
    assert debian_licence("libllvm23") == "Apache-2.0 WITH LLVM-exception"
    assert debian_licence("libnew1") == "see usr/share/doc/libnew1/copyright"
    assert python_licence("new", {"license_expression": "ISC"}) == "ISC"
    assert python_licence("new", {"classifier": ["License :: OSI Approved :: MIT License"]}) == "MIT"
    assert python_licence("new", {"license": "Zlib"}) == "Zlib"
    assert python_licence("new", {"license": "a\nlong text"}) == "see its dist-info"
    assert python_licence("numpy", {}).startswith("BSD-3-Clause AND")
