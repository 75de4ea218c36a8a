"""Which file answers each name: glibc's rules, object by object, as in one process.

A name is looked for in this order (glibc 2.34 and later, elf/dl-load.c):
1. a file already loaded under that name, or whose DT_SONAME is that name;
2. if the asking object has no DT_RUNPATH: DT_RPATH of the asking object, of the object that caused that one
   to be loaded, and so on up to the program (an object with DT_RUNPATH has no DT_RPATH);
3. the library path;
4. DT_RUNPATH of the asking object alone - it is not inherited;
5. the default directories, none in a sealed bundle.
In a directory the file of that very name counts, whatever its SONAME. Another class or machine is passed
over; anything else that cannot be loaded ends the search with an error. Files are the same object when device
and inode agree. `glibc-hwcaps` folders are not searched: the launcher masks them.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from aimabuild.elf.image import ElfError, ElfImage
from aimabuild.elf.parse import parse
from aimabuild.elf.paths import DanglingError, LinkError, expand, follow, inside

MAX_OBJECTS = 20_000


@dataclass(frozen=True)
class SearchPath:
    """Where libraries are looked for.

    confine: nothing outside that folder is ever taken. host: names that are left to the host's loader.
    """

    library_path: tuple[Path, ...] = ()
    default_dirs: tuple[Path, ...] = ()
    confine: Path | None = None
    host: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `chain` leads from the program to the object concerned, as paths."""

    code: str
    where: Path
    what: str
    why: str | None = None
    chain: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" + (f" ({self.why})" if self.why else "")
        return text + (f"\n    loaded by {' -> '.join(self.chain)}" if len(self.chain) > 1 else "")


@dataclass(eq=False)
class Loaded:
    """One object in the process. `path` is how it was opened, `image.path` is the file after all links.

    rpath_dirs: DT_RPATH of this object and of those that led to it, which serve the objects it asks for.
    """

    path: Path
    image: ElfImage
    loader: Loaded | None
    name: str
    links: tuple[Path, ...] = ()
    rpath_dirs: tuple[Path, ...] = ()
    names: set[str] = field(default_factory=set)
    needs: list[tuple[str, Loaded | None]] = field(default_factory=list)

    @property
    def origin(self) -> Path:
        """What $ORIGIN stands for."""
        return self.path.parent

    def chain(self) -> tuple[str, ...]:
        """From the program to this object."""
        steps: list[str] = []
        at: Loaded | None = self
        while at is not None:
            steps.append(at.path.name)
            at = at.loader
        return tuple(reversed(steps))


class ImageCache:
    """Parsed files by their real path, so that a tree is read once however many processes are followed."""

    def __init__(self) -> None:
        self._images: dict[Path, ElfImage | ElfError] = {}

    def get(self, real: Path) -> ElfImage:
        """The image of `real`; raises the same `ElfError` each time for a damaged one."""
        if real not in self._images:
            try:
                self._images[real] = parse(real)
            except ElfError as error:
                self._images[real] = error
        found = self._images[real]
        if isinstance(found, ElfError):
            raise found
        return found


class Process:
    """A simulated process: a program, what it needs, and what it opens later."""

    def __init__(
        self, search: SearchPath, *, cache: ImageCache | None = None, loader: Path | None = None
    ) -> None:
        """`loader` is the dynamic loader that is in every process and answers to its own SONAME."""
        self.search = search
        self.objects: list[Loaded] = []
        self.problems: list[Problem] = []
        self._cache = cache or ImageCache()
        self._by_name: dict[str, Loaded] = {}
        self._by_file: dict[tuple[int, int], Loaded] = {}
        self._program: Loaded | None = None
        if loader is not None:
            image = self._cache.get(loader)
            self._add(loader, image, None, image.soname or loader.name, ())

    def start(self, program: Path) -> Loaded | None:
        """Load the program itself; None when it is no program, with a problem noted."""
        opened = self._open(program, None, str(program), program=True)
        if opened is not None:
            self._program = opened
            self._load_needs(opened)
        return opened

    def dlopen(self, name: str, caller: Loaded | None = None) -> Loaded | None:
        """Load `name` (a bare name, or a path) and its needs as a call of dlopen from `caller` would."""
        caller = caller or self._program
        if "/" in name:
            found = self._open(Path(name), caller, name)
        else:
            found = self._find(name, caller)
            if found is None and not self._reported(name, caller):
                what = f"`{name}` is opened by name and is nowhere on the search path"
                self._note("unresolved", caller, what)
        if found is not None:
            self._load_needs(found)
        return found

    def _note(self, code: str, at: Loaded | None, what: str, why: str | None = None) -> None:
        where = at.path if at else Path("program")
        self.problems.append(Problem(code, where, what, why, at.chain() if at else ()))

    def _reported(self, name: str, at: Loaded | None) -> bool:
        where = at.path if at else Path("program")
        return any(p.where == where and f"`{name}`" in p.what for p in self.problems)

    def _load_needs(self, first: Loaded) -> None:
        """Breadth first, each object once; a cycle ends because its objects are loaded already."""
        queue = deque([first])
        seen = {id(first)}
        while queue:
            requester = queue.popleft()
            if requester.needs:
                continue
            for name in requester.image.needed:
                provider = None if name in self.search.host else self._find(name, requester)
                requester.needs.append((name, provider))
                if provider is None:
                    if name not in self.search.host and not self._reported(name, requester):
                        what = f"needs `{name}`, which is nowhere on its search path"
                        self._note("unresolved", requester, what)
                elif id(provider) not in seen:
                    seen.add(id(provider))
                    queue.append(provider)

    def _find(self, name: str, requester: Loaded | None) -> Loaded | None:
        known = self._by_name.get(name)
        if known is not None:
            known.names.add(name)
            return known
        if "/" in name:
            return self._open(Path(name), requester, name)
        passed: tuple[str, str] | None = None
        for directory in self._directories(requester):
            candidate = directory / name
            if not os.path.lexists(candidate):
                continue
            try:
                image, links = self._candidate(candidate, requester, name)
            except DanglingError as error:
                passed = ("link", f"{candidate}: {error.what}")
                continue
            if image is None:
                return None
            if image.native:
                return self._accept(candidate, image, requester, name, links)
            passed = ("foreign", f"{candidate} is {image.elf_class}-bit {image.machine}")
        if passed is not None:
            self._note(passed[0], requester, f"`{name}` cannot be opened", passed[1])
        return None

    def _candidate(
        self, candidate: Path, requester: Loaded | None, name: str
    ) -> tuple[ElfImage | None, tuple[Path, ...]]:
        """The file behind `candidate`, or None with a problem noted where the loader would stop."""
        try:
            real, links = follow(candidate, self.search.confine)
            return self._cache.get(real), links
        except DanglingError:
            raise
        except LinkError as error:
            self._note("link", requester, f"`{name}` cannot be opened", f"{error.what} ({error.why})")
        except ElfError as error:
            self._note("damaged", requester, f"`{name}` cannot be loaded", str(error))
        return None, ()

    def _open(
        self, path: Path, requester: Loaded | None, name: str, *, program: bool = False
    ) -> Loaded | None:
        if self.search.confine is not None and not inside(path, self.search.confine):
            self._note("outside", requester, f"`{name}` lies outside {self.search.confine}")
            return None
        try:
            image, links = self._candidate(path, requester, name)
        except DanglingError as error:
            self._note("unresolved", requester, f"`{name}` cannot be opened", error.why)
            return None
        if image is None:
            return None
        if not image.native:
            self._note("foreign", requester, f"`{name}` is {image.elf_class}-bit {image.machine}")
            return None
        return self._accept(path, image, requester, name, links, program=program)

    def _accept(
        self,
        path: Path,
        image: ElfImage,
        requester: Loaded | None,
        name: str,
        links: tuple[Path, ...],
        *,
        program: bool = False,
    ) -> Loaded | None:
        if not (image.kind in {"DYN", "EXEC"} if program else image.loadable):
            self._note("kind", requester, f"`{name}` is not a shared object", f"{path} is {_kind(image)}")
            return None
        status = image.path.stat()
        known = self._by_file.get((status.st_dev, status.st_ino))
        if known is not None:
            known.names.add(name)
            self._by_name.setdefault(name, known)
            return known
        if len(self.objects) >= MAX_OBJECTS:
            raise ElfError(f"more than {MAX_OBJECTS} objects in one process", where=str(path))
        return self._add(path, image, requester, name, links)

    def _add(
        self, path: Path, image: ElfImage, requester: Loaded | None, name: str, links: tuple[Path, ...]
    ) -> Loaded:
        own = _path_list(image.rpath if image.runpath is None else None, path.parent)
        inherited = requester.rpath_dirs if requester else ()
        rpath_dirs = tuple(dict.fromkeys([*own, *inherited])) if own else inherited
        loaded = Loaded(path, image, requester, name, links, rpath_dirs, {name})
        for known_as in (name, image.soname):
            if known_as is not None:
                self._by_name.setdefault(known_as, loaded)
        status = image.path.stat()
        self._by_file[status.st_dev, status.st_ino] = loaded
        self.objects.append(loaded)
        return loaded

    def _directories(self, requester: Loaded | None) -> list[Path]:
        directories: list[Path] = []
        if requester is not None and requester.image.runpath is None:
            directories += requester.rpath_dirs
            if self._program is not None:
                directories += self._program.rpath_dirs
        directories += self.search.library_path
        if requester is not None:
            directories += _path_list(requester.image.runpath, requester.origin)
        return list(dict.fromkeys([*directories, *self.search.default_dirs]))


def _path_list(text: str | None, origin: Path) -> list[Path]:
    """The directories of an RPATH or RUNPATH; entries whose tokens are unknown here are left to the audit."""
    if text is None:
        return []
    expanded = (expand(entry, origin) for entry in text.split(":"))
    return [Path(entry) for entry in expanded if entry is not None]


def _kind(image: ElfImage) -> str:
    if image.kind == "DYN" and image.executable:
        return "a program"
    if image.kind == "DYN":
        return "an object without a dynamic section"
    return {"REL": "an object file", "CORE": "a core dump", "EXEC": "a program"}.get(image.kind, image.kind)
