"""A real launcher, a toy engine and bundles of both, for the tests that need the toolchain."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import pytest

from aimabuild.base.reporter import Reporter
from aimabuild.bundle import inputs as bundle_inputs
from aimabuild.bundle.assemble import assemble
from aimabuild.bundle.inputs import Inputs
from aimabuild.schema.bundle import Bundle, DataFile
from aimabuild.toolchain import Toolchain, open_toolchain

ROOT = Path(__file__).resolve().parents[2]
HIP = Bundle(
    "bundled",
    "hip",
    ("libamdhip64.so.7", "libamd_comgr.so.3"),
    (DataFile(PurePosixPath("usr/share/libdrm/amdgpu.ids"), PurePosixPath("share/libdrm/amdgpu.ids")),),
)


@dataclass(frozen=True)
class Programs:
    """What was compiled, and the toolchain that did it."""

    launcher: Path
    engine: Path
    toolchain: Toolchain
    folder: Path

    def inputs(self, bundle: Bundle) -> Inputs:
        """Inputs of a bundle of these programs on the locked runtime."""
        versions = {part.name: part.version for part in self.toolchain.parts}
        (self.folder / "build-info.json").write_text("{}\n")
        return Inputs(
            recipe="toy",
            target=None,
            bundle=bundle,
            engine=self.engine,
            launcher=self.launcher,
            kernels_library=None,
            kernels_json=None,
            build_info=self.folder / "build-info.json",
            licence=ROOT / "LICENSE",
            notice=ROOT / "NOTICE",
            runtime=bundle_inputs.runtime_of(self.toolchain) if bundle.libc == "bundled" else None,
            contains_launcher=(bundle_inputs.musl(self.toolchain, versions),),
        )


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    folder = tmp_path_factory.mktemp("programs")
    toolchain = open_toolchain(
        ROOT, reporter=Reporter(quiet=True), parts=["ziglang", "hip-runtime", "native"]
    )
    environment = {
        "ZIG_GLOBAL_CACHE_DIR": str(toolchain.zig_cache),
        "ZIG_LOCAL_CACHE_DIR": str(folder / "zig"),
    }
    launcher, engine = folder / "launcher", folder / "aima-engine.real"
    common = [toolchain.zig, "cc", "-std=c11", "-g0", "-s", "-Wall", "-Wextra", "-Werror"]
    sources = sorted((ROOT / "native/launcher").glob("*.c"))
    musl = ["-target", "x86_64-linux-musl", "-static", "-Os"]
    subprocess.run([*common, *musl, *sources, "-o", launcher], check=True, env=environment)
    glibc = ["-target", "x86_64-linux-gnu.2.28", "-O1"]
    toy = Path(__file__).parent / "toy_engine.c"
    subprocess.run([*common, *glibc, toy, "-ldl", "-o", engine], check=True, env=environment)
    return Programs(launcher, engine, toolchain, folder)


@pytest.fixture(scope="session")
def small_bundle(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy engine on the locked C library, without a GPU runtime. Not to be changed: copy it."""
    return assemble(programs.inputs(Bundle()), tmp_path_factory.mktemp("small") / "bundle").root


@pytest.fixture(scope="session")
def hip_bundle(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy engine with the whole GPU runtime."""
    return assemble(programs.inputs(HIP), tmp_path_factory.mktemp("hip") / "bundle").root


@pytest.fixture(scope="session")
def host_bundle(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy engine on the host's C library."""
    inputs = replace(programs.inputs(Bundle("host")), runtime=None)
    return assemble(inputs, tmp_path_factory.mktemp("host") / "bundle").root
