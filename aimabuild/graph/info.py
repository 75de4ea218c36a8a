"""What a build was made from: the source commit, tools and kernels, as C++ for the engine and as JSON."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aimabuild import __version__
from aimabuild.base.errors import AimaError
from aimabuild.base.files import write_text
from aimabuild.graph.tools import Tools
from aimabuild.plan import Plan

# Changes elsewhere (documents, tests) do not change what is built.
_BUILT_FROM = ("aimabuild", "native", "templates", "shapes", "recipes", "aimabuild.lock", "pyproject.toml")
_TIMEOUT = 60


@dataclass(frozen=True)
class BuildInfo:
    """The facts. `kernels_digest` is empty without kernels; else the kernels library says the same."""

    version: str
    commit: str
    recipe: str
    math: str
    compiler: str
    host_target: str
    kernels_target: str
    kernel_count: int
    kernels_digest: str
    toolchain_digest: str
    libraries: tuple[tuple[str, str], ...]
    overrides: tuple[tuple[str, str], ...]

    def as_json(self) -> dict[str, Any]:
        """Schema aimabuild/build-info/v1."""
        facts = {name: value for name, value in vars(self).items() if name not in {"libraries", "overrides"}}
        return {
            "schema": "aimabuild/build-info/v1",
            **facts,
            "libraries": [{"name": name, "version": version} for name, version in self.libraries],
            "overrides": dict(self.overrides),
        }


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints, None when it fails or is not there."""
    command = ["git", "-C", str(root), *arguments]
    # A git hook sets GIT_DIR and more, which would make this ask another repository.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT,
            stdin=subprocess.DEVNULL,
            env=env,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def source_commit(root: Path) -> str:
    """The commit of `root`, with `-dirty` when what is built differs from it; "unknown" outside git."""
    if not (root / ".git").exists():
        return "unknown"
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    existing = [name for name in _BUILT_FROM if (root / name).exists()]
    changes = _git(root, "--no-optional-locks", "status", "--porcelain", "--", *existing)
    if commit is None or changes is None:
        return "unknown"
    return commit.strip() + ("-dirty" if changes.strip() else "")


def clang_version(tools: Tools, cache: Path) -> str:
    """The version of the locked compiler, asked once and kept in the file `cache`."""
    key = f"{tools.part_digests.get('ziglang', tools.zig_version)} "
    if cache.is_file() and cache.read_text().startswith(key):
        return cache.read_text().removeprefix(key).strip()
    command = [str(tools.zig), "clang", "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT, env={})
        words = done.stdout.split()
        version = words[words.index("version") + 1]
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        raise AimaError("the compiler does not run", where=" ".join(command), why=str(error)) from None
    write_text(cache, f"{key}{version}\n")
    return version


def _quoted(text: str) -> str:
    """A C++ string literal of ASCII text."""
    return json.dumps(text)


def info_cpp(info: BuildInfo) -> str:
    """The source that defines `aima::base::build_info()`."""
    libraries = "".join(f"    {{{_quoted(name)}, {_quoted(version)}}},\n" for name, version in info.libraries)
    fields: dict[str, str | int] = {
        "version": info.version,
        "commit": info.commit,
        "recipe": info.recipe,
        "compiler": info.compiler,
        "host_target": info.host_target,
        "kernels_target": info.kernels_target,
        "kernel_count": info.kernel_count,
        "plan_digest": info.kernels_digest,
        "toolchain_digest": info.toolchain_digest,
    }
    lines = "".join(
        f"      .{name} = {value if isinstance(value, int) else _quoted(value)},\n"
        for name, value in fields.items()
    )
    return (
        "// Written by aimabuild.\n"
        '#include "base/build_info.h"\n\n'
        "namespace aima::base {\n\n"
        "const BuildInfo& build_info() {\n"
        f"  static constexpr LibraryInfo kLibraries[] = {{\n{libraries}  }};\n"
        f"  static constexpr BuildInfo kInfo = {{\n{lines}      .libraries = kLibraries,\n  }};\n"
        "  return kInfo;\n"
        "}\n\n"
        "}  // namespace aima::base\n"
    )


def make_info(
    plan: Plan, tools: Tools, *, commit: str, clang: str, math: str, host_target: str, kernels_digest: str
) -> BuildInfo:
    """The facts of one build."""
    return BuildInfo(
        version=__version__,
        commit=commit,
        recipe=plan.recipe,
        math=math,
        compiler=f"clang {clang} (ziglang {tools.zig_version})",
        host_target=host_target,
        kernels_target=plan.target or "",
        kernel_count=len(plan.kernels),
        kernels_digest=kernels_digest if plan.kernels else "",
        toolchain_digest=tools.digest,
        libraries=(*tools.libraries, ("libc++", clang)),
        overrides=tuple(sorted(tools.overrides.items())),
    )
