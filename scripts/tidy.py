"""clang-tidy over native/, for `make lint`: as many files at once as there are cores, and none twice.

What passed is remembered in build/tidy by a hash of everything that the result depends on: the file and all
of ours that it includes, .clang-tidy, the command line, and the toolchain.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aimabuild.base.errors import AimaError
from aimabuild.base.reporter import Reporter
from aimabuild.graph.native import isa_flags
from aimabuild.toolchain import Toolchain
from aimabuild.toolchain import headers as python_headers

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "build" / "tidy"
INCLUDE_FOLDERS = ("native/src", "native/include", "native")
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^">\n]+)[">]', re.MULTILINE)


def compiler_flags(toolchain: Toolchain, language: str) -> list[str]:
    """Definitions and header folders that the locked compiler itself passes for "c" or "c++".

    No header of the host is among them.
    """
    target = {"c": "x86_64-linux-musl", "c++": "x86_64-linux-gnu.2.28"}[language]
    program = {"c": "cc", "c++": "c++"}[language]
    with tempfile.TemporaryDirectory() as folder:
        command = [toolchain.zig, program, "-target", target, "-v", "-E", "-x", language, os.devnull]
        # An empty local cache: with a result at hand the compiler would not run, and not tell.
        caches = {"ZIG_GLOBAL_CACHE_DIR": str(toolchain.zig_cache), "ZIG_LOCAL_CACHE_DIR": f"{folder}/cache"}
        environment = {**os.environ, **caches}
        told = subprocess.run(
            [*command, "-o", f"{folder}/out.o"], capture_output=True, text=True, check=True, env=environment
        )
    words = next(
        shlex.split(line) for line in told.stderr.splitlines() if '"-cc1"' in line or " -cc1 " in line
    )
    flags = ["-nostdinc", *(["-nostdinc++"] if language == "c++" else [])]
    for word, following in itertools.pairwise(words):
        if word == "-isystem":
            flags += [word, following]
        elif word == "-D":
            flags.append(f"-D{following}")
        elif word.startswith("-D"):
            flags.append(word)
    return flags


def tidy_command(toolchain: Toolchain, source: Path, flags: dict[str, list[str]]) -> list[str]:
    """clang-tidy on one file, with the includes that the build graph uses."""
    cpp = source.suffix == ".cpp"
    arguments = ["-std=c++20" if cpp else "-std=c17", *(f"-I{folder}" for folder in INCLUDE_FOLDERS)]
    arguments += flags["c++" if cpp else "c"]
    for folder in (toolchain.boost_include, toolchain.native_sysroot / "usr/include"):
        arguments += ["-isystem", str(folder)]
    if source.parent.name == "bindings":
        for folder in (toolchain.pybind11_include, *python_headers.headers(toolchain.python_headers)):
            arguments += ["-isystem", str(folder)]
    checks = []
    if source.stem.startswith("isa_"):
        # These files include no C++ library header (docs/architecture.md), so <stdint.h> is right there.
        checks = ["--checks=-modernize-deprecated-headers"]
    arguments += isa_flags(source.as_posix()).split()
    program = [str(toolchain.clang_tidy), "--quiet", "--warnings-as-errors=*", *checks]
    return [*program, source.relative_to(ROOT).as_posix(), "--", *arguments]


class Includes:
    """Which of our files a source depends on; each file is read once."""

    def __init__(self) -> None:
        self._content: dict[Path, bytes] = {}
        self._named: dict[Path, list[Path]] = {}

    def content(self, path: Path) -> bytes:
        """The bytes of a file."""
        if path not in self._content:
            self._content[path] = path.read_bytes()
        return self._content[path]

    def _direct(self, path: Path) -> list[Path]:
        if path not in self._named:
            places = (path.parent, *(ROOT / folder for folder in INCLUDE_FOLDERS))
            names = [name.decode() for name in _INCLUDE.findall(self.content(path))]
            candidates = ([(place / name).resolve() for place in places] for name in names)
            ours = ([c for c in each if c.is_file() and c.is_relative_to(ROOT)] for each in candidates)
            self._named[path] = [found[0] for found in ours if found]
        return self._named[path]

    def closure(self, source: Path) -> list[Path]:
        """The file and all of ours that it includes, however deep, in a stable order."""
        found: set[Path] = set()
        left = [source]
        while left:
            path = left.pop()
            if path not in found:
                found.add(path)
                left += self._direct(path)
        return sorted(found)


def key_of(command: list[str], toolchain_digest: str, files: list[Path], includes: Includes) -> str:
    """A hash of all that the result of `command` depends on."""
    digest = hashlib.sha256()
    parts = [toolchain_digest.encode(), "\0".join(command).encode(), (ROOT / ".clang-tidy").read_bytes()]
    for path in files:
        parts += [path.relative_to(ROOT).as_posix().encode(), includes.content(path)]
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def remember(keys: Iterable[str]) -> None:
    """Keep exactly these results."""
    CACHE.mkdir(parents=True, exist_ok=True)
    kept = set(keys)
    for path in CACHE.iterdir():
        if path.name not in kept:
            path.unlink()
    for key in kept:
        (CACHE / key).touch()


def run_tidy(reporter: Reporter, toolchain: Toolchain, sources: list[Path]) -> bool:
    """clang-tidy on translation units; True when it has nothing to say about any."""
    others = [source for source in sources if source.parent.name != "bindings"]
    if len(others) < len(sources):
        try:
            python_headers.headers(toolchain.python_headers)
        except AimaError as error:
            reporter.warn(f"native/bindings is left out: {error}")
            sources = others
    flags = {language: compiler_flags(toolchain, language) for language in ("c", "c++")}
    commands = {source: tidy_command(toolchain, source, flags) for source in sources}
    includes = Includes()
    files = {source: includes.closure(source) for source in sources}
    keys = {s: key_of(commands[s], toolchain.digest, files[s], includes) for s in sources}
    passed = {source for source in sources if (CACHE / keys[source]).is_file()}
    # The longest files first, so that no core waits for a long one at the end.
    left = sorted(set(sources) - passed, key=lambda s: (-s.stat().st_size, s))

    def one(source: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
        return source, subprocess.run(commands[source], cwd=ROOT, check=False, capture_output=True, text=True)

    with (
        reporter.step(f"clang-tidy ({len(left)} of {len(sources)} files; the others have not changed)"),
        reporter.task("clang-tidy", len(left)) as task,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        for source, result in pool.map(one, left):
            task.advance()
            if result.returncode == 0:
                passed.add(source)
            else:
                reporter.line(f"{source.relative_to(ROOT)}:\n{result.stdout}{result.stderr}")
    remember(keys[source] for source in passed)
    return len(passed) == len(sources)
