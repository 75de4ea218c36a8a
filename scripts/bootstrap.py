#!/usr/bin/env python3
"""Make `.venv` with the locked Python dependencies and this project in it; standard library only.

    python3 scripts/bootstrap.py [--dev] [--venv PATH]

Every wheel is checked against its hash in `aimabuild.lock`. A stamp makes a second run return at once; a run
that was interrupted leaves no stamp, and the next one starts over. Two runs at once take turns.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
MARKER = "aimabuild-venv"  # says that the folder is ours to clear
STAMP = "aimabuild-stamp.json"
FIELDS = ("name", "version", "groups", "hashes")


class BootstrapError(Exception):
    """One message for the user."""


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description="Make the project's virtual environment from the lock file.")
    parser.add_argument("--dev", action="store_true", help="also install what tests and linters need")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="where to make it (default: .venv)")
    arguments = parser.parse_args()
    wanted = {"run", "dev"} if arguments.dev else {"run"}
    try:
        with Path(__file__).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            prepare(arguments.venv.absolute(), ROOT / "aimabuild.lock", wanted)
    except BootstrapError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; run it again to start over\n")
        return 130
    return 0


def prepare(venv: Path, lock: Path, wanted: set[str]) -> None:
    """Bring `venv` to what the lock says, doing nothing when its stamp says that it is so already."""
    if sys.version_info < OLDEST:
        raise BootstrapError(
            f"Python {OLDEST[0]}.{OLDEST[1]} or newer is needed, this is {sys.version.split()[0]}"
        )
    packages = read_packages(lock)
    key = key_of(packages)
    stamp = read_stamp(venv / STAMP)
    usable = stamp.get("key") == key and (venv / "bin/python").exists()
    there = set(stamp.get("groups", ())) if usable else set()
    if usable and wanted <= there:
        return
    groups = wanted | there
    try:
        if not usable:
            make_venv(venv)
        (venv / STAMP).unlink(missing_ok=True)
        install(venv, [package for package in packages if groups & set(package["groups"])])
        link_project(venv)
        write_stamp(venv / STAMP, {"key": key, "groups": sorted(groups)})
    except OSError as error:
        raise BootstrapError(f"{venv}: {error}") from error


def read_packages(lock: Path) -> list[dict[str, Any]]:
    """What matters here of the lock file's `python` section."""
    try:
        packages = json.loads(lock.read_text(encoding="utf-8"))["python"]["packages"]
        rows = [{name: package[name] for name in FIELDS} for package in packages]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BootstrapError(f"{lock}: the lock file cannot be read: {error!r}") from error
    return rows


def key_of(packages: list[dict[str, Any]]) -> str:
    """Changes with the locked packages, the Python, the project's place and this script."""
    value = [packages, sys.version, sys.base_prefix, str(ROOT), Path(__file__).read_text(encoding="utf-8")]
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read_stamp(path: Path) -> dict[str, Any]:
    """What the last complete run wrote, or nothing."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_stamp(path: Path, value: dict[str, Any]) -> None:
    """Written last and whole."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value) + "\n", encoding="utf-8")
    temporary.replace(path)


def make_venv(venv: Path) -> None:
    """An empty environment; what an earlier run of this script left there is cleared, nothing else."""
    if venv.exists() and any(venv.iterdir()) and not (venv / MARKER).exists():
        raise BootstrapError(
            f"{venv} was not made by this script: remove it, or give another place with --venv"
        )
    venv.mkdir(parents=True, exist_ok=True)
    (venv / MARKER).touch()
    for path in venv.iterdir():
        if path.name != MARKER:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    say(f"making {venv}")
    # Not sys.executable: the environment being made may be the one that runs this.
    python = getattr(sys, "_base_executable", sys.executable)
    failure = "the environment could not be made (on Debian: install python3-venv)"
    run([python, "-m", "venv", str(venv)], failure)


def install(venv: Path, packages: list[dict[str, Any]]) -> None:
    """pip install with every hash required; nothing but wheels, nothing that the lock does not name."""
    say(f"installing {len(packages)} locked Python packages")
    lines = []
    for package in packages:
        hashes = " ".join(f"--hash=sha256:{value}" for value in package["hashes"])
        lines.append(f"{package['name']}=={package['version']} {hashes}\n")
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder) / "requirements.txt"
        requirements.write_text("".join(lines), encoding="utf-8")
        run(
            [
                *(str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
                *(
                    "--no-input",
                    "--require-hashes",
                    "--no-deps",
                    "--only-binary=:all:",
                    "-r",
                    str(requirements),
                ),
            ],
            "pip could not install the locked packages",
        )


def link_project(venv: Path) -> None:
    """The project itself: a path for Python, and the command."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (venv / "lib" / version / "site-packages/aimabuild.pth").write_text(f"{ROOT}\n", encoding="utf-8")
    command = venv / "bin/aimabuild"
    command.write_text('#!/bin/sh\nexec "${0%/*}/python" -P -m aimabuild "$@"\n', encoding="utf-8")
    command.chmod(0o755)


def run(command: list[str], failure: str) -> None:
    """Run a command without settings that would redirect an installation; show its output on failure."""
    dropped = {"PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT"}
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    environment["PIP_CONSTRAINT"] = os.devnull
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = (done.stdout + done.stderr).strip()[-2000:]
        raise BootstrapError(f"{failure}\n{tail}")


def say(text: str) -> None:
    """Progress goes to stderr."""
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
