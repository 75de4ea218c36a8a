"""What the commands of a graph run, and on what: paths of the toolchain, as far as a build needs them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import aimabuild
from aimabuild.base import extension
from aimabuild.base.errors import AimaError
from aimabuild.plan import Plan
from aimabuild.schema.lock import load_lock
from aimabuild.toolchain import LOCK_NAME, Toolchain
from aimabuild.toolchain import headers as python_headers

# Parts that every engine needs, and those that a compiler of kernels adds.
_NATIVE_PARTS = ("ziglang", "cmeel-boost", "native")
_COMPILER_PARTS = {
    "triton": ("triton", "llvm-tools", "hip-runtime"),
    "hip": ("clang-tidy", "hip-dev", "amd-aiter", "llvm-tools", "hip-runtime"),
}
_LIBRARY_PACKAGES = {"libutf8proc-dev": "utf8proc", "libxxhash-dev": "xxHash"}


@dataclass(frozen=True)
class BindingTools:
    """Header folders of the Python module, or the reason why there are none; the end of its file name."""

    includes: tuple[Path, ...]
    missing: AimaError | None
    suffix: str


@dataclass(frozen=True)
class Tools:
    """Tools, headers and libraries.

    packages: the folder that `aimabuild` is imported from. digest: of the whole toolchain. part_digests: what
    identifies each part, and each tree given in place of one. libraries: (name, version) pairs.
    """

    python: Path
    packages: Path
    zig: Path
    zig_cache: Path
    boost_include: Path
    native_include: Path
    static_libraries: tuple[Path, ...]
    triton_site: Path
    clang_resource_dir: Path
    hip_root: Path
    hip_include: Path
    hip_device_lib: Path
    ck_include: Path
    objdump: tuple[str, ...]
    digest: str
    part_digests: Mapping[str, str]
    zig_version: str
    libraries: tuple[tuple[str, str], ...]
    overrides: Mapping[str, str]
    bindings: BindingTools

    def prefixes(self, root: Path) -> tuple[tuple[Path, str], ...]:
        """Folders of this machine that could enter an object, and what stands there instead."""
        return (
            (root, "."),
            (self.boost_include, "boost"),
            (self.native_include, "native"),
            (self.zig.parent, "zig"),
            (self.ck_include, "ck"),
            (self.hip_include, "hip"),
        )


def needed_parts(plan: Plan, targets: Collection[str] = ()) -> tuple[str, ...]:
    """Toolchain parts that a build of this plan uses, or of these targets of it."""
    names = [*_NATIVE_PARTS, *(python_headers.parts() if {"bindings", "tests"} & set(targets) else ())]
    for compiler in sorted({item.template.compiler for item in plan.objects}):
        names += [name for name in _COMPILER_PARTS[compiler] if name not in names]
    return tuple(names)


def binding_tools(toolchain: Toolchain) -> BindingTools:
    """What the Python module is compiled with, as far as it was synced."""
    try:
        includes = (toolchain.pybind11_include, *python_headers.headers(toolchain.python_headers))
    except AimaError as error:
        return BindingTools((), error, extension.suffix())
    return BindingTools(includes, None, extension.suffix())


def tools_of(toolchain: Toolchain, root: Path, plan: Plan) -> Tools:
    """The tools of a synced toolchain for this plan."""
    sysroot = toolchain.native_sysroot / "usr"
    libraries = sorted(sysroot.glob("lib/**/libutf8proc.a"))
    if not libraries:
        raise AimaError("the toolchain has no libutf8proc.a", where=str(sysroot))
    versions = {part.name: part.version for part in toolchain.parts}
    packages = {package.name: package.version for package in load_lock(root / LOCK_NAME).group("native")}
    named = [
        (name, packages[deb].split("-")[0]) for deb, name in _LIBRARY_PACKAGES.items() if deb in packages
    ]
    return Tools(
        python=Path(sys.executable),
        packages=Path(aimabuild.__file__).resolve().parent.parent,
        zig=toolchain.zig,
        zig_cache=toolchain.zig_cache,
        boost_include=toolchain.boost_include,
        native_include=sysroot / "include",
        static_libraries=(libraries[0],),
        triton_site=toolchain.triton_site,
        clang_resource_dir=toolchain.clang_resource_dir,
        hip_root=toolchain.hip_root,
        hip_include=toolchain.hip_include,
        hip_device_lib=toolchain.hip_device_lib,
        ck_include=toolchain.ck_include,
        objdump=toolchain.llvm_objdump() if plan.objects else (),
        digest=toolchain.digest,
        part_digests={**{name: tree.name for name, tree in toolchain.trees.items()}, **toolchain.overrides},
        zig_version=versions["ziglang"],
        libraries=(("Boost", versions["cmeel-boost"]), *named),
        overrides=toolchain.overrides,
        bindings=binding_tools(toolchain),
    )
