"""What a bundle is made from, gathered from a build and the toolchain: paths, owners, licences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aimabuild import __version__
from aimabuild.base.errors import AimaError
from aimabuild.graph.build import BuildResult
from aimabuild.schema.bundle import Bundle
from aimabuild.toolchain import Toolchain
from aimabuild.toolchain.licences import debian_licence

OURS = "aima"


@dataclass(frozen=True)
class Owner:
    """Whose a file is: a package with its version, SPDX licence expression and licence text.

    comment: the text is the first comment of a source file, for a package that has it nowhere else.
    """

    name: str
    version: str
    licence: str
    text: Path
    comment: bool = False


@dataclass(frozen=True)
class Runtime:
    """The tree that libraries come from. `owner_of`: path in the tree -> owner."""

    root: Path
    libraries: Path
    loader: Path
    owner_of: Mapping[str, Owner]

    def owner(self, path: Path) -> Owner:
        """The owner of a file of this tree. AimaError for a file that no package claims."""
        relative = path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)
        if relative not in self.owner_of:
            raise AimaError("a file for the bundle belongs to no known package", where=str(path))
        return self.owner_of[relative]


@dataclass(frozen=True)
class Inputs:
    """Everything that `assemble` needs. `contains_*`: owners whose code is inside our own binaries."""

    recipe: str
    target: str | None
    bundle: Bundle
    engine: Path
    launcher: Path
    kernels_library: Path | None
    kernels_json: Path | None
    build_info: Path
    licence: Path
    notice: Path
    runtime: Runtime | None
    contains_engine: tuple[Owner, ...] = ()
    contains_launcher: tuple[Owner, ...] = ()
    contains_kernels: tuple[Owner, ...] = ()
    toolchain: Mapping[str, Any] = field(default_factory=dict)
    version: str = __version__

    @property
    def name(self) -> str:
        """The archive's name without suffix, and its one top folder."""
        return f"aima-engine-{self.version}-{self.recipe}-linux-x86_64"

    @property
    def ours(self) -> Owner:
        """The owner of what this project writes."""
        return Owner(OURS, self.version, "Apache-2.0", self.licence)

    def owners(self) -> Iterator[Owner]:
        """Owners of what is inside our own binaries, ours first."""
        yield self.ours
        yield from {*self.contains_engine, *self.contains_launcher, *self.contains_kernels}


def inputs_of(result: BuildResult, bundle: Bundle, toolchain: Toolchain, root: Path) -> Inputs:
    """The inputs of a build's bundle. AimaError when the build lacks a part that every bundle has."""
    if result.launcher is None:
        raise AimaError("the build made no launcher", hint="native/launcher/ is missing from the sources")
    versions = {part.name: part.version for part in toolchain.parts}
    compilers = {item.template.compiler for item in result.plan.objects}
    return Inputs(
        recipe=result.recipe,
        target=result.plan.target,
        bundle=bundle,
        engine=result.engine,
        launcher=result.launcher,
        kernels_library=result.kernels_library,
        kernels_json=result.kernels_json,
        build_info=result.build_info,
        licence=root / "LICENSE",
        notice=root / "NOTICE",
        runtime=runtime_of(toolchain) if bundle.libc == "bundled" else None,
        contains_engine=_engine_owners(toolchain, versions),
        contains_launcher=(musl(toolchain, versions),),
        contains_kernels=_kernel_owners(toolchain, versions, compilers, result.plan.target),
        toolchain={
            "digest": toolchain.digest,
            "overrides": dict(toolchain.overrides),
            "parts": [
                {
                    "name": p.name,
                    "version": p.version,
                    "kind": p.kind,
                    "licence": p.licence,
                    "sha256": list(p.sha256),
                }
                for p in toolchain.parts
            ],
        },
    )


def runtime_of(toolchain: Toolchain) -> Runtime:
    """The locked HIP runtime with its C library, and who owns each of its files."""
    index = toolchain.index("hip-runtime")
    packages = {entry.source for entry in index.values()}
    owners = {source: _package(toolchain.hip_runtime, source) for source in packages}
    return Runtime(
        toolchain.hip_runtime,
        toolchain.hip_runtime_lib,
        toolchain.hip_runtime_loader,
        {path: owners[entry.source] for path, entry in index.items()},
    )


def _package(tree: Path, source: str) -> Owner:
    name, _, version = source.partition(" ")
    return Owner(name, version, debian_licence(name), tree / "usr/share/doc" / name / "copyright")


def _debian(toolchain: Toolchain, part: str, name: str) -> Owner:
    sources = {entry.source for entry in toolchain.index(part).values()}
    source = next((source for source in sources if source.split(" ")[0] == name), None)
    if source is None:
        raise AimaError(f"the toolchain part `{part}` does not hold the package `{name}`")
    return _package(toolchain.trees[part], source)


def musl(toolchain: Toolchain, versions: Mapping[str, str]) -> Owner:
    """The C library inside the launcher."""
    text = toolchain.zig.parent / "lib/libc/musl/COPYRIGHT"
    return Owner("musl", f"of ziglang {versions['ziglang']}", "MIT", text)


def _engine_owners(toolchain: Toolchain, versions: Mapping[str, str]) -> tuple[Owner, ...]:
    library = toolchain.zig.parent / "lib"
    llvm = "Apache-2.0 WITH LLVM-exception"
    version = f"of ziglang {versions['ziglang']}"
    return (
        Owner("libcxx", version, llvm, library / "libcxx/LICENSE.TXT"),
        Owner("libcxxabi", version, llvm, library / "libcxxabi/LICENSE.TXT"),
        Owner("libunwind", version, llvm, library / "libunwind/LICENSE.TXT"),
        Owner(
            "boost",
            versions["cmeel-boost"],
            "BSL-1.0",
            toolchain.boost_include / "boost/outcome/detail/version.hpp",
            comment=True,
        ),
        _debian(toolchain, "native", "libutf8proc-dev"),
        _debian(toolchain, "native", "libxxhash-dev"),
    )


def _kernel_owners(
    toolchain: Toolchain, versions: Mapping[str, str], compilers: set[str], target: str | None
) -> tuple[Owner, ...]:
    owners: list[Owner] = []
    if "triton" in compilers:
        text = toolchain.triton_site / f"triton-{versions['triton']}.dist-info/licenses/LICENSE"
        owners.append(Owner("triton", versions["triton"], "MIT", text))
    if "hip" in compilers:
        text = toolchain.ck_include.parent / "LICENSE"
        owners.append(Owner("composable-kernel", versions["amd-aiter"], "MIT", text))
    # Both compilers link mathematics from ROCm's device libraries into AMD code.
    if compilers and target is not None and target.startswith("gfx") and "rocm" not in toolchain.overrides:
        owners.append(_debian(toolchain, "hip-dev", "rocm-device-libs-22"))
    return tuple(owners)


def needed_parts(target: str | None) -> tuple[str, ...]:
    """Toolchain parts that a bundle takes from, beside those that the build used."""
    return ("hip-runtime", *(("hip-dev",) if target is not None and target.startswith("gfx") else ()))
