"""YAML documents as trees of located nodes: the one way in which this program reads its input files.

YAML's traps stay outside: no anchors, aliases or tags (they make small files large and types surprising), no
duplicate keys, no second document, and none of YAML 1.1's `on`, `1_000` or `0x10` read as something that the
writer did not mean. Every failure is one `UsageError` with file, line, column, the path of the value inside
the document, and what was expected and found. Size, depth and node count are bounded, so that no file can
hang or exhaust the program.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import yaml

from aimabuild.base.errors import UsageError, printable
from aimabuild.base.files import kind_of, sha256_bytes

MAX_BYTES = 512 * 1024
MAX_DEPTH = 24
MAX_NODES = 50_000

_INT = re.compile(r"-?(0|[1-9][0-9]*)\Z", re.ASCII)
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?\Z", re.ASCII)
# What YAML 1.1, YAML 1.2 or a reader may take for something other than text: quoted where text is meant.
_NOT_TEXT = re.compile(
    r"(?i:true|false|yes|no|on|off|null|~|[-+]?\.(inf|nan)|nan|inf|[-+]?[0-9][0-9_.:,xobaefEF+-]*)?\Z",
    re.ASCII,
)
_SPELLINGS = frozenset({"yes", "no", "on", "off", "true", "false"})


@dataclass(frozen=True, order=True)
class Location:
    """A place in an input file: the file's name as shown to the reader, line and column from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


def suggest(word: str, known: Iterable[str]) -> str | None:
    """A hint that names the known word nearest to a misspelt one."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else None


def _shown(text: str) -> str:
    """A value as an error quotes it: one line, not too long."""
    line = printable(text, keep="")
    return f"`{line if len(line) <= 60 else line[:57] + '...'}`"


@dataclass(frozen=True)
class Node:
    """One value of a document. `path` is its name inside, for example `kernels[2].dims.n`."""

    path: str
    location: Location

    def fail(self, what: str, *, why: str | None = None, hint: str | None = None) -> NoReturn:
        """Raise the `UsageError` that says `what` is wrong with this value."""
        name = f"`{self.path}`: " if self.path else ""
        raise UsageError(f"{name}{what}", where=str(self.location), why=why, hint=hint)

    def describe(self) -> str:
        """What this value is, for the "found" half of an error."""
        raise NotImplementedError

    def _expected(self, wanted: str, *, hint: str | None = None) -> NoReturn:
        self.fail(f"expected {wanted}, found {self.describe()}", hint=hint)

    def mapping(self) -> MappingNode:
        """This value as a mapping."""
        self._expected("a mapping (`key: value` lines)")

    def sequence(self, *, minimum: int = 0) -> tuple[Node, ...]:
        """This value's items, at least `minimum` of them."""
        del minimum
        self._expected("a list")

    def text(self) -> str:
        """This value as non-empty text."""
        self._expected("text")

    def integer(self, *, minimum: int | None = None, maximum: int | None = None) -> int:
        """This value as a whole number within the limits."""
        del minimum, maximum
        self._expected("a whole number")

    def number(self) -> float:
        """This value as a finite number."""
        self._expected("a number")

    def boolean(self) -> bool:
        """This value as true or false."""
        self._expected("`true` or `false`")

    def choice(self, known: Iterable[str], what: str) -> str:
        """This value as one of `known`; `what` names the set in the error."""
        options = list(known)
        word = self.text()
        if word not in options:
            listed = ", ".join(options) if len(options) <= 12 else f"one of {len(options)} names"
            self.fail(f"unknown {what} {_shown(word)}", why=f"known: {listed}", hint=suggest(word, options))
        return word

    def texts(self, *, minimum: int = 0) -> tuple[str, ...]:
        """This value as a list of different texts."""
        seen: dict[str, Node] = {}
        for item in self.sequence(minimum=minimum):
            if item.text() in seen:
                item.fail(f"{_shown(item.text())} stands twice in the list")
            seen[item.text()] = item
        return tuple(seen)


@dataclass(frozen=True)
class ScalarNode(Node):
    """A scalar: its text, and whether it was quoted."""

    value: str
    quoted: bool

    def describe(self) -> str:
        """See `Node.describe`."""
        if self.quoted:
            return f"the text {_shown(self.value)}"
        if self.value in {"", "~", "null"}:
            return "nothing"
        if self.value in {"true", "false"}:
            return f"the truth value `{self.value}`"
        return _shown(self.value)

    def text(self) -> str:
        """Text must be quoted where YAML could read it as a number, a truth value or nothing."""
        if not self.quoted and _NOT_TEXT.match(self.value):
            hint = "write it in quotes if text is meant" if self.value else None
            self._expected("text", hint=hint)
        if not self.value.strip():
            self.fail("the text is empty")
        return self.value

    def integer(self, *, minimum: int | None = None, maximum: int | None = None) -> int:
        """Decimal digits alone; truth values and texts are no numbers."""
        if self.quoted or not _INT.match(self.value) or len(self.value) > 19:
            numeric = not self.quoted and self.value[:1].isdigit()
            self._expected("a whole number", hint="write decimal digits alone" if numeric else None)
        value = int(self.value)
        if minimum is not None and value < minimum:
            self.fail(f"{value} is below the minimum {minimum}")
        if maximum is not None and value > maximum:
            self.fail(f"{value} is above the maximum {maximum}")
        return value

    def number(self) -> float:
        """A finite decimal number."""
        value = float(self.value) if not self.quoted and _FLOAT.match(self.value) else math.nan
        if not math.isfinite(value):
            self._expected("a finite number")
        return value

    def boolean(self) -> bool:
        """`true` or `false`, spelt so."""
        if self.quoted or self.value not in {"true", "false"}:
            old = not self.quoted and self.value.lower() in _SPELLINGS
            self._expected("`true` or `false`", hint="spell it `true` or `false`" if old else None)
        return self.value == "true"


@dataclass(frozen=True)
class SequenceNode(Node):
    """A list."""

    items: tuple[Node, ...]

    def describe(self) -> str:
        """See `Node.describe`."""
        return "a list"

    def sequence(self, *, minimum: int = 0) -> tuple[Node, ...]:
        """See `Node.sequence`."""
        if len(self.items) < minimum:
            self.fail(
                f"expected at least {minimum} item{'s' if minimum > 1 else ''}, found {len(self.items)}"
            )
        return self.items


@dataclass(frozen=True)
class MappingNode(Node):
    """A mapping with its keys in the order of the file, each with the place where it stands."""

    entries: Mapping[str, Node]
    keys: Mapping[str, Location]

    def describe(self) -> str:
        """See `Node.describe`."""
        return "a mapping"

    def mapping(self) -> MappingNode:
        """See `Node.mapping`."""
        return self

    def only(self, required: Iterable[str], optional: Iterable[str] = ()) -> MappingNode:
        """This mapping, if it has every `required` key and none but those and the `optional` ones."""
        needed = list(required)
        known = [*needed, *optional]
        for key, location in self.keys.items():
            if key not in known:
                name = printable(key, keep="")
                inside = f"{self.path}.{name}" if self.path else name
                raise UsageError(
                    f"unknown key `{inside}`",
                    where=str(location),
                    why=f"known here: {', '.join(known)}",
                    hint=suggest(key, [name for name in known if name not in self.entries]),
                )
        missing = [key for key in needed if key not in self.entries]
        if missing:
            self.fail(f"the key `{missing[0]}` is missing", why=f"needed here: {', '.join(needed)}")
        return self

    def __getitem__(self, key: str) -> Node:
        return self.entries[key]

    def get(self, key: str) -> Node | None:
        """The value of `key`, None when it is not there."""
        return self.entries.get(key)


@dataclass(frozen=True)
class Document:
    """A parsed file: its name in messages, the digest of its bytes, and its root."""

    name: str
    sha256: str
    root: MappingNode

    def expect(self, kind: str, version: int = 1) -> MappingNode:
        """The root, if its `schema` line says `aimabuild/<kind>/v<version>`."""
        node = self.root.get("schema")
        wanted = f"aimabuild/{kind}/v{version}"
        if node is None:
            self.root.fail("the key `schema` is missing", hint=f"start the file with `schema: {wanted}`")
        found = node.text()
        if re.fullmatch(rf"aimabuild/{kind}/v[0-9]+", found) and found != wanted:
            node.fail(f"unknown version {_shown(found)}", why=f"this aimabuild reads {wanted}")
        if found != wanted:
            node.fail(f"expected `{wanted}`, found {_shown(found)}", hint=suggest(found, [wanted]))
        return self.root


class _Builder:
    """Builds located nodes from YAML events, without recursion into PyYAML's composer."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._count = 0
        self._events = yaml.parse(text, Loader=yaml.SafeLoader)

    def _location(self, event: yaml.Event) -> Location:
        mark = event.start_mark
        assert mark is not None  # noqa: S101 - the parser marks every event
        return Location(self._name, mark.line + 1, mark.column + 1)

    def _place(self, offset: int) -> str:
        before = self._text[:offset]
        return f"{self._name}:{before.count(chr(10)) + 1}:{offset - before.rfind(chr(10))}"

    def _fail(self, event: yaml.Event, what: str, hint: str | None = None) -> NoReturn:
        raise UsageError(what, where=str(self._location(event)), hint=hint)

    def _next(self) -> yaml.Event:
        try:
            event: yaml.Event = next(self._events)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"{self._name}:{mark.line + 1}:{mark.column + 1}" if mark else self._name
            why = str(error.problem or error.context)
            colon = why.startswith("mapping values")
            hint = "a text that holds `: ` stands in quotes" if colon else None
            raise UsageError("not valid YAML", where=where, why=why, hint=hint) from None
        except yaml.reader.ReaderError as error:
            what = f"a character that YAML does not allow: U+{ord(self._text[error.position]):04X}"
            raise UsageError(what, where=self._place(error.position)) from None
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            # PyYAML lets a bad \U escape or %YAML number through as a bare Python error.
            raise UsageError("not valid YAML", where=f"{self._name}:1:1", why=str(error)) from None
        return event

    def document(self) -> MappingNode:
        self._next()  # the start of the stream
        event = self._next()
        if isinstance(event, yaml.StreamEndEvent):
            raise UsageError("the file is empty", where=f"{self._name}:1:1")
        root = self.node(self._next(), "", 0)
        self._next()  # the end of the document
        event = self._next()
        if not isinstance(event, yaml.StreamEndEvent):
            self._fail(event, "a second document starts here", "keep one document in a file")
        return root.mapping()

    def node(self, event: yaml.Event, path: str, depth: int) -> Node:
        self._count += 1
        if self._count > MAX_NODES or depth > MAX_DEPTH:
            what = (
                f"more than {MAX_NODES} values"
                if self._count > MAX_NODES
                else f"nested deeper than {MAX_DEPTH}"
            )
            self._fail(event, f"the document is too large: {what}")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            self._fail(
                event, "anchors and aliases (`&name`, `*name`) are not accepted", "write the value out"
            )
        if getattr(event, "tag", None):
            self._fail(event, "tags (`!name`) are not accepted", "remove the tag")
        location = self._location(event)
        if isinstance(event, yaml.ScalarEvent):
            return ScalarNode(path, location, event.value, event.style is not None)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(inner := self._next(), yaml.SequenceEndEvent):
                items.append(self.node(inner, f"{path}[{len(items)}]", depth + 1))
            return SequenceNode(path, location, tuple(items))
        return self._mapping(path, location, depth)

    def _mapping(self, path: str, location: Location, depth: int) -> MappingNode:
        entries: dict[str, Node] = {}
        keys: dict[str, Location] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self._fail(event, "a key must be a word")
            key = self.node(event, path, depth + 1)
            assert isinstance(key, ScalarNode)  # noqa: S101 - a scalar event makes a scalar node
            if key.value in entries:
                self._fail(event, f"the key {_shown(key.value)} stands twice", f"first at {keys[key.value]}")
            keys[key.value] = key.location
            name = printable(key.value, keep="")
            inside = f"{path}.{name}" if path else name
            entries[key.value] = self.node(self._next(), inside, depth + 1)
        return MappingNode(path, location, entries, keys)


def parse_document(data: bytes, name: str) -> Document:
    """Parse the bytes of one file called `name` in messages. Raises `UsageError` with a location."""
    if len(data) > MAX_BYTES:
        raise UsageError(
            f"the file is too large: {len(data)} bytes, at most {MAX_BYTES}", where=f"{name}:1:1"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        what = f"not UTF-8 text: byte 0x{data[error.start]:02x}"
        raise UsageError(what, where=f"{name}:{line}:{column}", hint="save the file as UTF-8") from None
    return Document(name, sha256_bytes(data), _Builder(name, text).document())


def read_input(path: Path, name: str) -> bytes:
    """The bytes of a regular file of at most `MAX_BYTES`. Raises `UsageError` when it cannot be read."""
    try:
        # Without waiting: opening a pipe that nobody writes would hang.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise UsageError("not a regular file", where=name, why=f"it is {kind_of(mode)}")
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError("no such file", where=name) from None
    except OSError as error:
        raise UsageError("the file cannot be read", where=name, why=error.strerror) from None
    except ValueError:
        raise UsageError("no such file", where=name, why="the name holds a zero byte") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"the file is too large: more than {MAX_BYTES} bytes", where=f"{name}:1:1")
    return data


def load_document(path: Path, name: str | None = None) -> Document:
    """Read and parse one YAML file; `name` is what messages call it (default: its path)."""
    shown = name or str(path)
    return parse_document(read_input(path, shown), shown)
