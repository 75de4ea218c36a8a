"""The sealed run: an archive extracted elsewhere and used as a hostile host would use it.

What counts is that nothing executable comes from outside the bundle. The loader itself is asked (its trace
names every object it loads), and the kernel (/proc/PID/maps while the engine works).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aimabuild.base.errors import AimaError, CheckFailedError
from aimabuild.base.reporter import Reporter
from aimabuild.bundle.contents import HOST_LIBC, LAUNCHER, LOADER
from aimabuild.bundle.unpack import extract

SCHEMA = "aima/sealed-run/v1"
_TIMEOUT = 600
_POLL = 0.005
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ ..x. \S+ \S+ \d+ +(\S.*)$", re.MULTILINE)
_KERNEL = re.compile(r"\[(vdso|vsyscall|uprobes)\]\Z")
_TRACED = re.compile(r"calling init: (/.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Demo:
    """A model that recites: its folder, a prompt, and the sentence that must come."""

    folder: Path
    prompt: str
    sentence: str
    max_tokens: int = 64


@dataclass(frozen=True)
class Run:
    """One command in one environment: exit code, output, and the executable mappings seen on the way."""

    command: tuple[str, ...]
    code: int
    out: str
    err: str
    mapped: frozenset[str]


def hostile(folder: Path) -> dict[str, str]:
    """An environment that would break a program which heeds it. `folder` gets decoys, no libraries."""
    decoys = folder / "decoys"
    decoys.mkdir()
    for name in ("libc.so.6", "libm.so.6", "libamdhip64.so.7", "libstdc++.so.6"):
        (decoys / name).write_text("not a library\n")
    return {
        "LD_LIBRARY_PATH": str(decoys),
        "LD_PRELOAD": str(decoys / "libm.so.6"),
        "LD_BIND_NOW": "1",
        "GLIBC_TUNABLES": "glibc.malloc.nonsense=1",
        "LANG": "xx_YY.UTF-8",
        "LC_ALL": "en_US.UTF-8",
        "LANGUAGE": "xx",
        "TMPDIR": "/nonexistent",
        "HOME": "/nonexistent",
        "GCONV_PATH": str(decoys),
        "ROCM_PATH": "/nonexistent/rocm",
        "HIP_PATH": "/nonexistent/rocm",
        "HSA_OVERRIDE_GFX_VERSION": "9.0.0",
        "HSA_TOOLS_LIB": "libdecoy.so",
        "ROCP_TOOL_LIBRARIES": str(decoys / "libdecoy.so"),
        "HIPBLASLT_TENSILE_LIBPATH": "/nonexistent",
        "PATH": "/nonexistent",
    }


def run(command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> Run:
    """Run to the end, looking at the executable mappings all the while. AimaError on a timeout."""
    mapped: set[str] = set()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.monotonic()
        process = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dict(environment), cwd=cwd
        )
        try:
            while process.poll() is None:
                mapped |= _mappings(process.pid)
                if time.monotonic() - started > _TIMEOUT:
                    raise AimaError(f"no end after {_TIMEOUT} s", where=" ".join(command))
                time.sleep(_POLL)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        return Run(tuple(command), process.returncode, _text(out), _text(err), frozenset(mapped))


def _text(file: Any) -> str:
    file.seek(0)
    data: bytes = file.read()
    return data.decode(errors="replace")


def _mappings(pid: int) -> set[str]:
    try:
        text = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return set()  # it has just ended
    return set(_MAPPING.findall(text))


def foreign(mapped: frozenset[str], root: Path) -> list[str]:
    """Executable mappings that are neither the bundle's nor the kernel's. The kernel writes \\n as \\012."""
    top = str(root.resolve()).replace("\n", "\\012") + "/"
    return sorted(name for name in mapped if not name.startswith(top) and not _KERNEL.match(name))


@dataclass
class _Proof:
    root: Path
    cwd: Path
    runs: list[dict[str, Any]]
    sealed: bool

    def step(
        self,
        environment: str,
        variables: Mapping[str, str],
        arguments: Sequence[str],
        codes: tuple[int, ...] = (0,),
    ) -> Run:
        """Run the launcher; exit code, noise of a loader, and foreign mappings are checked."""
        done = run([str(self.root / LAUNCHER), *arguments], variables, self.cwd)
        shown = f"aima-engine {' '.join(arguments)} ({environment} environment)"
        if done.code not in codes:
            raise CheckFailedError(
                "the sealed bundle does not run",
                where=shown,
                why=f"exit code {done.code}\n{_end(done.err or done.out)}",
            )
        if "ld.so:" in done.err:
            raise CheckFailedError("the loader complains", where=shown, why=_end(done.err))
        outside = foreign(done.mapped, self.root) if self.sealed else []
        if outside:
            raise CheckFailedError(
                "code from outside the bundle was mapped", where=shown, why=", ".join(outside)
            )
        self.runs.append({"environment": environment, "arguments": _public(arguments), "exit": done.code})
        return done


def _end(text: str) -> str:
    return text.strip()[-2000:]


def _public(arguments: Sequence[str]) -> list[str]:
    """Arguments without the folders of this machine."""
    return [Path(word).name if word.startswith("/") else word for word in arguments]


def prove(archive: Path, demo: Demo | None, reporter: Reporter) -> dict[str, Any]:
    """Extract, verify, run; returns the record. CheckFailedError for whatever does not hold."""
    with tempfile.TemporaryDirectory(prefix="aima sealed run ") as name:
        folder = Path(name) / "with spaces"
        folder.mkdir()
        root = extract(archive, folder)
        sealed = not (root / HOST_LIBC).exists()
        proof = _Proof(root, folder, [], sealed)
        host = {} if sealed else dict(os.environ)
        proof.step("empty", {}, ["--verify-bundle"])
        for kind, variables in (
            ("empty", host),
            ("hostile", {**host, **(hostile(folder) if sealed else {})}),
        ):
            with reporter.step(f"sealed run, {kind} environment"):
                _exercise(proof, kind, variables, demo)
        traced = _trace(proof, folder) if sealed else None
        listed = list_all(root) if sealed else None
        return {
            "schema": SCHEMA,
            "path": "with a space",
            "runs": proof.runs,
            "libraries": listed,
            "loaded": sorted(traced) if traced is not None else None,
            "sentence": demo.sentence if demo is not None else None,
        }


def _exercise(proof: _Proof, kind: str, variables: Mapping[str, str], demo: Demo | None) -> None:
    proof.step(kind, variables, ["--version"])
    report = _json(proof.step(kind, variables, ["doctor", "--json"]), "doctor")
    if not str(report.get("schema", "")).startswith("aima/doctor/"):
        raise CheckFailedError("doctor's report has no schema", where=f"doctor ({kind} environment)")
    if demo is None:
        return
    arguments = [
        "generate",
        "--model-dir",
        str(demo.folder),
        "--prompt",
        demo.prompt,
        "--device",
        "cpu",
        "--json",
    ]
    arguments += ["--max-tokens", str(demo.max_tokens)]
    answer = _json(proof.step(kind, variables, arguments), "generate")
    if demo.sentence not in str(answer.get("text")):
        raise CheckFailedError(
            "the demo model did not say its sentence",
            where=f"generate ({kind} environment)",
            why=f"expected {demo.sentence!r}, got {answer.get('text')!r}",
        )


def list_all(root: Path) -> int:
    """Let the bundle's own loader resolve every library and bind every symbol; returns how many there are.

    What only a GPU makes the runtime open (the code object reader, the compiler behind it) is covered so.
    CheckFailedError for a library that cannot be loaded, an undefined symbol, a file from outside.
    """
    libraries = sorted(
        path for path in (root / "lib").rglob("*.so*") if path.is_file() and not path.is_symlink()
    )
    fixed = ["--inhibit-cache", "--glibc-hwcaps-mask", "", "--library-path", str(root / "lib")]
    # What `ldd -r` sets: print the objects and what cannot be bound, instead of starting.
    variables = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "yes", "LD_BIND_NOW": "yes"}
    for library in libraries:
        done = run([str(root / LOADER), *fixed, str(library)], variables, root)
        text = done.out + done.err
        files = re.findall(r"=> (/.*) \(0x[0-9a-f]+\)", text)
        outside = [name for name in files if not Path(name).is_relative_to(root)]
        missing = re.findall(r"undefined symbol: .*|\S+ => not found|.*version .* not found.*", text)
        if done.code or outside or missing:
            raise CheckFailedError(
                "the bundle's loader cannot load a library with what is in the bundle",
                where=str(library.relative_to(root)),
                why="; ".join([*missing, *outside]) or _end(text),
            )
    return len(libraries)


def _json(done: Run, what: str) -> dict[str, Any]:
    try:
        value = json.loads(done.out)
    except ValueError as error:
        raise CheckFailedError(f"{what} printed no JSON", why=f"{error}\n{_end(done.out)}") from None
    if not isinstance(value, dict):
        raise CheckFailedError(f"{what} printed no JSON object", why=_end(done.out))
    return value


def _trace(proof: _Proof, folder: Path) -> set[str]:
    """Objects that the loader says it loaded for `doctor`, which opens the GPU runtime: all inside."""
    prefix = folder / "trace"
    kept = {"AIMA_KEEP_ENV": "LD_DEBUG,LD_DEBUG_OUTPUT", "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(prefix)}
    proof.step("traced", kept, ["doctor", "--json"])
    text = "".join(path.read_text(errors="replace") for path in sorted(folder.glob("trace.*")))
    loaded = set(_TRACED.findall(text))
    top = str(proof.root.resolve()) + "/"
    outside = sorted(name for name in loaded if not name.startswith(top))
    if outside or not loaded:
        raise CheckFailedError(
            "the loader loaded objects from outside the bundle" if outside else "the loader's trace is empty",
            where="doctor",
            why=", ".join(outside) or None,
        )
    return {name.removeprefix(top) for name in loaded}
