"""`--rocm` and `--ck`: checked, versioned, hashed, and part of the digest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aimabuild.base.errors import UsageError
from aimabuild.base.reporter import Reporter
from aimabuild.toolchain import open_toolchain
from aimabuild.toolchain.overrides import open_ck, open_rocm

ROOT = Path(__file__).resolve().parents[2]
BITCODE = (
    "amdgcn/bitcode",
    "lib/llvm/lib/clang/20/lib/amdgcn/bitcode",
    "lib/llvm-22/lib/clang/22/amdgcn/bitcode",
)


def make_rocm(root: Path, bitcode: str = BITCODE[0]) -> Path:
    """A small ROCm tree."""
    (root / "include/hip").mkdir(parents=True)
    (root / "include/hip/hip_runtime.h").write_text("#pragma once\n")
    version = "#define HIP_VERSION_MAJOR 7\n#define HIP_VERSION_MINOR 1\n#define HIP_VERSION_PATCH 52802\n"
    (root / "include/hip/hip_version.h").write_text(version)
    (root / bitcode).mkdir(parents=True)
    for name in ("ocml.bc", "ockl.bc"):
        (root / bitcode / name).write_bytes(b"BC\xc0\xde")
    return root


def make_ck(root: Path) -> Path:
    """A small CK tree."""
    (root / "include/ck_tile").mkdir(parents=True)
    (root / "include/ck_tile/core.hpp").write_text("#pragma once\n")
    (root / "CMakeLists.txt").write_text("set(version 1.2.0)\n# more\n")
    return root


@pytest.mark.parametrize("bitcode", BITCODE)
def test_rocm_layouts(tmp_path: Path, bitcode: str) -> None:
    root = make_rocm(tmp_path / "rocm", bitcode)
    tree, record = open_rocm(root)
    assert (tree.root, tree.include, tree.device_lib) == (root, root / "include", root / bitcode)
    assert record.startswith("7.1.52802 sha256:")


def test_a_tree_below_usr_is_found(tmp_path: Path) -> None:
    make_rocm(tmp_path / "root/usr")
    assert open_rocm(tmp_path / "root")[0].root == tmp_path / "root/usr"


def test_the_record_follows_content_not_place(tmp_path: Path) -> None:
    first = make_rocm(tmp_path / "a")
    (first / "include/hip/a.h").write_text("// same place in the order under either name")
    second = Path(shutil.copytree(first, tmp_path / "deep/b"))
    assert open_rocm(first)[1] == open_rocm(second)[1]
    (second / BITCODE[0] / "ocml.bc").write_bytes(b"other")
    third = Path(shutil.copytree(first, tmp_path / "c"))
    (third / "include/hip/a.h").rename(third / "include/hip/b.h")
    assert len({open_rocm(tree)[1] for tree in (first, second, third)}) == 3


def test_no_rocm(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no HIP development tree"):
        open_rocm(tmp_path)
    root = make_rocm(tmp_path / "rocm")
    (root / BITCODE[0] / "ockl.bc").unlink()
    with pytest.raises(UsageError, match="without device libraries") as caught:
        open_rocm(root)
    assert caught.value.where == str(root)


def test_ck(tmp_path: Path) -> None:
    root = make_ck(tmp_path / "ck")
    include, record = open_ck(root)
    assert include == root / "include"
    assert record.startswith("1.2.0 sha256:")
    (root / ".git/refs/heads").mkdir(parents=True)
    (root / ".git/HEAD").write_text("ref: refs/heads/develop\n")
    (root / ".git/refs/heads/develop").write_text("ab" * 20 + "\n")
    assert open_ck(root)[1] == record.replace("1.2.0", "ab" * 20)
    shutil.rmtree(root / ".git")
    (root / "CMakeLists.txt").unlink()
    assert open_ck(root)[1] == record.replace("1.2.0", "unknown")
    with pytest.raises(UsageError, match="no Composable Kernel tree"):
        open_ck(tmp_path)


def test_they_reach_the_toolchain_only_when_given(
    tmp_path: Path, cache: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    rocm, ck = make_rocm(tmp_path / "rocm"), make_ck(tmp_path / "ck")
    monkeypatch.setenv("ROCM_PATH", str(rocm))
    monkeypatch.setenv("HIP_PATH", str(rocm))
    plain = open_toolchain(ROOT, reporter=Reporter(quiet=True), parts=())
    own = open_toolchain(ROOT, reporter=Reporter(quiet=True), parts=(), rocm=rocm, ck=ck)
    assert plain.overrides == {}
    assert plain.hip_include == plain.trees["hip-dev"] / "usr/include"
    assert sorted(own.overrides) == ["ck", "rocm"]
    assert (own.hip_root, own.hip_sysroot) == (rocm, rocm)
    assert own.hip_device_lib == rocm / BITCODE[0]
    assert own.ck_include == ck / "include"
    assert own.hip_runtime == plain.hip_runtime
    assert own.digest != plain.digest


def test_a_replaced_part_is_not_fetched(tmp_path: Path, cache: object) -> None:
    own = open_toolchain(
        ROOT,
        reporter=Reporter(quiet=True),
        offline=True,
        parts=("hip-dev", "amd-aiter"),
        rocm=make_rocm(tmp_path / "rocm"),
        ck=make_ck(tmp_path / "ck"),
    )
    assert own.synced.unpacked == ()
