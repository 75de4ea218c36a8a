"""The bootstrap makes an environment from a lock, once, and starts over after an interruption."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from toolchain_packs import make_wheel

ROOT = Path(__file__).resolve().parents[2]


class Project:
    """A folder with the script, a lock of tiny wheels, and pip restricted to them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        (root / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts/bootstrap.py", root / "scripts")
        (root / "aimabuild").mkdir()
        (root / "aimabuild/__init__.py").touch()
        (root / "aimabuild/__main__.py").write_text("print('the project runs')\n")
        links = root / "links"
        links.mkdir()
        self.packages = [
            {
                "name": name,
                "version": "1.0",
                "groups": [group],
                "hashes": [make_wheel(links, name, "1.0", {f"{name}.py": b"x = 1\n"}).sha256],
            }
            for name, group in (("tinyrun", "run"), ("tinydev", "dev"))
        ]
        self.environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": links.as_uri()}
        self.write_lock()

    def write_lock(self) -> None:
        (self.root / "aimabuild.lock").write_text(json.dumps({"python": {"packages": self.packages}}))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(self.root / "scripts/bootstrap.py"), *arguments]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, cwd=self.root.parent
        )

    def imports(self, name: str) -> bool:
        command = [str(self.venv / "bin/python"), "-c", f"import {name}"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    @property
    def stamp(self) -> Path:
        return self.venv / "aimabuild-stamp.json"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project in a folder with a space."""
    return Project(tmp_path / "a project")


def test_made_once_then_extended_then_left_alone(project: Project) -> None:
    first = project.run()
    assert first.returncode == 0, first.stderr
    assert project.imports("tinyrun")
    assert not project.imports("tinydev")
    command = subprocess.run(
        [str(project.venv / "bin/aimabuild")], capture_output=True, text=True, check=False
    )
    assert command.stdout == "the project runs\n"

    assert "installing 2 locked" in project.run("--dev").stderr
    assert project.imports("tinydev")

    before = project.stamp.stat().st_mtime_ns
    for arguments in ((), ("--dev",)):
        again = project.run(*arguments)
        assert (again.returncode, again.stderr) == (0, "")
    assert project.stamp.stat().st_mtime_ns == before


@pytest.fixture
def script(project: Project, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module whose commands are played: `calls` has them, `failing` makes pip fail."""
    spec = importlib.util.spec_from_file_location("bootstrap_script", project.root / "scripts/bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.calls, module.failing = [], False

    def play(command: list[str], failure: str) -> None:
        if "venv" in command:
            folder = Path(command[-1])
            version = f"python{sys.version_info.major}.{sys.version_info.minor}"
            (folder / "lib" / version / "site-packages").mkdir(parents=True)
            (folder / "bin").mkdir()
            (folder / "bin/python").touch()
            module.calls.append("venv")
        else:
            module.calls.append([line.split()[0] for line in Path(command[-1]).read_text().splitlines()])
            if module.failing:
                raise module.BootstrapError(failure)

    monkeypatch.setattr(module, "run", play)
    return module


def prepare(script: ModuleType, project: Project, *groups: str) -> list[object]:
    """Run it; returns the commands of this run."""
    script.calls.clear()
    script.prepare(project.venv, project.root / "aimabuild.lock", set(groups))
    return list(script.calls)


def test_what_runs_when(project: Project, script: ModuleType) -> None:
    assert prepare(script, project, "run") == ["venv", ["tinyrun==1.0"]]
    assert prepare(script, project, "run") == []
    assert prepare(script, project, "run", "dev") == [["tinyrun==1.0", "tinydev==1.0"]]
    assert prepare(script, project, "run") == []
    project.packages[0]["version"] = "2.0"
    project.write_lock()
    assert prepare(script, project, "run") == ["venv", ["tinyrun==2.0"]]
    (project.venv / "bin/python").unlink()
    assert prepare(script, project, "run") == ["venv", ["tinyrun==2.0"]]


def test_a_failed_run_is_started_over(project: Project, script: ModuleType) -> None:
    script.failing = True
    with pytest.raises(script.BootstrapError):
        prepare(script, project, "run")
    assert not project.stamp.exists()
    (project.venv / "half").write_text("left by a broken run")
    script.failing = False
    assert prepare(script, project, "run") == ["venv", ["tinyrun==1.0"]]
    assert not (project.venv / "half").exists()
    script.failing = True
    with pytest.raises(script.BootstrapError):
        prepare(script, project, "run", "dev")
    assert not project.stamp.exists()


def test_a_wrong_hash_stops_pip(
    project: Project, script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    project.packages[0]["hashes"] = ["0" * 64]
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    venv = project.root / "fake"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(sys.executable)
    monkeypatch.setenv("PIP_DRY_RUN", "1")
    with pytest.raises(script.BootstrapError, match="could not install the locked packages") as caught:
        script.install(venv, project.packages[:1])
    assert "0" * 64 in str(caught.value)


def test_a_foreign_environment_is_not_cleared(project: Project) -> None:
    project.venv.mkdir()
    (project.venv / "mine").write_text("precious")
    done = project.run()
    assert done.returncode == 1
    assert "was not made by this script" in done.stderr
    assert (project.venv / "mine").read_text() == "precious"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"python": 1}'])
def test_an_unreadable_lock(project: Project, text: str) -> None:
    (project.root / "aimabuild.lock").write_text(text)
    done = project.run()
    assert done.returncode == 1
    assert "the lock file cannot be read" in done.stderr
    assert not project.venv.exists()
