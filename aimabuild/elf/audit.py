"""What must hold for every object of a bundle. Each rule stands for a way in which a bundle has failed.

`audit_object` looks at one file alone; `audit_tree` at a whole bundle: it starts the program, then opens
every library in a process of its own, so that none is found only because another one came first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aimabuild.elf.image import ISA_LEVELS, ElfError, ElfImage
from aimabuild.elf.parse import is_elf
from aimabuild.elf.paths import LinkError, expand, follow, inside, tokens
from aimabuild.elf.resolve import ImageCache, Loaded, Problem, Process, SearchPath

_GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?\Z")
_SHARED_NAME = re.compile(r".+\.so(\.\d+)*\Z")


@dataclass(frozen=True)
class AuditRules:
    """What a bundle declares about itself.

    program, loader: paths inside the root; loader None when the host's is used. library_dirs: the library
    path. static: programs that may be static. isa: the highest level allowed. host: names that the host
    provides, whose glibc versions must not exceed `glibc_floor`.
    """

    program: str = "libexec/aima-engine.real"
    loader: str | None = "libexec/aima-engine"
    library_dirs: tuple[str, ...] = ("lib",)
    static: frozenset[str] = frozenset({"bin/aima-engine"})
    isa: str = "x86-64"
    host: frozenset[str] = frozenset()
    glibc_floor: tuple[int, int] = (2, 28)


@dataclass(frozen=True)
class AuditReport:
    """The problems, and the processes that were followed: the program's first, then one for each library."""

    problems: tuple[Problem, ...]
    processes: tuple[Process, ...]


def audit_object(image: ElfImage, *, isa: str = "x86-64", root: Path | None = None) -> list[Problem]:
    """Problems of one object by itself. With `root`, search paths must also stay inside it."""
    found: list[Problem] = []

    def note(code: str, what: str, why: str | None = None) -> None:
        found.append(Problem(code, image.path, what, why))

    for tag, text in (("DT_RPATH", image.rpath), ("DT_RUNPATH", image.runpath)):
        for entry in text.split(":") if text is not None else ():
            why = _entry_problem(entry, image.path.parent, root)
            if why:
                note("search-path", f"{tag} has the entry `{entry}`", why)
    for name in image.needed:
        if "/" in name or not name:
            note(
                "needed-path",
                f"needs `{name}`",
                "a needed name must be a plain file name: a path skips the search",
            )
    for other in image.loads_others:
        note("loads-others", f"has {other}", "the loader would open objects that no closure names")
    if image.stack != "rw":
        state = (
            "asks for an executable stack" if image.stack == "rwx" else "does not say that its stack is data"
        )
        note("exec-stack", state, "glibc 2.41 and later refuse to open it; hardened kernels too")
    if image.text_relocations:
        note(
            "text-relocations", "has relocations in its code", "hardened kernels refuse to make code writable"
        )
    if image.writable_code:
        note("writable-code", "has a segment that is writable and executable")
    if image.isa_needed is not None and image.isa_needed > ISA_LEVELS.index(isa):
        level = ISA_LEVELS[min(image.isa_needed, len(ISA_LEVELS) - 1)]
        note("isa", f"needs a processor of level {level}", f"the bundle promises {isa}")
    return found


def _entry_problem(entry: str, origin: Path, root: Path | None) -> str | None:
    if not entry:
        return "an empty entry is the current directory of whoever starts the program"
    if entry.startswith("/"):
        return "an absolute entry loads the host's files"
    if set(tokens(entry)) - {"ORIGIN"}:
        return "the value of that token depends on the loader and the machine"
    if not re.match(r"\$(ORIGIN|\{ORIGIN\})(/|\Z)", entry):
        return "a relative entry depends on the current directory"
    target = expand(entry, origin)
    if root is None or target is None:
        return None
    if not inside(Path(target), root) or not Path(target).resolve().is_relative_to(root.resolve()):
        return "it leads out of the bundle"
    return None


def audit_tree(root: Path, rules: AuditRules) -> AuditReport:
    """Every rule over every file below `root` (absolute paths in the problems; the order is stable)."""
    cache = ImageCache()
    problems: list[Problem] = []
    libraries = list(_walk(root, rules, cache, problems))
    search = SearchPath(tuple(root / name for name in rules.library_dirs), confine=root, host=rules.host)
    processes: list[Process] = []
    for library in [None, *libraries]:
        process = Process(search, cache=cache, loader=root / rules.loader if rules.loader else None)
        if process.start(root / rules.program) is None:
            problems += process.problems
            return AuditReport(tuple(dict.fromkeys(problems)), ())
        if library is not None:
            process.dlopen(str(library))
        problems += process.problems
        problems += [problem for loaded in process.objects for problem in _versions(loaded, process, rules)]
        processes.append(process)
    return AuditReport(tuple(_distinct(problems)), tuple(processes))


def _distinct(problems: list[Problem]) -> list[Problem]:
    """Each finding once, with the first chain that led to it."""
    first: dict[tuple[str, Path, str, str | None], Problem] = {}
    for problem in problems:
        first.setdefault((problem.code, problem.where, problem.what, problem.why), problem)
    return list(first.values())


def _walk(root: Path, rules: AuditRules, cache: ImageCache, problems: list[Problem]) -> Iterator[Path]:
    """Yield the libraries; note what is wrong with any file, folder or link."""
    sonames: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            problems += _link_problem(path, root)
        elif path.is_dir():
            if path.name == "glibc-hwcaps":
                problems.append(Problem("hwcaps", path, "the loader takes libraries from here by processor"))
        elif not is_elf(path):
            if _SHARED_NAME.match(path.name):
                problems.append(Problem("not-elf", path, "is named like a library and is not an ELF file"))
        else:
            relative = path.relative_to(root).as_posix()
            try:
                image = cache.get(path.resolve())
            except ElfError as error:
                problems.append(Problem("damaged", path, error.what, error.why))
                continue
            problems += _file_problems(image, relative, rules, root)
            if image.soname is not None:
                sonames[image.soname].append(path)
            if image.loadable and relative not in {rules.program, rules.loader}:
                yield path
    for soname, paths in sorted(sonames.items()):
        if len(paths) > 1:
            others = ", ".join(str(path.relative_to(root)) for path in paths[1:])
            problems.append(
                Problem(
                    "duplicate", paths[0], f"`{soname}` is here and in {others}", "each would be loaded apart"
                )
            )


def _link_problem(path: Path, root: Path) -> list[Problem]:
    target = path.readlink()
    if target.is_absolute():
        return [Problem("link", path, "is an absolute link", f"it leads to {target}")]
    try:
        follow(path, root)
    except LinkError as error:
        return [Problem("link", path, error.what, error.why)]
    return []


def _file_problems(image: ElfImage, relative: str, rules: AuditRules, root: Path) -> list[Problem]:
    if not image.native:
        return [Problem("foreign", image.path, f"is a {image.elf_class}-bit {image.machine} object")]
    if image.kind not in {"DYN", "EXEC"}:
        return [Problem("kind", image.path, f"is of type {image.kind}, which nothing can load")]
    program = image.executable or (image.interpreter is None and not image.dynamic)
    if program and image.interpreter is None:
        if relative in rules.static:
            return []
        return [Problem("static", image.path, "is a static program or has no dynamic section")]
    if program and relative != rules.program:
        return [Problem("program", image.path, "is a second program; the launcher starts one")]
    return audit_object(image, isa=rules.isa, root=root)


def _versions(loaded: Loaded, process: Process, rules: AuditRules) -> Iterator[Problem]:
    """Needed symbol versions that the provider in this process does not define."""
    for need in loaded.image.versions_needed:
        if need.file in rules.host:
            match = _GLIBC.match(need.name)
            if match and (int(match[1]), int(match[2])) > rules.glibc_floor:
                floor = ".".join(map(str, rules.glibc_floor))
                why = f"the bundle promises to run on glibc {floor}"
                yield Problem("version", loaded.path, f"needs {need.name} of the host's `{need.file}`", why)
            continue
        provider = next(
            (o for o in process.objects if need.file in o.names or o.image.soname == need.file), None
        )
        if provider is None:
            if need.file not in loaded.image.needed:  # else reported as unresolved
                what = f"needs {need.name} of `{need.file}`, which it does not ask for"
                yield Problem("version", loaded.path, what, None, loaded.chain())
            continue
        if not provider.image.versions_defined:
            why = f"{provider.path} defines no versions"
        elif need.name in provider.image.versions_defined or need.weak:
            continue
        else:
            why = f"{provider.path} does not define it"
        yield Problem("version", loaded.path, f"needs {need.name} of `{need.file}`", why, loaded.chain())
