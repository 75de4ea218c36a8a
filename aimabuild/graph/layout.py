"""Where things lie below build/<recipe>/. Paths in the graph are relative to the project's root."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """The build folder of one recipe. Every path is relative to the project's root, as ninja sees it."""

    recipe: str
    target: str | None

    @property
    def base(self) -> str:
        """build/<recipe>"""
        return f"build/{self.recipe}"

    @property
    def ninja_file(self) -> str:
        """The graph."""
        return f"{self.base}/build.ninja"

    @property
    def kernels(self) -> str:
        """A folder for each object and each kernel: source, spec, code object, record."""
        return f"{self.base}/kernels"

    @property
    def kernels_json(self) -> str:
        """The table for tools."""
        return f"{self.base}/kernels.json"

    @property
    def kernels_library(self) -> str:
        """The shared object with the table."""
        return f"{self.base}/libaima-kernels-{self.target}.so"

    @property
    def core(self) -> str:
        """The engine without its `main`."""
        return f"{self.base}/native/libaima-core.a"

    @property
    def engine(self) -> str:
        """The engine."""
        return f"{self.base}/libexec/aima-engine.real"

    @property
    def launcher(self) -> str:
        """The program that starts the engine in a bundle."""
        return f"{self.base}/bin/aima-engine"

    @property
    def native_tests(self) -> str:
        """The C++ unit tests."""
        return f"{self.base}/native/native-tests"

    def bindings(self, suffix: str) -> str:
        """The Python module; `suffix` names the Python that it is for."""
        return f"{self.base}/python/_native{suffix}"

    @property
    def build_info(self) -> str:
        """What the build was made from (schema aimabuild/build-info/v1)."""
        return f"{self.base}/build-info.json"

    def stamp(self, name: str) -> str:
        """A file that changes when the tools named so do."""
        return f"{self.base}/stamps/{name}"

    def object_file(self, source: str) -> str:
        """The object of a source file."""
        return f"{self.base}/native/obj/{source}.o"

    def record(self, name: str) -> str:
        """The record of the code object `name`."""
        return f"{self.kernels}/{name}/record.json"

    def code_object(self, name: str) -> str:
        """The code object `name`."""
        return f"{self.kernels}/{name}/kernel.co"


def build_folder(root: Path, recipe: str) -> Path:
    """build/<recipe> of a project."""
    return root / "build" / recipe
