"""The bundle's copy of the loader, with every way to the host's libraries taken out of its text.

glibc's loader falls back to directories that are compiled in, and reads /etc/ld.so.preload. Both are texts
in its read-only data. They are replaced, byte for byte, by paths of the same length that cannot exist:
nothing can be created below /proc, and no process has the number 00. The edits are recorded, and what the
loader then says about itself is checked twice: by `--list-diagnostics` and by a real search.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aimabuild.base.errors import AimaError, CheckFailedError
from aimabuild.base.files import sha256_bytes, write_bytes

_SHORT = {5: "/sys/", 6: "/sys//", 7: "/sys/0/", 8: "/proc/0/"}
_FILES = ("/etc/ld.so.preload", "/etc/ld.so.cache")
_TIMEOUT = 60


@dataclass(frozen=True)
class Edit:
    """One text replaced by another of the same length, at these offsets of the file."""

    before: str
    after: str
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class LoaderRecord:
    """What was done to the loader. The hashes are of the whole file; `directories` are read back from it."""

    source: str
    sha256_before: str
    sha256_after: str
    edits: tuple[Edit, ...]
    directories: tuple[str, ...]
    version: str

    def as_json(self) -> dict[str, object]:
        """The record as the manifest has it."""
        return {
            "file": "libexec/aima-engine",
            "source": self.source,
            "sha256_before": self.sha256_before,
            "sha256_after": self.sha256_after,
            "edits": [
                {"before": edit.before, "after": edit.after, "offsets": list(edit.offsets)}
                for edit in self.edits
            ],
            "default_directories": list(self.directories),
            "glibc": self.version,
        }


def nowhere(length: int, *, folder: bool) -> str:
    """A path of exactly `length` characters that cannot exist and that nobody can make."""
    if folder and length in _SHORT:
        return _SHORT[length]
    body = length - len("/proc/00/")
    if body < (0 if folder else 1):
        raise AimaError(f"there is no path of {length} characters to put in the loader")
    return "/proc/00/" + ("x" * (body - 1) + "/" * min(body, 1) if folder else "x" * body)


def diagnostics(loader: Path) -> dict[str, str]:
    """What `--list-diagnostics` prints, by key."""
    text = _run([str(loader), "--list-diagnostics"], {})
    return dict(re.findall(r'^([^=\n]+)="(.*)"$', text, re.MULTILINE))


def default_directories(facts: Mapping[str, str]) -> tuple[str, ...]:
    """The compiled-in search directories, in order."""
    return tuple(value for key, value in facts.items() if key.startswith("path.system_dirs["))


def _run(command: list[str], environment: dict[str, str], *, may_fail: bool = False) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environment,
            timeout=_TIMEOUT,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AimaError("the bundled loader does not run here", where=command[0], why=str(error)) from None
    if done.returncode and not may_fail:
        raise AimaError("the bundled loader failed", where=" ".join(command), why=done.stderr.strip()[-500:])
    return done.stdout + done.stderr


def neutralise(source: Path, target: Path, name: str, program: Path) -> LoaderRecord:
    """Write the edited copy of the loader `source` to `target`.

    `name` says in the record where it came from. `program` is one that needs libraries, to search for.
    """
    before = source.read_bytes()
    facts = diagnostics(source)
    directories = default_directories(facts)
    if not directories:
        raise AimaError("the loader does not name its default directories", where=str(source))
    data = before
    edits: list[Edit] = []
    # The directories stand one after the other, each ended by a NUL; longest first would not matter, since
    # every edit is bounded by NULs and so cannot hit a part of another.
    blocks = [("\0".join(directories) + "\0", _block(directories))]
    for old, new in blocks + [(f"{path}\0", f"{nowhere(len(path), folder=False)}\0") for path in _FILES]:
        data, edit = _replace(data, old, new, source)
        edits.append(edit)
    write_bytes(target, data, mode=0o755)
    record = LoaderRecord(
        name,
        sha256_bytes(before),
        sha256_bytes(data),
        tuple(edits),
        default_directories(diagnostics(target)),
        facts.get("version.version", ""),
    )
    check_loader(target, record, program)
    return record


def _block(directories: tuple[str, ...]) -> str:
    return "".join(nowhere(len(directory), folder=True) + "\0" for directory in directories)


def _replace(data: bytes, old: str, new: str, source: Path) -> tuple[bytes, Edit]:
    offsets = tuple(match.start() for match in re.finditer(re.escape(old.encode()), data))
    if not offsets:
        raise AimaError(
            "the loader does not hold a text that must be replaced", where=str(source), why=repr(old)
        )
    changed = data.replace(old.encode(), new.encode())
    if len(changed) != len(data):
        raise AimaError("an edit of the loader changed its size", where=str(source), why=repr(old))
    return changed, Edit(old.rstrip("\0").replace("\0", ":"), new.rstrip("\0").replace("\0", ":"), offsets)


def check_loader(loader: Path, record: LoaderRecord, program: Path) -> None:
    """Ask the edited loader where it searches. Raises `CheckFailedError` if any place may exist on a host."""
    wanted = tuple(re.split(":", record.edits[0].after))
    if record.directories != wanted:
        raise CheckFailedError(
            "the loader still has other default directories",
            where=str(loader),
            why=", ".join(record.directories),
        )
    # What the program needs is nowhere on this library path, so that the loader walks all directories.
    options = ["--inhibit-cache", "--glibc-hwcaps-mask", "", "--library-path", ""]
    command = [str(loader), *options, "--list", str(program)]
    text = _run(command, {"LD_DEBUG": "libs"}, may_fail=True)
    searched = {
        directory
        for line in re.findall(r"search path=(\S+)\s+\(system search path\)", text)
        for directory in line.split(":")
    }
    # Older loaders also look in folders below each (tls, x86_64).
    outside = {place for place in searched if not f"{place.rstrip('/')}/".startswith(wanted)}
    if not searched or outside:
        raise CheckFailedError(
            "the loader searches elsewhere than it says",
            where=str(loader),
            why=", ".join(sorted(outside)) or "it printed no search at all",
        )
