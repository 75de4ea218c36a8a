"""`--rocm PATH` and `--ck PATH`: a user's own tree in place of a fetched part, checked, versioned and hashed.

They act only when given; nothing in the environment selects them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from aimabuild.base.errors import UsageError
from aimabuild.base.files import sha256_file

# The folders of a ROCm installation's include/ that HIP code reads; other libraries do not enter a kernel.
_HIP_FOLDERS = ("hip", "hsa", "amd_comgr", "rocm-core")
_BITCODE = (
    "amdgcn/bitcode",
    "lib/llvm/lib/clang/*/lib/amdgcn/bitcode",
    "lib/llvm-*/lib/clang/*/amdgcn/bitcode",
    "lib/clang/*/amdgcn/bitcode",
)


@dataclass(frozen=True)
class RocmTree:
    """A HIP development tree: the folder for `--rocm-path`, its include folder, its device libraries."""

    root: Path
    include: Path
    device_lib: Path


def open_rocm(path: Path) -> tuple[RocmTree, str]:
    """The tree at `path` (or `path`/usr) and its record "VERSION sha256:HASH". UsageError if it is none."""
    for root in (path, path / "usr"):
        if (root / "include/hip/hip_runtime.h").is_file():
            break
    else:
        raise UsageError(
            "`--rocm` names no HIP development tree",
            where=str(path),
            why="it has no include/hip/hip_runtime.h",
            hint="give the folder that holds include/ and amdgcn/bitcode/, such as /opt/rocm",
        )
    libraries = [folder for pattern in _BITCODE for folder in sorted(root.glob(pattern))]
    device_lib = next((folder for folder in libraries if (folder / "ocml.bc").is_file()), None)
    if device_lib is None or not (device_lib / "ockl.bc").is_file():
        raise UsageError(
            "`--rocm` names a tree without device libraries",
            where=str(root),
            why=f"no ocml.bc and ockl.bc under {', '.join(_BITCODE)}",
            hint="install ROCm's device libraries there, or leave `--rocm` out",
        )
    version = _hip_version(root / "include/hip/hip_version.h")
    folders = [root / "include" / name for name in _HIP_FOLDERS]
    tree = RocmTree(root.resolve(), (root / "include").resolve(), device_lib.resolve())
    return tree, f"{version} sha256:{hash_folders([*folders, device_lib])}"


def open_ck(path: Path) -> tuple[Path, str]:
    """The include folder of the CK tree at `path` and its record "VERSION sha256:HASH", or UsageError."""
    include = path / "include"
    if not (include / "ck_tile").is_dir():
        raise UsageError(
            "`--ck` names no Composable Kernel tree",
            where=str(path),
            why="it has no include/ck_tile",
            hint="give the folder that holds include/ck_tile",
        )
    return include.resolve(), f"{_ck_version(path)} sha256:{hash_folders([include])}"


def hash_folders(folders: Iterable[Path]) -> str:
    """sha256 over the names and contents of all files below the folders, links followed, order fixed."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                name = f"{folder.name}/{file.relative_to(folder).as_posix()}"
                digest.update(f"{name}\0{sha256_file(file)}\n".encode())
    return digest.hexdigest()


def _hip_version(header: Path) -> str:
    try:
        text = header.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown"
    numbers = [
        re.search(rf"^\s*#define\s+HIP_VERSION_{part}\s+(\d+)", text, re.MULTILINE)
        for part in ("MAJOR", "MINOR", "PATCH")
    ]
    return ".".join(found.group(1) for found in numbers if found) or "unknown"


def _ck_version(path: Path) -> str:
    """The commit where the tree is a plain git checkout, else the version in its CMakeLists.txt."""
    head = path / ".git/HEAD"
    try:
        text = head.read_text(encoding="utf-8").strip()
        if text.startswith("ref: "):
            text = (path / ".git" / text.removeprefix("ref: ")).read_text(encoding="utf-8").strip()
        if re.fullmatch(r"[0-9a-f]{40}", text):
            return text
    except OSError:
        pass  # no checkout, or packed references: the next source will do
    try:
        text = (path / "CMakeLists.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown"
    found = re.search(r"^\s*set\(version ([0-9.]+)\)", text, re.MULTILINE)
    return found.group(1) if found else "unknown"
