"""Small files that stand for the tools in the graph: a command is run again when its stamp changes."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from aimabuild.base.files import sha256_bytes
from aimabuild.graph.tools import Tools

_PARTS = {
    "native": ("ziglang", "cmeel-boost", "native"),
    "triton": ("triton", "llvm-tools"),
    "hip": ("ziglang", "clang-tidy", "hip-dev", "amd-aiter", "rocm", "ck", "llvm-tools"),
}


def _imports(path: Path) -> set[str]:
    """Modules of this program that a source file names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
    return {name for name in found if name.split(".")[0] == "aimabuild"}


def module_sources(packages: Path, start: Iterable[Path]) -> list[Path]:
    """The files in `start` and every file of this program that they import, directly or not; sorted."""
    todo, found = list(start), set[Path]()
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.add(path)
        for name in _imports(path):
            base = packages / name.replace(".", "/")
            todo += [file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()]
    return sorted(found)


def scripts_stamp(packages: Path) -> str:
    """What the compile steps are: names and contents of their sources."""
    files = module_sources(packages, sorted((packages / "aimabuild/compile").glob("*.py")))
    lines = [f"{file.relative_to(packages).as_posix()} {sha256_bytes(file.read_bytes())}" for file in files]
    return "\n".join(lines) + "\n"


def stamps(tools: Tools) -> dict[str, str]:
    """Stamp name -> content."""
    texts = {
        kind: "".join(f"{name} {tools.part_digests[name]}\n" for name in names if name in tools.part_digests)
        for kind, names in _PARTS.items()
    }
    texts["bindings"] = "".join(f"{folder}\n" for folder in tools.bindings.includes) + tools.bindings.suffix
    return {**texts, "scripts": scripts_stamp(tools.packages)}
