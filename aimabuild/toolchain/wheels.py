"""Fetch wheels through pip, which knows the user's index, proxy and certificates; nothing is installed.

The file is checked against the lock here as well, so that a wheel in the cache is always the locked one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from aimabuild.base.errors import AimaError
from aimabuild.base.files import sha256_file
from aimabuild.schema.lock import Wheel
from aimabuild.toolchain.cache import Cache

_POLL = 0.25  # seconds between looks at a download's size


def fetch_wheel(wheel: Wheel, cache: Cache, advance: Callable[[int], None]) -> int:
    """Put the wheel into the cache; returns the bytes fetched (0 when it was there). AimaError on failure."""
    with cache.lock(wheel.sha256):
        if cache.has_file(wheel.sha256, wheel.size):
            advance(wheel.size)
            return 0
        cache.file(wheel.sha256).unlink(missing_ok=True)
        with cache.scratch() as folder:
            path = download(
                wheel.name,
                wheel.version,
                wheel.tags,
                folder,
                sha256=wheel.sha256,
                advance=advance,
                size=wheel.size,
            )
            actual = sha256_file(path)
            if actual != wheel.sha256:
                raise _wrong_hash(wheel.name, wheel.sha256, actual)
            path.replace(cache.file(wheel.sha256))
    return wheel.size


def download(
    name: str,
    version: str,
    tags: tuple[Sequence[str], Sequence[str], Sequence[str]],
    folder: Path,
    *,
    sha256: str | None = None,
    size: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> Path:
    """The wheel of name==version for the given (python, abi, platform) tags, downloaded into `folder`."""
    target, temporary, requirements = folder / "out", folder / "tmp", folder / "requirements.txt"
    temporary.mkdir()
    line = f"{name}=={version}"
    requirements.write_text(f"{line} --hash=sha256:{sha256}\n" if sha256 else f"{line}\n")
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"),
        # pip's own cache would keep a second copy of half a gigabyte.
        *(
            "--no-cache-dir",
            "--no-deps",
            "--only-binary=:all:",
            "--dest",
            str(target),
            "-r",
            str(requirements),
        ),
        *_tag_options(tags),
    ]
    # pip downloads below TMPDIR: on the cache's file system, swept with the folder, and visible as progress.
    environment = {**os.environ, "TMPDIR": str(temporary), "PIP_CONSTRAINT": os.devnull}
    log = folder / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        try:
            seen = _watch(process, temporary, size, advance)
        finally:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise _pip_error(line, log.read_text(errors="replace"), sha256, folder)
    advance(size - seen)
    found = sorted(target.glob("*.whl"))
    if len(found) != 1:
        raise AimaError(f"pip downloaded {len(found)} wheels for `{line}`", why="expected one")
    return found[0]


def _watch(process: subprocess.Popen[bytes], folder: Path, size: int, advance: Callable[[int], None]) -> int:
    """Report the growth of what pip has below `folder` until it ends; returns the bytes reported."""
    seen = 0
    while process.poll() is None:
        time.sleep(_POLL)
        now = min(_folder_size(folder), size)
        advance(max(now - seen, 0))  # called even for nothing: it is where a stopped sync gets out
        seen = max(now, seen)
    return seen


def _folder_size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # renamed or removed while looking
    return total


def _tag_options(tags: tuple[Sequence[str], Sequence[str], Sequence[str]]) -> list[str]:
    pythons, abis, platforms = tags
    last = pythons[-1]
    # A pure wheel may still ask for a minimum Python: the running one stands for all.
    version = (
        f"{last[2]}.{last[3:]}"
        if last.startswith("cp")
        else f"{sys.version_info.major}.{sys.version_info.minor}"
    )
    options = ["--implementation", last[:2], "--python-version", version]
    for abi in abis:
        options += ["--abi", abi]
    for platform in platforms:
        if platform != "any":
            options += ["--platform", platform]
    return options


def _wrong_hash(name: str, expected: str, actual: str) -> AimaError:
    return AimaError(
        f"the wheel of {name} has the wrong hash",
        where="pip's package index",
        why=f"expected sha256 {expected}, got {actual}",
        hint="the index serves another file than the locked one: do not use it; check pip's index settings",
    )


def _pip_error(line: str, log: str, sha256: str | None, folder: Path) -> AimaError:
    """What pip's output means. pip has one exit code for everything, so its text is all there is."""
    lines = [text.strip() for text in log.splitlines() if text.strip()]
    for text in lines:
        if text.startswith("Got") and sha256:
            return _wrong_hash(line, sha256, text.split()[-1])
    tail = next(
        (text for text in reversed(lines) if text.startswith("ERROR:")), lines[-1] if lines else "no output"
    )
    if "No module named pip" in log:
        return AimaError(
            "this Python has no pip", where=sys.executable, hint="run aimabuild from a venv made with pip"
        )
    if "No space left on device" in log:
        return AimaError(
            "the disk is full",
            where=str(folder),
            why=f"while `{line}` was fetched",
            hint="set XDG_CACHE_HOME to a larger disk; what was fetched is kept",
        )
    network = (
        "NewConnectionError",
        "Temporary failure",
        "ConnectTimeout",
        "Read timed out",
        "Connection refused",
    )
    if any(
        word in log
        for word in (*network, "ProxyError", "Network is unreachable", "Name or service not known")
    ):
        hint = "check the network and pip's index settings (`pip config list`)"
        return AimaError(f"pip cannot reach its package index for `{line}`", why=tail, hint=hint)
    if "No matching distribution" in log:
        hint = "check which index pip uses (`pip config list`)"
        return AimaError(f"pip's package index has no `{line}` for this lock", why=tail, hint=hint)
    return AimaError(f"pip could not download `{line}`", why=tail, hint="run the command again")
