"""`toolchain lock --relock-missing`: replace only the Debian entries that the mirror no longer has.

A replaced package may need a newer version of one that is still there, or come from one source with others of
the lock (then their versions belong together): those are replaced too, and each line of the report says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import PurePosixPath

from aimabuild.base.errors import AimaError
from aimabuild.base.reporter import Reporter
from aimabuild.schema.lock import DebianPackage, Lock
from aimabuild.toolchain.cache import Cache, explain_os_errors
from aimabuild.toolchain.debian import Apt, resolve_debian
from aimabuild.toolchain.fetch import is_on_mirror
from aimabuild.toolchain.mirror import find_mirrors

_DEPENDENCY = re.compile(r"([a-z0-9][a-z0-9+.-]+)(?::\w+)?\s*(?:\((<<|<=|=|>=|>>)\s*([^)]+)\))?")
Resolved = tuple[Sequence[DebianPackage], Mapping[str, str]]


def relock_missing(lock: Lock, *, reporter: Reporter, mirror: str | None = None) -> tuple[Lock, list[str]]:
    """The lock with what the mirror has lost resolved again, and one line for each change."""
    cache = Cache.default()
    with explain_os_errors(cache):
        cache.prepare()
        mirrors = find_mirrors(mirror)
        with reporter.step("asking the mirror for the locked packages"):
            missing = find_missing(lock.debian, mirrors)
        if not missing:
            return lock, []
        with reporter.step("locking Debian packages"):
            apt = Apt(cache.root / "apt", mirrors[0])
            apt.update()
            resolved = resolve_debian(apt)
    packages, lines = merge(lock.debian, missing, resolved)
    return replace(lock, debian=tuple(packages)), lines


def find_missing(packages: Sequence[DebianPackage], mirrors: Sequence[str]) -> set[str]:
    """Names of the packages whose file no mirror has. AimaError when the mirror cannot be reached."""
    with ThreadPoolExecutor(4) as pool:
        there = list(pool.map(lambda package: is_on_mirror(package, mirrors), packages))
    return {package.name for package, found in zip(packages, there, strict=True) if not found}


def merge(
    old: Sequence[DebianPackage], missing: set[str], resolved: Resolved
) -> tuple[list[DebianPackage], list[str]]:
    """Take the missing packages and what they drag along from `resolved`; keep every other entry."""
    new = {package.name: package for package in resolved[0]}
    kept = {package.name: package for package in old}
    reasons = dict.fromkeys(sorted(missing), "the mirror no longer has it")
    queue = sorted(missing)
    while queue:
        name = queue.pop(0)
        if name not in new:
            continue  # nothing needs it any more: a library was renamed, say
        for other, why in _dragged(new[name], kept, resolved):
            if other not in reasons and other in new:
                reasons[other] = why
                queue.append(other)
    lines = []
    for name, why in sorted(reasons.items()):
        before, after = kept.pop(name, None), new.get(name)
        if after is not None:
            kept[name] = after
        was, now = before.version if before else "new", after.version if after else "gone"
        lines.append(f"{name}: {was} -> {now} ({why})")
    return sorted(kept.values(), key=lambda package: package.name), lines


def _dragged(
    package: DebianPackage, kept: Mapping[str, DebianPackage], resolved: Resolved
) -> list[tuple[str, str]]:
    """Packages that have to change with `package`, each with the reason."""
    folder = PurePosixPath(package.path).parent
    found = [
        (other.name, f"it is built from one source with {package.name}")
        for other in kept.values()
        if PurePosixPath(other.path).parent == folder and other.version != package.version
    ]
    known = {item.name for item in resolved[0]}
    for name, relation, version in dependencies(resolved[1].get(package.name, "")):
        if name not in known:
            continue
        if name not in kept or not holds(kept[name].version, relation, version):
            shown = f"{name} {relation} {version}".rstrip()
            found.append((name, f"{package.name} {package.version} needs {shown}"))
    return found


def dependencies(field: str) -> list[tuple[str, str, str]]:
    """(name, relation, version) of a Depends field; the first of alternatives stands for all."""
    found = []
    for part in field.split(","):
        match = _DEPENDENCY.match(part.split("|")[0].strip())
        if match:
            found.append((match.group(1), match.group(2) or "", (match.group(3) or "").strip()))
    return found


def holds(version: str, relation: str, bound: str) -> bool:
    """True when `version` stands in `relation` to `bound` (Debian Policy 7.1)."""
    tests: dict[str, Callable[[int], bool]] = {
        "": lambda _: True,
        "<<": lambda order: order < 0,
        "<=": lambda order: order <= 0,
        "=": lambda order: order == 0,
        ">=": lambda order: order >= 0,
        ">>": lambda order: order > 0,
    }
    return tests[relation](compare(version, bound))


def compare(left: str, right: str) -> int:
    """Order of two Debian versions, -1, 0 or 1 (Debian Policy 5.6.12)."""
    a, b = _split(left), _split(right)
    if a[0] != b[0]:
        return -1 if a[0] < b[0] else 1
    return _compare_part(a[1], b[1]) or _compare_part(a[2], b[2])


def _split(version: str) -> tuple[int, str, str]:
    epoch, _, rest = version.rpartition(":")
    upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "")
    if epoch and not epoch.isdigit():
        raise AimaError(f"`{version}` is no Debian version", why="its epoch is no number")
    return int(epoch or 0), upstream, revision


def _compare_part(left: str, right: str) -> int:
    """Runs of non-digits and digits in turn; `~` sorts before the end, letters before other characters."""
    while left or right:
        text = [re.match(r"\D*", side).group() for side in (left, right)]  # type: ignore[union-attr]
        keys = [[_order(char) for char in side] + [0] for side in text]
        if keys[0] != keys[1]:
            return -1 if keys[0] < keys[1] else 1
        left, right = left[len(text[0]) :], right[len(text[1]) :]
        digits = [re.match(r"\d*", side).group() for side in (left, right)]  # type: ignore[union-attr]
        numbers = [int(side or 0) for side in digits]
        if numbers[0] != numbers[1]:
            return -1 if numbers[0] < numbers[1] else 1
        left, right = left[len(digits[0]) :], right[len(digits[1]) :]
    return 0


def _order(char: str) -> int:
    if char == "~":
        return -1
    return ord(char) if char.isalpha() else ord(char) + 256
