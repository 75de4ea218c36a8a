"""Which Debian mirror to fetch from: the one given, or those that the host's own apt sources name.

apt itself is not run. Read are one-line `*.list` and deb822 `*.sources` files, and `mirror+file:` lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

from aimabuild.base.errors import AimaError, UsageError

APT = Path("/etc/apt")
_RELEASES = {
    *("bullseye", "bookworm", "trixie", "forky", "duke", "sid", "experimental"),
    *("oldoldstable", "oldstable", "stable", "testing", "unstable", "rc-buggy"),
}
_SCHEMES = ("http", "https", "file")


def find_mirrors(given: str | None, apt: Path = APT) -> tuple[str, ...]:
    """Base URLs without final slash, in order. UsageError for a bad `given`, AimaError if none is known."""
    if given is not None:
        scheme = urlsplit(given).scheme
        if scheme not in _SCHEMES:
            raise UsageError(
                f"`--mirror {given}` is not a URL that can be fetched from",
                hint="give http://, https:// or file://",
            )
        return (given.rstrip("/"),)
    found = list(dict.fromkeys(_host_mirrors(apt)))
    # Other repositories may carry Debian's suite names; the archive itself nearly always ends in /debian.
    found.sort(key=lambda url: not url.endswith("/debian"))
    if not found:
        raise AimaError(
            "no Debian mirror is known on this host",
            where=str(apt),
            why="its apt sources name no Debian archive",
            hint="give one with `--mirror URL` (the folder that holds `pool/` and `dists/`)",
        )
    return tuple(found)


def file_url(mirror: str, path: str) -> str:
    """The URL of a pool path on a mirror."""
    return f"{mirror}/{quote(path, safe='/+~:')}"


def _host_mirrors(apt: Path) -> Iterator[str]:
    for file in (apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))):
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # absent, a folder, or not ours to read
        entries = (
            _deb822(text) if file.suffix == ".sources" else _one_line(text) if file.suffix == ".list" else ()
        )
        for uri, suites, components in entries:
            if _is_archive(suites, components):
                yield from _expand(uri)


def _is_archive(suites: Sequence[str], components: Sequence[str]) -> bool:
    if "main" not in components:
        return False
    return any(re.sub(r"-(updates|backports|proposed-updates)$", "", suite) in _RELEASES for suite in suites)


def _expand(uri: str) -> Iterator[str]:
    """The URI itself when it can be fetched, or the entries of a `mirror+file:` list."""
    if uri.startswith(("mirror+file:", "mirror:file:")):
        try:
            lines = Path(uri.split("file:", 1)[1]).read_text(encoding="utf-8").splitlines()
        except OSError:
            return
        for line in lines:
            words = line.split()
            if words and urlsplit(words[0]).scheme in _SCHEMES:
                yield words[0].rstrip("/")
    elif urlsplit(uri).scheme in _SCHEMES:
        yield uri.rstrip("/")


def _one_line(text: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """`deb [options] URI SUITE COMPONENT...` lines."""
    for line in text.splitlines():
        words = re.sub(r"\[[^]]*\]", " ", line.split("#", 1)[0]).split()
        if len(words) >= 3 and words[0] == "deb":
            yield words[1], [words[2].rstrip("/")], words[3:]


def _deb822(text: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Stanzas with Types, URIs, Suites, Components; `Enabled: no` switches one off."""
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, str] = {}
        last = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in (" ", "\t"):
                fields[last] = f"{fields.get(last, '')} {line.strip()}"
            elif ":" in line:
                last, value = line.split(":", 1)
                last = last.strip().lower()
                fields[last] = value.strip()
        if fields.get("enabled", "yes").lower() in ("no", "false", "0", "off"):
            continue
        if "deb" in fields.get("types", "").split():
            for uri in fields.get("uris", "").split():
                yield uri, fields.get("suites", "").split(), fields.get("components", "").split()
