"""The command table is complete, and errors leave the process with their exit code."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from aimabuild.cli import COMMANDS, cli


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aimabuild", *args], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_loads_and_has_help(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


def test_help_lists_every_command() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    listed = {
        line.split()[0] for line in result.output.partition("Commands:")[2].splitlines() if line.strip()
    }
    assert set(COMMANDS) <= listed


def test_unknown_command_is_a_usage_error() -> None:
    for words, near in ((["biuld"], "build"), (["toolchain", "snyc"], "sync")):
        result = run(*words)
        assert result.returncode == 2
        assert f"no such command `{words[-1]}`, did you mean `{near}`?" in result.stderr
        assert result.stderr.startswith("Usage: aimabuild ")
    assert "did you mean" not in run("zzzzzz").stderr


def test_an_input_file_that_is_not_there_is_one_error_and_exit_code_2() -> None:
    result = run("plan", "no/such/recipe.yaml")
    assert result.returncode == 2
    assert "no/such/recipe.yaml" in result.stderr
    assert "Traceback" not in result.stderr
