"""Small bundles for tests: a folder with its lists, an archive, and inputs with hand-made ELF files."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

from elfmaker import Elf, program

from aimabuild.base.files import sha256_file
from aimabuild.bundle.archive import Sealed, write_archive
from aimabuild.bundle.entries import FILE, FOLDER, JSON_LIST, TEXT_LIST, Entry, list_text
from aimabuild.bundle.inputs import Inputs, Owner, Runtime
from aimabuild.bundle.tree import scan
from aimabuild.schema.bundle import Bundle, DataFile

NAME = "aima-engine-0-test-linux-x86_64"
KERNEL = {
    "op": "gemm",
    "dtype": "bf16",
    "dims": {"n": 64, "k": 32},
    "tokens": [1, 64],
    "template": "triton/gemm",
    "tile": {"block_m": 16},
    "sha256": "0" * 64,
    "resources": {"vgpr": 100, "spills": 0, "wmma": 16},
}


def write_lists(root: Path, name: str = NAME) -> None:
    """The two lists of what is in `root` now."""
    for path in (TEXT_LIST, JSON_LIST):
        (root / path).unlink(missing_ok=True)
    entries = scan(root)
    values = []
    for path, entry in sorted(entries.items()):
        value: dict[str, object] = {"path": path, "type": entry.kind, "mode": f"{entry.mode:04o}"}
        value |= {"size": entry.size, "sha256": entry.sha256} if entry.kind == FILE else {}
        value |= {"target": entry.target} if entry.target is not None else {}
        value |= (
            {"owner": "libx", "licence": "MIT", "why": ["engine", "libx.so"]} if entry.kind != FOLDER else {}
        )
        values.append(value)
    owner = {"name": "libx", "version": "1", "licence": "MIT", "text": "licenses/libx"}
    manifest = {"schema": "aima/manifest/v1", "name": name, "edits": [], "owners": [owner], "entries": values}
    _write(root / JSON_LIST, json.dumps(manifest))
    _write(root / TEXT_LIST, list_text(scan(root, skip=[TEXT_LIST]).values()))


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.write_text(text)
    path.chmod(mode)


def make_bundle(root: Path, name: str = NAME) -> Path:
    """A folder `root`/`name` with files, an empty folder, links, nested manifest.json, and its lists."""
    bundle = root / name
    for folder in ("", "bin", "lib", "lib/deep", "share", "share/aima", "share/aima/gconv"):
        (bundle / folder).mkdir(parents=True, exist_ok=True)
        (bundle / folder).chmod(0o755)
    _write(bundle / "bin/aima-engine", "launcher\n", 0o755)
    _write(bundle / "lib/libx.so.1.2", "library " * 100)
    _write(bundle / "lib/deep/manifest.json", "{}")
    _write(bundle / "lib/empty", "")
    _write(bundle / ("lib/deep/" + "long-name-" * 15), "long")
    (bundle / "lib/libx.so.1").symlink_to("libx.so.1.2")
    (bundle / "lib/deep/libx.so").symlink_to("../libx.so.1")
    kernels = {"schema": "aimabuild/kernels/v1", "kernels": [KERNEL]}
    _write(bundle / "share/aima/kernels.json", json.dumps(kernels))
    closure = {
        "schema": "aima/closure/v1",
        "objects": [
            {
                "path": "libexec/aima-engine.real",
                "needed": [{"name": "libx.so.1", "provider": "lib/libx.so.1.2"}],
                "versions": {"libx.so.1": ["X_1"]},
                "opened_by_name": [{"name": "libx.so", "verdict": "alias", "reason": "r"}],
            }
        ],
    }
    _write(bundle / "share/aima/closure.json", json.dumps(closure))
    write_lists(bundle, name)
    return bundle


def seal(bundle: Path, out: Path, **options: int) -> Sealed:
    """The archive of a folder, with its sidecar."""
    sealed = write_archive(bundle, bundle.name, all_entries(bundle), out, **options)
    sealed.path.with_name(f"{sealed.path.name}.sha256").write_text(f"{sealed.sha256}  {sealed.path.name}\n")
    return sealed


def all_entries(bundle: Path) -> dict[str, Entry]:
    """What a folder holds."""
    return scan(bundle)


def toy_inputs(folder: Path, loader: Path, *, roots: tuple[str, ...] = ("libplug.so.1",)) -> Inputs:
    """Inputs whose runtime is hand-made but for the loader, which is a real one (it is run to be checked)."""
    tree = folder / "runtime"
    libraries = tree / "usr/lib"
    libraries.mkdir(parents=True)
    (libraries / loader.name).write_bytes(loader.read_bytes())
    (libraries / loader.name).chmod(0o755)
    make = {
        "libc.so.6": Elf(soname="libc.so.6", versions_defined=["GLIBC_2.2.5"]),
        "libgcc_s.so.1": Elf(soname="libgcc_s.so.1", needed=["libc.so.6"]),
        "libplug.so.1.5": Elf(soname="libplug.so.1", needed=["libdep.so.2", "libc.so.6"]),
        "libdep.so.2": Elf(
            soname="libdep.so.2", needed=["libc.so.6"], versions_needed={"libc.so.6": ["GLIBC_2.2.5"]}
        ),
        "libunused.so.1": Elf(soname="libunused.so.1"),
    }
    for name, elf in make.items():
        elf.code_flags = 6
        elf.write(libraries / name)
    (libraries / "libplug.so.1").symlink_to("libplug.so.1.5")
    (tree / "usr/share").mkdir()
    (tree / "usr/share/ids").write_text("ids\n")
    owners = {}
    for package in ("libc6", "plug"):
        text = tree / f"doc/{package}/copyright"
        text.parent.mkdir(parents=True)
        text.write_text(f"licence of {package}\n")
        owners[package] = Owner(package, "1.0", "MIT", text)
    files = [p.relative_to(tree).as_posix() for p in tree.rglob("*") if not p.is_dir()]
    owner_of = {
        path: owners["plug" if "plug" in path or "dep" in path or "ids" in path else "libc6"]
        for path in files
    }
    engine = program(needed=["libc.so.6"], versions_needed={"libc.so.6": ["GLIBC_2.2.5"]}, code_flags=6)
    texts = {
        "LICENSE": "our licence\n",
        "NOTICE": "our notice\n",
        "build-info.json": "{}\n",
        "MUSL": "musl\n",
    }
    for name, text_of in texts.items():
        (folder / name).write_text(text_of)
    return Inputs(
        recipe="toy",
        target=None,
        bundle=Bundle(
            "bundled", "hip", roots, (DataFile(PurePosixPath("usr/share/ids"), PurePosixPath("share/x/ids")),)
        ),
        engine=engine.write(folder / "aima-engine.real"),
        launcher=Elf(kind=2, dynamic=False).write(folder / "aima-engine"),
        kernels_library=None,
        kernels_json=None,
        build_info=folder / "build-info.json",
        licence=folder / "LICENSE",
        notice=folder / "NOTICE",
        runtime=Runtime(tree, libraries, libraries / loader.name, owner_of),
        contains_launcher=(Owner("musl", "1", "MIT", folder / "MUSL"),),
    )


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return sha256_file(path)
