"""Resolve Debian packages with the host's apt-get in a private state: no root, the host's state untouched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from aimabuild.base.errors import AimaError
from aimabuild.schema.lock import DebianPackage
from aimabuild.toolchain.licences import debian_licence
from aimabuild.toolchain.parts import PARTS, SUITES, DebianRequest, PartSpec

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class Apt:
    """apt-get and apt-cache on lists of their own below `folder`, for amd64, from one mirror."""

    def __init__(
        self, folder: Path, mirror: str, suites: Sequence[str] = SUITES, *, keyring: Path | None = KEYRING
    ) -> None:
        if shutil.which("apt-get") is None:
            why = "apt-get resolves the versions, and this host has none"
            raise AimaError(
                "Debian packages cannot be locked here", why=why, hint="run it on a Debian or Ubuntu host"
            )
        if keyring is not None and not keyring.is_file():
            why = "the archive's signature cannot be checked without it"
            raise AimaError(
                "the Debian keyring is missing",
                where=str(keyring),
                why=why,
                hint="install `debian-archive-keyring`",
            )
        self._folder = folder
        self._prefer = suites[-1]
        for name in ("state/lists/partial", "cache/archives/partial", "etc/none.d"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "state/status").write_text("")
        option = f"signed-by={keyring}" if keyring else "trusted=yes"
        lines = [f"deb [{option} arch=amd64] {mirror} {suite} main\n" for suite in suites]
        (folder / "etc/sources.list").write_text("".join(lines))
        (folder / "apt.conf").write_text(self._configuration())

    def _configuration(self) -> str:
        folder = self._folder
        lines = [
            f'Dir::State "{folder}/state";',
            f'Dir::State::status "{folder}/state/status";',
            f'Dir::Cache "{folder}/cache";',
            f'Dir::Etc "{folder}/etc";',
            'Dir::Etc::sourcelist "sources.list";',
            'Dir::Etc::sourceparts "none.d";',
            'Dir::Etc::parts "none.d";',
            'Dir::Etc::main "none";',
            'Dir::Etc::preferences "none";',
            'Dir::Etc::preferencesparts "none.d";',
            f'Dir::Log "{folder}/state";',
            'APT::Architecture "amd64";',
            'APT::Architectures { "amd64"; };',
            'APT::Install-Recommends "false";',
            'Acquire::Languages "none";',
        ]
        # How the host reaches its mirror (proxy, certificates) and whether that mirror stands still in time,
        # its release files out of date; everything else of its settings stays out, hooks above all.
        dumped = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
        taken = r'^Acquire::(?:https?::\S*|Check-Valid-Until|Check-Date) ".+";$'
        lines += re.findall(taken, dumped, re.MULTILINE)
        return "\n".join(lines) + "\n"

    def update(self) -> None:
        """Fetch the package lists. AimaError with apt's own words."""
        self._run("apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any")

    def closure(self, roots: Sequence[str]) -> list[str]:
        """`NAME=VERSION` of the roots and all that they depend on, the newer suite preferred."""
        output = self._run("apt-get", "install", "--print-uris", "-qq", "-t", self._prefer, *roots)
        names = re.findall(r"^'[^']+' ([^_\s]+)_([^_\s]+)_\w+\.deb ", output, re.MULTILINE)
        return [f"{name}={version.replace('%3a', ':')}" for name, version in names]

    def show(self, name: str) -> dict[str, str]:
        """The fields of `NAME=VERSION`, or of the version that would be installed for a bare name."""
        if "=" not in name:
            policy = self._run("apt-cache", "policy", "-t", self._prefer, name)
            found = re.search(r"Candidate: (\S+)", policy)
            if not found or found.group(1) == "(none)":
                raise AimaError(f"the mirror's suites have no package `{name}`", hint="see SUITES and PARTS")
            name = f"{name}={found.group(1)}"
        stanza = self._run("apt-cache", "show", name).split("\n\n")[0]
        return dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", stanza, re.MULTILINE))

    def _run(self, *command: str) -> str:
        environment = {**os.environ, "APT_CONFIG": str(self._folder / "apt.conf"), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            why = (done.stderr or done.stdout).strip()[-1500:]
            raise AimaError("apt cannot resolve the Debian packages", where=" ".join(command), why=why)
        return done.stdout


def resolve_debian(apt: Apt, specs: Sequence[PartSpec] = PARTS) -> tuple[list[DebianPackage], dict[str, str]]:
    """Every Debian package of the table with its groups, and the `Depends` field of each by name."""
    groups: dict[str, set[str]] = {}
    for spec in specs:
        if isinstance(spec.request, DebianRequest):
            for name in _names(apt, spec.request):
                groups.setdefault(name, set()).add(spec.name)
    packages, depends = [], {}
    for name, wanted in sorted(groups.items()):
        fields = apt.show(name)
        package = _package(fields, wanted)
        packages.append(package)
        depends[package.name] = fields.get("Depends", "")
    return packages, depends


def _names(apt: Apt, request: DebianRequest) -> list[str]:
    if not request.closure:
        fields = [apt.show(root) for root in request.roots]
        return [f"{row['Package']}={row['Version']}" for row in fields]
    names = apt.closure(request.roots)
    return [
        name
        for name in names
        if not any(fnmatchcase(name.split("=")[0], pattern) for pattern in request.drop)
    ]


def _package(fields: Mapping[str, str], groups: set[str]) -> DebianPackage:
    return DebianPackage(
        name=fields["Package"],
        version=fields["Version"],
        arch=fields["Architecture"],
        path=fields["Filename"],
        size=int(fields["Size"]),
        sha256=fields["SHA256"],
        licence=debian_licence(fields["Package"]),
        groups=tuple(sorted(groups)),
    )
