"""The synced toolchain: one object with the path of everything that the rest of the build uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aimabuild.base.reporter import Reporter
from aimabuild.schema.lock import Lock, load_lock
from aimabuild.toolchain.cache import Cache
from aimabuild.toolchain.llvm import curl_stub
from aimabuild.toolchain.overrides import RocmTree, open_ck, open_rocm
from aimabuild.toolchain.parts import BY_NAME, PARTS, Part, describe, lock_digest, tree_key
from aimabuild.toolchain.sync import SyncReport, select, sync
from aimabuild.toolchain.trees import read_index
from aimabuild.toolchain.unpack import Entry

LOCK_NAME = "aimabuild.lock"
_DEVICE_LIB = "usr/lib/llvm-22/lib/clang/22/amdgcn/bitcode"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"


@dataclass(frozen=True)
class Toolchain:
    """Paths of the tools, headers and libraries; `digest` changes when any of them does.

    zig: the one compiler (`zig clang`, `zig c++`, `zig cc`, `zig ld.lld`, `zig objcopy`); zig_cache: its
    ZIG_GLOBAL_CACHE_DIR; lld_dir: put it on PATH for `zig clang -x hip`. hip_sysroot: root of the HIP headers
    and device libraries; use hip_root (for `--rocm-path`), hip_include and hip_device_lib rather than paths
    below it, since `--rocm` lays them out otherwise. hip_runtime: the runtime closure with its own glibc and
    loader. overrides: "rocm" or "ck" -> "VERSION sha256:HASH". synced: what opening it had to fetch.
    """

    digest: str
    zig: Path
    zig_cache: Path
    lld_dir: Path
    clang_resource_dir: Path
    clang_tidy: Path
    clang_format: Path
    triton_site: Path
    boost_include: Path
    native_sysroot: Path
    pybind11_include: Path
    python_headers: Path
    hip_sysroot: Path
    hip_root: Path
    hip_include: Path
    hip_device_lib: Path
    hip_runtime: Path
    hip_runtime_lib: Path
    hip_runtime_loader: Path
    ck_include: Path
    qwen_tokenizer: Path
    llvm_bin: Path
    parts: tuple[Part, ...]
    overrides: Mapping[str, str]
    trees: Mapping[str, Path]
    synced: SyncReport

    def llvm_objdump(self) -> tuple[str, ...]:
        """The start of a command line that runs llvm-objdump 22."""
        return self._llvm("llvm-objdump")

    def llvm_readelf(self) -> tuple[str, ...]:
        """The start of a command line that runs llvm-readelf 22."""
        return self._llvm("llvm-readelf")

    def index(self, part: str) -> dict[str, Entry]:
        """Every file and link of a part's tree, with size, sha256 and the package that it came from."""
        tree = self.trees[part]
        return read_index(tree.with_name(f"{tree.name}.json"))

    def _llvm(self, name: str) -> tuple[str, ...]:
        # Debian's binaries want a newer glibc than the host may have: they run on the bundled one.
        libraries = f"{self.hip_runtime_lib}:{curl_stub(Cache(self.zig_cache.parent), self.zig)}"
        loader = str(self.hip_runtime_loader)
        return (loader, "--inhibit-cache", "--library-path", libraries, str(self.llvm_bin / name))


def open_toolchain(
    root: Path,
    *,
    reporter: Reporter,
    offline: bool = False,
    mirror: str | None = None,
    rocm: Path | None = None,
    ck: Path | None = None,
    parts: Sequence[str] | None = None,
) -> Toolchain:
    """The toolchain of `root`/aimabuild.lock, with what is missing of `parts` (default: all) fetched first.

    rocm, ck: trees that replace the fetched ones. AimaError when something cannot be had; UsageError for a
    bad lock, mirror or tree. Paths of parts that were not asked for are set, and may not exist.
    """
    lock = load_lock(root / LOCK_NAME)
    own_rocm = open_rocm(rocm) if rocm is not None else None
    own_ck = open_ck(ck) if ck is not None else None
    replaced = {name for name, own in (("hip-dev", own_rocm), ("amd-aiter", own_ck)) if own}
    cache = Cache.default()
    wanted = [spec for spec in select(parts) if spec.name not in replaced]
    report = sync(lock, cache, wanted, reporter=reporter, offline=offline, mirror=mirror)
    overrides = {name: own[1] for name, own in (("rocm", own_rocm), ("ck", own_ck)) if own}
    own_tree = own_rocm[0] if own_rocm else None
    return _toolchain(lock, cache, own_tree, own_ck[0] if own_ck else None, overrides, report)


def _toolchain(
    lock: Lock,
    cache: Cache,
    rocm: RocmTree | None,
    ck: Path | None,
    overrides: dict[str, str],
    report: SyncReport,
) -> Toolchain:
    tree = {spec.name: cache.tree(spec.name, tree_key(spec, lock)) for spec in PARTS}
    hip = tree["hip-dev"]
    if rocm is None:
        rocm = RocmTree(hip / "usr", hip / "usr/include", hip / _DEVICE_LIB)
    return Toolchain(
        digest=lock_digest(lock, overrides),
        zig=tree["ziglang"] / "ziglang/zig",
        zig_cache=cache.root / "zig",
        lld_dir=tree["ziglang"] / "bin",
        clang_resource_dir=tree["clang-tidy"] / "clang_tidy/data/lib/clang/22",
        clang_tidy=tree["clang-tidy"] / "clang_tidy/data/bin/clang-tidy",
        clang_format=tree["clang-format"] / "clang_format/data/bin/clang-format",
        triton_site=tree["triton"],
        boost_include=tree["cmeel-boost"] / "cmeel.prefix/include",
        native_sysroot=tree["native"],
        pybind11_include=tree["pybind11"] / "pybind11/include",
        python_headers=tree["python-headers"],
        hip_sysroot=hip if rocm.root == hip / "usr" else rocm.root,
        hip_root=rocm.root,
        hip_include=rocm.include,
        hip_device_lib=rocm.device_lib,
        hip_runtime=tree["hip-runtime"],
        hip_runtime_lib=tree["hip-runtime"] / _LIBRARIES,
        hip_runtime_loader=tree["hip-runtime"] / _LIBRARIES / "ld-linux-x86-64.so.2",
        ck_include=ck or tree["amd-aiter"] / "aiter_meta/3rdparty/composable_kernel/include",
        qwen_tokenizer=tree["qwen-tokenizer"],
        llvm_bin=tree["llvm-tools"] / "usr/lib/llvm-22/bin",
        parts=tuple(describe(BY_NAME[spec.name], lock) for spec in PARTS),
        overrides=overrides,
        trees=tree,
        synced=report,
    )
