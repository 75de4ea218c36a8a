"""`toolchain lock`: from the table of parts and pyproject.toml to a lock file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aimabuild.base.files import sha256_file
from aimabuild.base.reporter import Reporter
from aimabuild.schema.lock import DebianPackage, Lock, PythonPackage, Wheel
from aimabuild.toolchain.cache import Cache, explain_os_errors
from aimabuild.toolchain.debian import Apt, resolve_debian
from aimabuild.toolchain.licences import wheel_licence
from aimabuild.toolchain.mirror import find_mirrors
from aimabuild.toolchain.parts import PARTS, PYTHONS, SUITES, WheelRequest
from aimabuild.toolchain.pythons import requirements, resolve_python
from aimabuild.toolchain.wheels import download

_PLATFORM_TAGS = (
    *("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    *("manylinux_2_12_x86_64", "manylinux2010_x86_64", "any"),
)


def resolve(root: Path, old: Lock | None, *, reporter: Reporter, mirror: str | None = None) -> Lock:
    """A new lock for the project in `root`. Wheels of the wanted version in `old` are kept."""
    cache = Cache.default()
    with explain_os_errors(cache):
        cache.prepare()
        with reporter.step("locking wheels"):
            wheels = _wheels(old, cache, reporter)
        with reporter.step("locking Debian packages"):
            apt = Apt(cache.root / "apt", find_mirrors(mirror)[0])
            apt.update()
            debian, _ = resolve_debian(apt)
        with reporter.step("locking Python dependencies"), cache.scratch() as folder:
            python = resolve_python(requirements(root / "pyproject.toml"), PYTHONS, folder)
    return Lock(SUITES, tuple(debian), tuple(wheels), PYTHONS, tuple(python))


def _wheels(old: Lock | None, cache: Cache, reporter: Reporter) -> list[Wheel]:
    wheels: list[Wheel] = []
    for spec in PARTS:
        if not isinstance(spec.request, WheelRequest):
            continue
        known = [
            wheel for wheel in (old.wheel(spec.name) if old else ()) if wheel.version == spec.request.version
        ]
        for tags in spec.request.tags:
            kept = next((wheel for wheel in known if _matches(wheel, tags)), None)
            if kept is None:
                reporter.line(f"  fetching {spec.name} {spec.request.version}")
            wheels.append(kept or _lock_wheel(spec.name, spec.request.version, tags, cache))
    return sorted(wheels, key=lambda wheel: (wheel.name, wheel.filename))


def _matches(wheel: Wheel, tags: tuple[str, str]) -> bool:
    pythons, abis, _ = wheel.tags
    prefix = "py" if tags[1] == "none" else "cp"
    return tags[1] in abis and f"{prefix}{tags[0].replace('.', '')}" in pythons


def _lock_wheel(name: str, version: str, tags: tuple[str, str], cache: Cache) -> Wheel:
    python, abi = tags
    prefix = "py" if abi == "none" else "cp"
    with cache.scratch() as folder:
        found = download(
            name, version, ((f"{prefix}{python.replace('.', '')}",), (abi,), _PLATFORM_TAGS), folder
        )
        sha256, size = sha256_file(found), found.stat().st_size
        found.replace(cache.file(sha256))
    return Wheel(name, version, found.name, size, sha256, wheel_licence(name))


def changes(old: Lock | None, new: Lock) -> list[str]:
    """One line for each entry that differs."""
    lines: list[str] = []
    pairs: Sequence[tuple[str, dict[str, str], dict[str, str]]] = (
        ("debian", _versions(old.debian if old else ()), _versions(new.debian)),
        ("wheel", _versions(old.wheels if old else ()), _versions(new.wheels)),
        ("python", _versions(old.python if old else ()), _versions(new.python)),
    )
    for kind, before, after in pairs:
        for name in sorted(before.keys() | after.keys()):
            was, now = before.get(name), after.get(name)
            if was is None:
                lines.append(f"{kind} {name}: added {now}")
            elif now is None:
                lines.append(f"{kind} {name}: removed {was}")
            elif was != now:
                lines.append(f"{kind} {name}: {was} -> {now}")
    return lines


def _versions(items: Sequence[DebianPackage] | Sequence[Wheel] | Sequence[PythonPackage]) -> dict[str, str]:
    return {item.name: item.version for item in items}
