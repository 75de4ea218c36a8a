"""The expressions of templates and shapes: whole numbers, names, `+ - * // %`, comparisons, `and or not`, and
`ceil_div`, `min`, `max`, `next_pow2`.

Parsed by Python's own parser and evaluated over the few node types listed here: no attribute, no subscript,
no call but those four. Values stay within 64 bits; a division by zero or an overflow is an error with the
place of the expression.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from aimabuild.base.errors import UsageError
from aimabuild.schema.document import Location, Node, ScalarNode, suggest

MAX_LENGTH = 300
_LIMIT = 1 << 62

_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def ceil_div(value: int, divisor: int) -> int:
    """Quotient rounded up."""
    return -(-value // divisor)


def next_pow2(value: int) -> int:
    """The smallest power of two that is at least `value` (1 for anything below)."""
    return 1 << max(value - 1, 0).bit_length()


# name -> function and how many arguments it takes (None: two or more)
FUNCTIONS: dict[str, tuple[Callable[..., int], int | None]] = {
    "ceil_div": (ceil_div, 2),
    "next_pow2": (next_pow2, 1),
    "min": (min, None),
    "max": (max, None),
}


@dataclass(frozen=True)
class Expression:
    """One parsed expression; `names` are the variables that it reads."""

    text: str
    location: Location
    names: frozenset[str]
    _tree: ast.expr = field(repr=False, compare=False)

    def integer(self, values: Mapping[str, int]) -> int:
        """Evaluate to a whole number."""
        result = self._evaluate(values)
        if isinstance(result, bool):
            self._fail("is a truth value, a whole number is needed")
        return result

    def truth(self, values: Mapping[str, int]) -> bool:
        """Evaluate to a truth value."""
        result = self._evaluate(values)
        if not isinstance(result, bool):
            self._fail("is a number, a comparison is needed")
        return result

    def check_names(self, known: frozenset[str]) -> None:
        """Raise `UsageError` when the expression reads a name that nobody defines."""
        for name in sorted(self.names - known):
            raise UsageError(
                f"unknown name `{name}` in `{self.text}`",
                where=str(self.location),
                why=f"known here: {', '.join(sorted(known))}" if known else "no names are known here",
                hint=suggest(name, known),
            )

    def _evaluate(self, values: Mapping[str, int]) -> int | bool:
        self.check_names(frozenset(values))
        try:
            return _value(self._tree, values)
        except ZeroDivisionError:
            self._fail("divides by zero")
        except (OverflowError, TypeError) as error:
            self._fail(str(error))

    def _fail(self, why: str) -> NoReturn:
        raise UsageError(f"the expression `{self.text}` {why}", where=str(self.location))


def _number(tree: ast.expr, values: Mapping[str, int]) -> int:
    result = _value(tree, values)
    if isinstance(result, bool):
        raise TypeError("computes with a truth value")
    return result


def _value(tree: ast.expr, values: Mapping[str, int]) -> int | bool:
    match tree:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand, values)
        case ast.UnaryOp(operand=operand):
            return not _truth(operand, values)
        case ast.BinOp(left=left, op=kind, right=right):
            result = _ARITHMETIC[type(kind)](_number(left, values), _number(right, values))
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_truth(part, values) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_truth(part, values) for part in parts)
        case ast.Compare(left=left, ops=kinds, comparators=others):
            numbers = [_number(part, values) for part in (left, *others)]
            pairs = zip(kinds, numbers, numbers[1:], strict=False)
            return all(_COMPARE[type(kind)](first, second) for kind, first, second in pairs)
        case ast.Call(func=ast.Name(id=name), args=parts):
            arguments = [_number(part, values) for part in parts]
            if name == "next_pow2" and arguments[0] > _LIMIT:
                raise OverflowError("exceeds 64 bits")
            result = FUNCTIONS[name][0](*arguments)
        case _:
            raise TypeError("has a form that is not accepted")
    if abs(result) > _LIMIT:
        raise OverflowError("exceeds 64 bits")
    return result


def _truth(tree: ast.expr, values: Mapping[str, int]) -> bool:
    result = _value(tree, values)
    if not isinstance(result, bool):
        raise TypeError("uses a number where a comparison is needed")
    return result


def _check(tree: ast.expr) -> str | None:
    """Why this tree is not in the language, None when it is."""
    for part in ast.walk(tree):
        match part:
            case ast.Constant(value=value):
                if type(value) is not int or value > _LIMIT:
                    return f"`{value!r}` is not a whole number of 64 bits"
            case ast.UnaryOp(op=ast.USub() | ast.Not()) | ast.BoolOp() | ast.Name() | ast.boolop():
                pass
            case ast.unaryop() | ast.operator() | ast.cmpop() | ast.expr_context():
                pass
            case ast.BinOp(op=kind):
                if type(kind) not in _ARITHMETIC:
                    return "the operators are `+ - * // %`"
            case ast.Compare(ops=kinds):
                if any(type(kind) not in _COMPARE for kind in kinds):
                    return "the comparisons are `== != < <= > >=`"
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
                wanted = FUNCTIONS[name][1]
                if (len(arguments) < 2) if wanted is None else (len(arguments) != wanted):
                    return f"`{name}` takes {wanted or 'two or more'} argument{'s' if wanted != 1 else ''}"
            case ast.Call():
                return f"the functions are {', '.join(sorted(FUNCTIONS))}"
            case _:
                return f"a {type(part).__name__.lower()} is not accepted"
    return None


def parse_expression(text: str, location: Location) -> Expression:
    """Parse `text`, found at `location`. Raises `UsageError`."""
    what = f"`{text[:60]}` is not an expression"
    if len(text) > MAX_LENGTH:
        raise UsageError(what, where=str(location), why=f"longer than {MAX_LENGTH} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # the parser's remarks on style (`1and 2`) are no business of the user
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else "cannot be parsed"
        raise UsageError(what, where=str(location), why=why) from None
    if (reason := _check(tree)) is not None:
        raise UsageError(what, where=str(location), why=reason)
    calls = {id(part.func) for part in ast.walk(tree) if isinstance(part, ast.Call)}
    names = frozenset(
        part.id for part in ast.walk(tree) if isinstance(part, ast.Name) and id(part) not in calls
    )
    return Expression(text, location, names, tree)


def expression(node: Node) -> Expression:
    """A value that is a whole number or an expression in text."""
    if isinstance(node, ScalarNode) and not node.quoted and node.value.lstrip("-").isdigit():
        return parse_expression(str(node.integer()), node.location)
    return parse_expression(node.text(), node.location)
