"""The command line: thin commands that parse, call the library and print."""

from __future__ import annotations

import difflib
import importlib
import sys

import click

from aimabuild import __version__
from aimabuild.base.errors import AimaError
from aimabuild.base.reporter import Reporter

# Commands load when asked for, so that `aimabuild --help` and a warm build start fast.
COMMANDS: dict[str, tuple[str, str]] = {
    "toolchain": ("toolchain", "List, fetch or lock compilers, headers and libraries."),
    "plan": ("build", "Show what a recipe builds, before anything is compiled."),
    "render": ("build", "Write the kernel sources that a recipe's templates render to."),
    "build": ("build", "Compile kernels and engine."),
    "kernels": ("kernels", "Resource report of the compiled kernels."),
    "disasm": ("kernels", "Disassemble one kernel."),
    "closure": ("package", "Show which libraries an ELF file loads, and from where."),
    "explain": ("package", "Say why a file is in the bundle."),
    "package": ("package", "Build, bundle and seal one archive."),
    "verify": ("package", "Check an archive or an extracted bundle against its manifest."),
    "diff": ("package", "Compare two bundles: files, kernels, resources."),
    "demo-model": ("demo", "Write a small checkpoint that recites one sentence."),
}


class SuggestingGroup(click.Group):
    """A group that names the command nearest to a misspelt one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1, cutoff=0.5)
            ctx.fail(f"no such command `{name}`" + (f", did you mean `{near[0]}`?" if near else ""))
        return super().resolve_command(ctx, args)


class LazyGroup(SuggestingGroup):
    """A group whose commands live in `aimabuild.cli.<module>`, as functions named after the command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"aimabuild.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)  # noqa: S101 - the table above is ours
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="aimabuild")
@click.option("-q", "--quiet", is_flag=True, help="Print results, warnings and errors only.")
@click.pass_context
def cli(ctx: click.Context, quiet: bool) -> None:
    """Render, compile, link and package the AIMA engine for AMD gfx1151."""
    ctx.obj = Reporter(quiet=quiet)


def main() -> None:
    """Entry point: prints an `AimaError` once and exits with its code."""
    reporter = Reporter()
    try:
        cli.main(prog_name="aimabuild", standalone_mode=False)
    except AimaError as error:
        reporter.error(error)
        sys.exit(error.exit_code)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        reporter.err.print("interrupted")
        sys.exit(130)
