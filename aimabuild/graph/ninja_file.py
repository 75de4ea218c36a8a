"""The text of a build.ninja: rules, edges and pools, with ninja's escaping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Rule:
    """How one kind of edge runs. `command` may use `$in`, `$out` and the edge's variables.

    depfile: where the command writes the headers that it read, in Makefile syntax; ninja takes it in.
    restat: the command leaves outputs alone that would not change, and what follows is then not run.
    """

    name: str
    command: str
    description: str
    depfile: str | None = None
    restat: bool = False


@dataclass(frozen=True)
class Edge:
    """One command: `outputs` from `inputs`. `implicit` inputs matter but are not in `$in`."""

    rule: str
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    implicit: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def escape_path(path: str) -> str:
    """A path in a build line."""
    return path.replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def escape_text(text: str) -> str:
    """Literal text in the value of a variable."""
    return text.replace("$", "$$")


def quote(word: str | Path) -> str:
    """One literal word of a command, for the shell and for ninja."""
    text = str(word)
    safe = text and all(char.isalnum() or char in "@%+=:,./_-" for char in text)
    return escape_text(text if safe else "'" + text.replace("'", "'\\''") + "'")


def command_line(words: Iterable[str | Path]) -> str:
    """Literal words as a command."""
    return " ".join(quote(word) for word in words)


def _rule_text(rule: Rule) -> list[str]:
    lines = [f"rule {rule.name}", f"  command = {rule.command}", f"  description = {rule.description}"]
    if rule.depfile is not None:
        lines += [f"  depfile = {rule.depfile}", "  deps = gcc"]
    if rule.restat:
        lines.append("  restat = 1")
    return lines


def _edge_text(edge: Edge) -> list[str]:
    outputs = " ".join(map(escape_path, edge.outputs))
    inputs = "".join(f" {escape_path(path)}" for path in edge.inputs)
    implicit = "".join(f" {escape_path(path)}" for path in edge.implicit)
    line = f"build {outputs}: {edge.rule}{inputs}" + (f" |{implicit}" if implicit else "")
    return [line, *(f"  {name} = {value}" for name, value in edge.variables.items())]


def ninja_text(builddir: str, rules: Sequence[Rule], edges: Sequence[Edge], defaults: Sequence[str]) -> str:
    """A whole build.ninja. Raises ValueError for an output that two edges make."""
    seen: set[str] = set()
    for edge in edges:
        for output in edge.outputs:
            if output in seen:
                raise ValueError(f"two edges make {output}")
            seen.add(output)
    lines = [
        "# Written by aimabuild at each build.",
        "ninja_required_version = 1.11",
        f"builddir = {builddir}",
    ]
    for rule in rules:
        lines += ["", *_rule_text(rule)]
    for edge in edges:
        lines += ["", *_edge_text(edge)]
    lines += ["", "default " + " ".join(map(escape_path, defaults)), ""]
    return "\n".join(lines)
