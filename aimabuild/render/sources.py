"""Templates -> kernel sources, by Jinja2. Deterministic; runs nothing and reads nothing."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import jinja2

from aimabuild.base.errors import UsageError
from aimabuild.plan import Plan, PlannedObject
from aimabuild.render.spec import source_name, spec_bytes, specs

_ENVIRONMENT = jinja2.Environment(
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # noqa: S701 - the output is source text, not HTML
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.globals.clear()  # no cycler or lipsum: a template sees what the plan gives it, and may count
_ENVIRONMENT.globals["range"] = range


def context(item: PlannedObject) -> dict[str, object]:
    """What a template may use: its constants, tile, compiled-in dimensions, and the names around it."""
    return {
        **item.dims,
        **item.tile,
        **item.constants,
        "id": item.id,
        "symbol": item.symbol,
        "fill_symbol": item.fill_symbol,
        "target": item.target,
        "dtype": item.dtype,
        "out": item.out,
    }


def _header(item: PlannedObject, mark: str, template: str) -> str:
    tile = " ".join(f"{name}={value}" for name, value in item.tile.items())
    origin = f"{mark} templates/{template} for {item.asked_by} on {item.target}: {tile}"
    return f"{mark} {item.id}\n{origin}\n\n"


@functools.cache
def _compiled(text: str) -> jinja2.Template:
    return _ENVIRONMENT.from_string(text)


def _render(text: str, name: str, values: Mapping[str, object]) -> str:
    file = f"templates/{name}"
    try:
        return _compiled(text).render(values)
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(
            "the template cannot be parsed", where=f"{file}:{error.lineno}", why=error.message
        ) from None
    except jinja2.UndefinedError as error:
        raise UsageError(
            f"the template uses a name that it does not declare: {error.message}",
            where=f"{file}:{_line_of(error)}",
            hint="dimensions reach a template through its sidecar's `constants`",
        ) from None
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError) as error:
        raise UsageError(
            "the template cannot be rendered", where=f"{file}:{_line_of(error)}", why=str(error)
        ) from None


def _line_of(error: BaseException) -> int:
    """The template's line, which Jinja2 puts into the traceback as a frame of file `<template>`."""
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def render_object(item: PlannedObject) -> dict[str, str]:
    """File name -> text of one object's sources."""
    template = item.template
    values = context(item)
    mark = "#" if template.compiler == "triton" else "//"
    name = template.source_name
    files = {source_name(item): _header(item, mark, name) + _render(template.source, name, values)}
    if template.host is not None and template.host_name is not None:
        host = _render(template.host, template.host_name, values)
        files["host.cpp"] = _header(item, "//", template.host_name) + host
    return files


def render_plan(plan: Plan) -> dict[str, bytes]:
    """Relative path (`<id>/<file>`) -> content of every source and spec of a plan."""
    files: dict[str, bytes] = {}
    for item in plan.objects:
        for name, text in render_object(item).items():
            files[f"{item.id}/{name}"] = text.encode()
    for key, spec in specs(plan).items():
        files[f"{key}/spec.json"] = spec_bytes(spec)
    return files
