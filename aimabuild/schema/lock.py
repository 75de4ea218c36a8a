"""The lock file: which file, by version and sha256, every part of the toolchain comes from.

`aimabuild.lock` is JSON so that `scripts/bootstrap.py` can read it with the standard library alone. A mistake
in it is a `UsageError` that names file, line, column and the path of the value.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from aimabuild.base.errors import UsageError

SCHEMA = "aimabuild/lock/v1"
_HEX64 = re.compile(r"[0-9a-f]{64}")
_DEB_PATH = re.compile(r"pool/[A-Za-z0-9.+~_/-]+\.deb")
_WHEEL = re.compile(
    r"[A-Za-z0-9_.]+-[A-Za-z0-9_.+!]+(-[0-9][A-Za-z0-9_]*)?-[a-z0-9_.]+-[a-z0-9_.]+-[a-z0-9_.]+\.whl"
)
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+:~!_-]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")
_T = TypeVar("_T")


@dataclass(frozen=True)
class DebianPackage:
    """One .deb: `path` below the mirror's root, `size` in bytes, the groups (parts) that it belongs to."""

    name: str
    version: str
    arch: str
    path: str
    size: int
    sha256: str
    licence: str
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Wheel:
    """One wheel, never installed, only unpacked. `size` in bytes."""

    name: str
    version: str
    filename: str
    size: int
    sha256: str
    licence: str

    @property
    def tags(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """(python tags, abi tags, platform tags) of the file name."""
        python, abi, platform = self.filename.removesuffix(".whl").split("-")[-3:]
        return tuple(python.split(".")), tuple(abi.split(".")), tuple(platform.split("."))

    def fits(self, version: tuple[int, int]) -> bool:
        """True when CPython `version` (major, minor) can import this wheel's extension modules."""
        pythons, abis, _ = self.tags
        for tag in pythons:
            if tag in ("py3", "py2.py3") or tag.startswith("py"):
                return True
            minor = int(tag.removeprefix("cp3") or "0")
            if version[1] == minor or ("abi3" in abis and version[1] >= minor):
                return True
        return False


@dataclass(frozen=True)
class PythonPackage:
    """A dependency of aimabuild itself: hashes of its wheels for every supported CPython."""

    name: str
    version: str
    licence: str
    groups: tuple[str, ...]
    hashes: tuple[str, ...]


@dataclass(frozen=True)
class Lock:
    """The whole file. Lists are sorted by name: two resolutions of the same versions give the same bytes."""

    suites: tuple[str, ...]
    debian: tuple[DebianPackage, ...]
    wheels: tuple[Wheel, ...]
    pythons: tuple[str, ...]
    python: tuple[PythonPackage, ...]

    def group(self, name: str) -> tuple[DebianPackage, ...]:
        """The Debian packages of one group."""
        return tuple(package for package in self.debian if name in package.groups)

    def wheel(self, name: str) -> tuple[Wheel, ...]:
        """The wheels of one package (several where one file serves only some Pythons)."""
        return tuple(wheel for wheel in self.wheels if wheel.name == name)


class _BadError(Exception):
    """A value that does not fit; `path` leads to it from the top (keys and indices)."""

    def __init__(self, path: Sequence[str | int], message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.path = tuple(path)
        self.message = message
        self.hint = hint


def load_lock(path: Path) -> Lock:
    """Read and check the lock file. UsageError when it is absent, no JSON, or not what the schema says."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(
            "there is no lock file",
            where=str(path),
            hint="run this in the project's folder, or `aimabuild toolchain lock`",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("the lock file cannot be read", where=str(path), why=str(error)) from error
    return parse_lock(text, str(path))


def parse_lock(text: str, where: str) -> Lock:
    """`text` as a Lock; `where` names the file in errors."""
    try:
        value = json.loads(text, object_pairs_hook=_no_duplicates)
    except json.JSONDecodeError as error:
        raise UsageError(
            "the lock file is not valid JSON",
            where=f"{where}:{error.lineno}:{error.colno}",
            why=error.msg,
            hint="restore the committed file, or write a new one with `aimabuild toolchain lock`",
        ) from error
    except RecursionError as error:
        raise UsageError("the lock file is nested too deeply", where=where) from error
    except _BadError as error:
        raise UsageError(error.message, where=where, hint=error.hint) from error
    try:
        return _lock(value)
    except _BadError as error:
        line, column = _position(text, error.path)
        raise UsageError(
            f"`{_dotted(error.path)}`: {error.message}" if error.path else error.message,
            where=f"{where}:{line}:{column}",
            hint=error.hint,
        ) from error


def dump_lock(lock: Lock) -> str:
    """The lock as its file's text: sorted, one form only."""
    value = {
        "schema": SCHEMA,
        "debian": {"suites": list(lock.suites), "packages": _rows(lock.debian)},
        "wheels": _rows(lock.wheels),
        "python": {"versions": list(lock.pythons), "packages": _rows(lock.python)},
    }
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _rows(items: Sequence[DebianPackage] | Sequence[Wheel] | Sequence[PythonPackage]) -> list[dict[str, Any]]:
    rows = [asdict(item) for item in items]
    return sorted(rows, key=lambda row: (row["name"], row.get("filename", "")))


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _BadError((), f"the key `{key}` stands twice in one object")
        result[key] = value
    return result


def _lock(value: Any) -> Lock:
    top = _object((), value, ("schema", "debian", "wheels", "python"), first="schema")
    if top["schema"] != SCHEMA:
        raise _BadError(
            ("schema",),
            f"expected {SCHEMA!r}, found {top['schema']!r}",
            "this aimabuild reads only that version",
        )
    debian = _object(("debian",), top["debian"], ("suites", "packages"))
    python = _object(("python",), top["python"], ("versions", "packages"))
    lock = Lock(
        suites=_strings(("debian", "suites"), debian["suites"]),
        debian=_list(("debian", "packages"), debian["packages"], _debian),
        wheels=_list(("wheels",), top["wheels"], _wheel),
        pythons=_strings(("python", "versions"), python["versions"]),
        python=_list(("python", "packages"), python["packages"], _python),
    )
    _unique(("debian", "packages"), [package.name for package in lock.debian])
    _unique(("wheels",), [wheel.filename for wheel in lock.wheels])
    _unique(("python", "packages"), [package.name for package in lock.python])
    return lock


def _debian(path: Sequence[str | int], value: Any) -> DebianPackage:
    keys = ("name", "version", "arch", "path", "size", "sha256", "licence", "groups")
    row = _object(path, value, keys)
    where = _text((*path, "path"), row["path"], _DEB_PATH, "a path like pool/main/x/xz-utils/NAME.deb")
    if ".." in where.split("/"):
        raise _BadError((*path, "path"), "must not contain `..`")
    return DebianPackage(
        name=_text((*path, "name"), row["name"], _NAME, "a package name"),
        version=_text((*path, "version"), row["version"], _VERSION, "a version"),
        arch=_text((*path, "arch"), row["arch"], re.compile("amd64|all"), "amd64 or all"),
        path=where,
        size=_size((*path, "size"), row["size"]),
        sha256=_text((*path, "sha256"), row["sha256"], _HEX64, "64 hexadecimal digits"),
        licence=_text((*path, "licence"), row["licence"]),
        groups=_strings((*path, "groups"), row["groups"]),
    )


def _wheel(path: Sequence[str | int], value: Any) -> Wheel:
    row = _object(path, value, ("name", "version", "filename", "size", "sha256", "licence"))
    return Wheel(
        name=_text((*path, "name"), row["name"], _NAME, "a package name"),
        version=_text((*path, "version"), row["version"], _VERSION, "a version"),
        filename=_text((*path, "filename"), row["filename"], _WHEEL, "a wheel's file name"),
        size=_size((*path, "size"), row["size"]),
        sha256=_text((*path, "sha256"), row["sha256"], _HEX64, "64 hexadecimal digits"),
        licence=_text((*path, "licence"), row["licence"]),
    )


def _python(path: Sequence[str | int], value: Any) -> PythonPackage:
    row = _object(path, value, ("name", "version", "licence", "groups", "hashes"))
    hashes = _strings((*path, "hashes"), row["hashes"])
    for index, text in enumerate(hashes):
        _text((*path, "hashes", index), text, _HEX64, "64 hexadecimal digits")
    return PythonPackage(
        name=_text((*path, "name"), row["name"], _NAME, "a package name"),
        version=_text((*path, "version"), row["version"], _VERSION, "a version"),
        licence=_text((*path, "licence"), row["licence"]),
        groups=_strings((*path, "groups"), row["groups"]),
        hashes=hashes,
    )


def _object(
    path: Sequence[str | int], value: Any, keys: Sequence[str], first: str | None = None
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _BadError(path, f"expected an object, found {_kind(value)}")
    if first is not None and first not in value:
        raise _BadError(
            path, f"the key `{first}` is missing", f'a lock file starts with {{"schema": "{SCHEMA}"'
        )
    for key in value:
        if key not in keys:
            near = difflib.get_close_matches(key, keys, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(keys)}"
            raise _BadError((*path, key), "unknown key", hint)
    missing = [key for key in keys if key not in value]
    if missing:
        raise _BadError(path, f"the key `{missing[0]}` is missing")
    return value


def _list(
    path: Sequence[str | int], value: Any, item: Callable[[Sequence[str | int], Any], _T]
) -> tuple[_T, ...]:
    if not isinstance(value, list):
        raise _BadError(path, f"expected a list, found {_kind(value)}")
    return tuple(item((*path, index), entry) for index, entry in enumerate(value))


def _strings(path: Sequence[str | int], value: Any) -> tuple[str, ...]:
    result = _list(path, value, _text)
    if not result:
        raise _BadError(path, "must not be empty")
    return result


def _text(
    path: Sequence[str | int], value: Any, pattern: re.Pattern[str] | None = None, expected: str = "text"
) -> str:
    if not isinstance(value, str) or not value:
        raise _BadError(
            path, f"expected {expected}, found {_kind(value) if value != '' else 'an empty string'}"
        )
    if pattern is not None and not pattern.fullmatch(value):
        raise _BadError(path, f"expected {expected}, found {value!r}")
    return value


def _size(path: Sequence[str | int], value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise _BadError(path, f"expected a size in bytes, found {_kind(value)}")
    return value


def _unique(path: Sequence[str | int], names: Sequence[str]) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise _BadError((*path, index), f"`{name}` is listed twice")
        seen.add(name)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(
        type(value), f"the number {value}" if isinstance(value, int | float) else "something else"
    )


def _dotted(path: Sequence[str | int]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _position(text: str, path: Sequence[str | int]) -> tuple[int, int]:
    """Line and column (from 1) of the value, or of the key where the value is what is not known.

    JSON is YAML, and PyYAML keeps marks; this runs only after an error, so its speed does not matter.
    """
    import yaml

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return 1, 1
    mark = node.start_mark if node is not None else None
    for step in path:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == step:
                    node, mark = value, key.start_mark
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            mark = node.start_mark
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
