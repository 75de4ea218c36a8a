"""Kernel templates: the sidecar `templates/<dir>/<name>.yaml` (schema aimabuild/template/v1) and its source.

The sidecar says which operation the template serves, what it can be compiled for, its tile parameters, the
rules that a choice must keep, the kernel's arguments in the order of the source, and how dimensions and tile
become compile-time constants, compiler options and the launch grid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from aimabuild.base.errors import UsageError
from aimabuild.schema.document import Document, Location, MappingNode, Node
from aimabuild.schema.expression import FUNCTIONS, Expression, expression
from aimabuild.schema.targets import TARGET_VALUES, TARGETS

COMPILERS = ("triton", "hip")
DTYPES: Mapping[str, int] = MappingProxyType(
    {"bf16": 2, "f16": 2, "f32": 4, "i8": 1, "u8": 1, "i32": 4, "i64": 8, "u32": 4}
)
ARG_KINDS = ("pointer", "i32", "i64", "f32", "struct")
GRID_VARS = ("tokens",)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_TOP = ("schema", "op", "compiler", "summary", "targets", "dtypes", "dims", "tile", "args", "sources")
_TOP_OPTIONAL = ("outs", "max_tokens", "rules", "constants", "options", "grid", "fill")


@dataclass(frozen=True)
class IntRule:
    """What a whole number must be: one of `choices`, or a multiple within limits."""

    name: str
    location: Location
    choices: tuple[int, ...]
    multiple_of: int
    minimum: int
    maximum: int | None
    default: int | None

    def refuses(self, value: int) -> str | None:
        """Why `value` is not acceptable, None when it is."""
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(map(str, self.choices))}"
        if value % self.multiple_of:
            return f"must be a multiple of {self.multiple_of}"
        if value < self.minimum:
            return f"must be at least {self.minimum}"
        if self.maximum is not None and value > self.maximum:
            return f"must be at most {self.maximum}"
        return None


@dataclass(frozen=True)
class Rule:
    """A condition over dimensions, tile and target facts, and why it exists."""

    require: Expression
    why: str


@dataclass(frozen=True)
class Arg:
    """One kernel argument. A pointer's dtype may be `dtype` or `out`: that of the kernel."""

    name: str
    kind: str
    dtype: str | None
    divisibility: int
    size: int | None


@dataclass(frozen=True)
class GridAxis:
    """Workgroups along one axis: ceil_div(var * mul + add, div), or a fixed `count`."""

    var: str | None
    mul: Expression | None
    add: Expression | None
    div: Expression | None
    count: Expression | None


@dataclass(frozen=True)
class Template:
    """A sidecar with the texts that it stands beside; `name` is `<dir>/<name>`."""

    name: str
    location: Location
    op: str
    compiler: str
    summary: str
    targets: tuple[str, ...]
    dtypes: tuple[str, ...]
    outs: tuple[str, ...]
    max_tokens: int | None  # the most tokens of one launch; None: as many as a pass may have
    dims: Mapping[str, IntRule]
    tile: Mapping[str, IntRule]
    rules: tuple[Rule, ...]
    args: tuple[Arg, ...]
    constants: Mapping[str, Expression]
    options: Mapping[str, Expression]
    grid: tuple[GridAxis, ...] | None
    fill: bool
    sources: tuple[str, ...]
    source_name: str
    source: str
    host_name: str | None
    host: str | None

    @property
    def directory(self) -> str:
        """The first half of the name: whose templates these are (`triton`, `ck_tile`)."""
        return self.name.split("/")[0]


def _name_node(node: MappingNode, what: str, taken: frozenset[str] = frozenset()) -> None:
    for key, location in node.keys.items():
        if not _NAME.match(key):
            raise UsageError(f"`{key}` cannot be the name of {what}", where=str(location), hint="use a_b_1")
        if key in taken or key in TARGET_VALUES or key in FUNCTIONS:
            raise UsageError(
                f"`{key}` cannot be the name of {what}: it means something else", where=str(location)
            )


def _int_rule(name: str, node: Node) -> IntRule:
    fields = node.mapping().only((), ("choices", "multiple_of", "min", "max", "default"))
    choices = fields.get("choices")
    numbers = tuple(item.integer() for item in choices.sequence(minimum=1)) if choices else ()

    def number(key: str, otherwise: int | None, minimum: int | None = None) -> int | None:
        value = fields.get(key)
        return otherwise if value is None else value.integer(minimum=minimum)

    rule = IntRule(
        name,
        node.location,
        numbers,
        number("multiple_of", 1, 1) or 1,
        number("min", min(numbers, default=1)) or 0,
        number("max", None),
        number("default", None),
    )
    default = fields.get("default")
    if default is not None and (why := rule.refuses(default.integer())):
        default.fail(f"the default {rule.default} {why}")
    return rule


def _int_rules(node: Node, what: str, taken: frozenset[str] = frozenset()) -> dict[str, IntRule]:
    fields = node.mapping()
    _name_node(fields, what, taken)
    return {name: _int_rule(name, value) for name, value in fields.entries.items()}


def _rules(node: Node | None, known: frozenset[str]) -> tuple[Rule, ...]:
    rules: list[Rule] = []
    for item in node.sequence() if node else ():
        fields = item.mapping().only(("require", "why"))
        rules.append(Rule(expression(fields["require"]), fields["why"].text()))
        rules[-1].require.check_names(known)
    return tuple(rules)


def _arg(node: Node) -> Arg:
    kind = node.mapping().only(("name", "kind"), ("dtype", "divisibility", "size"))["kind"]
    word = kind.choice(ARG_KINDS, "argument kind")
    extra = {"pointer": ("dtype",), "struct": ("size",)}.get(word, ())
    optional = () if word in {"f32", "struct"} else ("divisibility",)
    fields = node.mapping().only(("name", "kind", *extra), optional)
    name = fields["name"].text()
    if not _NAME.match(name):
        fields["name"].fail(f"`{name}` cannot be the name of an argument", hint="use a_b_1")
    divisibility = fields.get("divisibility")
    return Arg(
        name,
        word,
        fields["dtype"].choice(("dtype", "out", *DTYPES), "dtype") if word == "pointer" else None,
        divisibility.integer(minimum=1, maximum=4096) if divisibility else 1,
        fields["size"].integer(minimum=1, maximum=4096) if word == "struct" else None,
    )


def _args(node: Node) -> tuple[Arg, ...]:
    args: dict[str, Arg] = {}
    for item in node.sequence(minimum=1):
        arg = _arg(item)
        if arg.name in args:
            item.fail(f"the argument `{arg.name}` stands twice")
        args[arg.name] = arg
    return tuple(args.values())


def _expressions(node: Node | None, known: frozenset[str], what: str) -> dict[str, Expression]:
    if node is None:
        return {}
    fields = node.mapping()
    _name_node(fields, what)
    result = {name: expression(value) for name, value in fields.entries.items()}
    for value in result.values():
        value.check_names(known)
    return result


def _axis(node: Node, known: frozenset[str]) -> GridAxis:
    fields = node.mapping()
    if fields.get("count") is not None:
        axis = GridAxis(None, None, None, None, expression(fields.only(("count",))["count"]))
    else:
        fields.only(("var",), ("mul", "add", "div"))
        parts = {key: expression(fields[key]) for key in ("mul", "add", "div") if fields.get(key)}
        var = fields["var"].choice(GRID_VARS, "grid variable")
        axis = GridAxis(var, parts.get("mul"), parts.get("add"), parts.get("div"), None)
    for part in (axis.mul, axis.add, axis.div, axis.count):
        if part is not None:
            part.check_names(known)
    return axis


def _grid(fields: MappingNode, known: frozenset[str]) -> tuple[GridAxis, ...] | None:
    grid = fields.get("grid")
    filled = fields.get("fill")
    if filled is not None and filled.boolean():
        if grid is not None:
            grid.fail("a template that fills its own arguments (`fill: true`) has no `grid`")
        return None
    if grid is None:
        fields.fail(
            "the key `grid` is missing", hint="or `fill: true` where host code fills arguments and grid"
        )
    axes = tuple(_axis(item, known) for item in grid.sequence(minimum=1))
    if len(axes) > 3:
        grid.fail(f"a grid has at most 3 axes, found {len(axes)}")
    return axes


def template_from(document: Document, name: str, texts: Mapping[str, str]) -> Template:
    """The template `name` of a sidecar and the `texts` beside it, by suffix (`.py.j2`, ...)."""
    fields = document.expect("template").only(_TOP, _TOP_OPTIONAL)
    compiler = fields["compiler"].choice(COMPILERS, "compiler")
    dtypes = tuple(_dtype_list(fields["dtypes"]))
    outs = fields.get("outs")
    dims = _int_rules(fields["dims"], "a dimension")
    tile = _int_rules(fields["tile"], "a tile parameter", frozenset(dims))
    known = frozenset(dims) | frozenset(tile) | TARGET_VALUES
    fill = fields.get("fill")
    filled = fill is not None and fill.boolean()
    most = fields.get("max_tokens")
    suffix = ".py.j2" if compiler == "triton" else ".hip.j2"
    return Template(
        name=name,
        location=fields.location,
        op=fields["op"].text(),
        compiler=compiler,
        summary=fields["summary"].text(),
        targets=_target_list(fields["targets"]),
        dtypes=dtypes,
        outs=tuple(_dtype_list(outs)) if outs else dtypes,
        max_tokens=most.integer(minimum=1) if most else None,
        dims=dims,
        tile=tile,
        rules=_rules(fields.get("rules"), known),
        args=_args(fields["args"]),
        constants=_expressions(fields.get("constants"), known, "a constant"),
        options=_expressions(fields.get("options"), known, "an option"),
        grid=_grid(fields, known),
        fill=filled,
        sources=fields["sources"].texts(),
        source_name=f"{name}{suffix}",
        source=_text(fields, texts, f"{name}{suffix}", suffix),
        host_name=f"{name}.host.cpp.j2" if filled else None,
        host=_text(fields, texts, f"{name}.host.cpp.j2", ".host.cpp.j2") if filled else None,
    )


def _text(fields: MappingNode, texts: Mapping[str, str], shown: str, suffix: str) -> str:
    if suffix not in texts:
        fields.fail(f"the template has no source `{shown}` beside it")
    return texts[suffix]


def _dtype_list(node: Node) -> tuple[str, ...]:
    node.texts(minimum=1)
    return tuple(item.choice(DTYPES, "dtype") for item in node.sequence())


def _target_list(node: Node) -> tuple[str, ...]:
    node.texts(minimum=1)
    return tuple(item.choice(TARGETS, "target") for item in node.sequence())
