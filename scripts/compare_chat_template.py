"""Compare the engine's chat prompts with the model's own template, byte for byte, on generated conversations.

    python scripts/compare_chat_template.py MODEL/chat_template.jinja --engine build/gfx1151/bin/aima-engine

Python's jinja2 renders the template as transformers sets it up, the engine the same requests by
`chat-template-probe`. Both must print the same bytes, or both refuse. Two things the engine refuses on
purpose where Jinja would print Python notation: a text part whose text is an object or a list, and tools
given as a string; they are counted apart. Exit code 3 when anything differs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from chat_generator import ChatGenerator
from jinja2.sandbox import ImmutableSandboxedEnvironment

from aimabuild.base.errors import AimaError
from aimabuild.base.reporter import Reporter

BATCH = 1000
SHOWN = 5
FIELDS = (
    "messages",
    "tools",
    "enable_thinking",
    "preserve_thinking",
    "add_vision_id",
    "add_generation_prompt",
)


@dataclass(frozen=True)
class Outcome:
    """What one renderer made of a request: a text, or the reason why there is none."""

    text: str | None
    error: str = ""


class Template:
    """The model's template under jinja2, set up as transformers' `_compile_jinja_template` does."""

    def __init__(self, path: Path) -> None:
        env = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )

        def raise_exception(message: str) -> NoReturn:
            raise jinja2.TemplateError(message)

        def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
            return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

        env.filters["tojson"] = tojson
        env.globals["raise_exception"] = raise_exception
        self._template = env.from_string(path.read_text(encoding="utf-8"))

    def render(self, request: Any) -> Outcome:
        """The prompt of a parsed request; a generation prompt is added unless the request says otherwise."""
        if not isinstance(request, dict):
            return Outcome(None, "request is not an object")
        variables = {key: request[key] for key in FIELDS if key in request}
        try:
            return Outcome(self._template.render({"tools": None, "add_generation_prompt": True} | variables))
        except (jinja2.TemplateError, TypeError) as error:
            return Outcome(None, f"{type(error).__name__}: {error}")


def native(engine: Path, requests: list[str], *, options: tuple[str, ...] = ()) -> list[Outcome]:
    """The engine's outcome for each request, by one process."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.writelines(request.replace("\n", " ") + "\n" for request in requests)
        file.flush()
        command: list[str | Path] = [engine, "chat-template-probe", "--requests-jsonl", file.name, *options]
        result = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    if result.returncode != 0:
        raise AimaError("the engine failed", where=str(engine), why=result.stderr.strip())
    lines = [json.loads(line) for line in result.stdout.split("\n") if line]
    if len(lines) != len(requests):
        raise AimaError(f"{len(requests)} requests got {len(lines)} answers", where=str(engine))
    return [
        Outcome(line["text"]) if "text" in line else Outcome(None, "{where}: {what}".format(**line["error"]))
        for line in lines
    ]


def refused_on_purpose(outcome: Outcome) -> bool:
    """True for the engine's own refusals."""
    reasons = ("text of a content part is not a string", "tools are not a list")
    return outcome.text is None and outcome.error.endswith(reasons)


def compare(
    template: Template, engine: Path, generator: ChatGenerator, count: int, reporter: Reporter
) -> Counter[str]:
    """Counts by outcome; shows the first requests that differ."""
    counts: Counter[str] = Counter()
    with reporter.task("conversations", count) as task:
        for start in range(0, count, BATCH):
            requests = [generator.request() for _ in range(min(BATCH, count - start))]
            for request, ours in zip(requests, native(engine, requests), strict=True):
                theirs = template.render(json.loads(request))
                counts["bytes"] += len((theirs.text or "").encode())
                if ours.text == theirs.text:
                    counts["equal" if ours.text is not None else "both_refuse"] += 1
                elif refused_on_purpose(ours):
                    counts["refused_on_purpose"] += 1
                else:
                    counts["different"] += 1
                    if counts["different"] <= SHOWN:
                        reporter.line(f"request: {request}\n  engine: {ours}\n  jinja2: {theirs}")
            task.advance(len(requests))
    return counts


def main() -> int:
    """Compare and report; 0 when everything agrees."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("template", type=Path, help="the model's chat_template.jinja")
    parser.add_argument("--engine", type=Path, required=True, help="the aima-engine to ask")
    parser.add_argument("--count", type=int, default=20_000, help="conversations to generate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    args = parser.parse_args()
    reporter = Reporter()
    try:
        generator = ChatGenerator(args.seed)
        counts = compare(Template(args.template), args.engine, generator, args.count, reporter)
    except AimaError as error:
        reporter.error(error)
        return error.exit_code
    names = ("equal", "both_refuse", "refused_on_purpose", "different", "bytes")
    figures = {name: counts[name] for name in names}
    if args.json:
        reporter.json({"schema": "aimabuild/chat-comparison/v1", "conversations": args.count, **figures})
    else:
        reporter.table(["conversations", *names], [[str(args.count), *(str(v) for v in figures.values())]])
    return 3 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
