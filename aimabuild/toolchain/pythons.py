"""Resolve aimabuild's own Python dependencies with pip, for every supported CPython, with wheel hashes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aimabuild.base.errors import AimaError
from aimabuild.schema.lock import PythonPackage
from aimabuild.toolchain.licences import python_licence

# glibc floors of the hosts that are served; wheels for newer ones only are not taken.
_PLATFORMS = (
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
)
_OLD_PLATFORMS = (
    "manylinux_2_12_x86_64",
    "manylinux2010_x86_64",
    "manylinux_2_5_x86_64",
    "manylinux1_x86_64",
)


def requirements(pyproject: Path) -> dict[str, list[str]]:
    """group -> requirement lines of pyproject.toml: "run", and "dev" with what builds the package."""
    data = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    project = data["project"]
    return {
        "run": list(project["dependencies"]),
        "dev": [*project["optional-dependencies"]["dev"], *data["build-system"]["requires"]],
    }


def resolve_python(
    wanted: Mapping[str, Sequence[str]], pythons: Sequence[str], folder: Path
) -> list[PythonPackage]:
    """One version for all Pythons (the first decides), with the hashes of all wheels. AimaError from pip."""
    run = {_name(item) for item in _report(wanted["run"], pythons[0], folder, {})}
    everything = [*wanted["run"], *wanted["dev"]]
    versions: dict[str, str] = {}
    hashes: dict[str, set[str]] = {}
    licences: dict[str, str] = {}
    for python in pythons:
        for item in _report(everything, python, folder, versions):
            name, version = _name(item), str(item["metadata"]["version"])
            if versions.setdefault(name, version) != version:
                raise AimaError(
                    f"{name} resolves to {version} on Python {python}, and to {versions[name]} elsewhere"
                )
            hashes.setdefault(name, set()).add(item["download_info"]["archive_info"]["hashes"]["sha256"])
            licences[name] = python_licence(name, item["metadata"])
    return [
        PythonPackage(
            name=name,
            version=versions[name],
            licence=licences[name],
            groups=("run",) if name in run else ("dev",),
            hashes=tuple(sorted(hashes[name])),
        )
        for name in sorted(versions)
    ]


def _report(
    lines: Sequence[str], python: str, folder: Path, pinned: Mapping[str, str]
) -> list[dict[str, Any]]:
    """pip's own resolution for one Python, as a list of what it would install."""
    report, wanted, constraints = folder / "report.json", folder / "wanted.txt", folder / "constraints.txt"
    wanted.write_text("".join(f"{line}\n" for line in lines))
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in pinned.items()))
    abi = f"cp{python.replace('.', '')}"
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-input"),
        *("--disable-pip-version-check", "--only-binary=:all:", "--target", str(folder / "target")),
        *(
            "--python-version",
            python,
            "--implementation",
            "cp",
            "--abi",
            abi,
            "--abi",
            "abi3",
            "--abi",
            "none",
        ),
        *(word for platform in (*_PLATFORMS, *_OLD_PLATFORMS) for word in ("--platform", platform)),
        *("--report", str(report), "-r", str(wanted), "-c", str(constraints)),
    ]
    environment = {**os.environ, "TMPDIR": str(folder), "PIP_CONSTRAINT": os.devnull}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        why = done.stderr.strip()[-1500:]
        raise AimaError(f"pip cannot resolve the Python dependencies for Python {python}", why=why)
    items: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["install"]
    return items


def _name(item: Mapping[str, Any]) -> str:
    return re.sub(r"[-_.]+", "-", str(item["metadata"]["name"])).lower()
