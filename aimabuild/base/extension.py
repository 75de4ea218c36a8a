"""Find a module that the build made for this checkout and this Python, and load it under a given name."""

from __future__ import annotations

import importlib.util
import sysconfig
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def suffix() -> str:
    """The end of the file name of this Python's extension modules."""
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


def find(name: str, root: Path = ROOT) -> Path:
    """The module `name` built last below `root`/build; ImportError with the command when there is none."""
    found = sorted(
        (root / "build").glob(f"*/python/{name}{suffix()}"), key=lambda path: path.stat().st_mtime_ns
    )
    if not found:
        raise ImportError(
            f"aimabuild.{name} is not built for this Python ({suffix()})\n"
            f"  hint: run `aimabuild build recipes/host-cpu.yaml bindings` in {root}"
        )
    return found[-1]


def load(name: str, full_name: str, root: Path = ROOT) -> ModuleType:
    """The module `name` under `full_name`. ImportError when it is not built, or cannot be loaded."""
    path = find(name, root)
    loader = ExtensionFileLoader(full_name, str(path))
    spec = importlib.util.spec_from_file_location(full_name, path, loader=loader)
    assert spec is not None  # noqa: S101 - a loader was given
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
