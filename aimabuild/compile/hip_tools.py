"""What device and host compilation of HIP sources share: tools, flags, dependencies.

Both sides see the same headers and flags, so that they agree on the layout of a by-value argument block, and
no header of the machine that builds is in reach.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from aimabuild.base.files import sha256_file
from aimabuild.compile.process import base_environment

DEFAULT_TIMEOUT = 1800.0

# How `zig c++` configures its libc++; here the compiler is called without that driver.
_LIBCXX = (
    *("ABI_VERSION=1", "ABI_NAMESPACE=__1", "HAS_THREADS=1", "HAS_MONOTONIC_CLOCK", "HAS_TERMINAL"),
    *("HAS_MUSL_LIBC=0", "DISABLE_VISIBILITY_ANNOTATIONS", "HAS_VENDOR_AVAILABILITY_ANNOTATIONS=0"),
    *("HAS_FILESYSTEM=1", "HAS_RANDOM_DEVICE", "HAS_LOCALIZATION", "HAS_UNICODE", "HAS_WIDE_CHARACTERS"),
    *("HAS_NO_STD_MODULES", "HAS_TIME_ZONE_DATABASE", "PSTL_BACKEND_SERIAL"),
    "HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE",
    "ASSERTION_SEMANTIC_DEFAULT=_LIBCPP_ASSERTION_SEMANTIC_IGNORE",
)
_LIBC = ("x86-linux-gnu", "generic-glibc", "x86-linux-any", "any-linux-any")


@dataclass(frozen=True)
class HipTools:
    """Where the compiler and its headers are."""

    zig: Path
    zig_cache: Path
    resource_dir: Path
    hip_root: Path
    hip_include: Path
    device_lib: Path
    ck_include: Path

    def folders(self) -> list[Path]:
        """Every folder that must not show in an object."""
        headers = [self.resource_dir, self.hip_root, self.hip_include, self.device_lib, self.ck_include]
        return [self.zig.parent, self.zig_cache, *headers]


def hip_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name the parts of `HipTools`."""
    names = ("zig", "zig-cache", "resource-dir", "hip-root", "hip-include", "device-lib", "ck-include")
    for name in reversed(names):
        function = click.option(f"--{name}", type=click.Path(path_type=Path), required=True)(function)
    return function


def tools_from(options: dict[str, Path]) -> HipTools:
    """The tools of a command's options."""
    return HipTools(**{name: path.absolute() for name, path in options.items()})


def flags(tools: HipTools, source: Path) -> list[str]:
    """The compiler and what device and host compilation share.

    Clang gives each translation unit a symbol named after an identity that it makes of path and options; here
    it is made of the source's text, so that it does not depend on the folder.
    """
    lib = tools.zig.parent / "lib"
    systems = [
        lib / "libcxx/include",
        tools.resource_dir / "include",
        *(lib / "libc/include" / name for name in _LIBC),
        tools.hip_include,
        tools.ck_include,
    ]
    return [
        *(str(tools.zig), "clang", "-x", "hip", "-target", "x86_64-linux-gnu", "-std=c++17", "-O3"),
        *(f"-cuid={sha256_file(source)[:16]}", "-resource-dir", str(tools.resource_dir)),
        f"--rocm-path={tools.hip_root}",
        *(f"--rocm-device-lib-path={tools.device_lib}", "-nostdinc++", "-nostdlibinc"),
        *(f"-D_LIBCPP_{name}" for name in _LIBCXX),
        *(part for folder in systems for part in ("-isystem", str(folder))),
        *("-Wall", "-Wextra", "-Werror"),
    ]


def environment(tools: HipTools, folder: Path) -> dict[str, str]:
    """An environment whose PATH holds one thing, the `lld` that clang's driver calls as `lld -flavor gnu`."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    lld = bin_folder / "lld"
    lld.write_text(f'#!/bin/sh\nshift 2\nexec {shlex.quote(str(tools.zig))} ld.lld "$@"\n')
    lld.chmod(0o755)
    cache = str(tools.zig_cache)
    local = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": str(folder / "zig")}
    return {**base_environment(folder), "PATH": str(bin_folder), **local}


def dependency_flags(path: Path) -> list[str]:
    """Write every header that is read; the driver's own -MD does nothing for device code."""
    words = ("-dependency-file", str(path), "-MT", "object", "-sys-header-deps")
    return [part for word in words for part in ("-Xclang", word)]


def read_dependencies(text: str) -> tuple[str, ...]:
    """The files that a make-style depfile names after its target."""
    joined = text.replace("\\\n", " ")
    names = joined.partition(": ")[2].replace("\\ ", "\0").split()
    return tuple(name.replace("\0", " ") for name in names)


def depfile(target: str, dependencies: Sequence[str]) -> bytes:
    """A depfile that says that `target` depends on these files."""
    names = [name.replace(" ", "\\ ") for name in dict.fromkeys(dependencies)]
    return (" \\\n  ".join([target.replace(" ", "\\ ") + ":", *names]) + "\n").encode()
