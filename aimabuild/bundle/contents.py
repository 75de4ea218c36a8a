"""Which files a bundle holds, and why each: computed from what the engine loads, never from a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aimabuild.base.errors import CheckFailedError
from aimabuild.bundle.entries import FILE, FOLDER, LINK
from aimabuild.bundle.inputs import Inputs, Owner, Runtime
from aimabuild.bundle.ledger import LEDGER, Verdict
from aimabuild.elf.audit import AuditRules
from aimabuild.elf.resolve import Loaded, Problem, Process, SearchPath

ENGINE = "libexec/aima-engine.real"
LOADER = "libexec/aima-engine"
LAUNCHER = "bin/aima-engine"
HOST_LIBC = "libexec/host-libc"
# What the host's C library provides to a bundle that has none (`libc: host`).
HOST_NAMES = frozenset(
    {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
)
# Opened by glibc for thread cancellation and backtraces, without any NEEDED entry.
ALWAYS = ("libgcc_s.so.1",)


@dataclass(frozen=True)
class Item:
    """One file, folder or link of the bundle.

    A file has a `source` or `data`. why: the chain from the engine. contains: owners of code inside the file.
    """

    path: str
    kind: str
    owner: Owner
    why: tuple[str, ...]
    mode: int = 0o644
    source: Path | None = None
    data: bytes | None = None
    target: str | None = None
    contains: tuple[str, ...] = ()


@dataclass
class Contents:
    """Items by path; two different items at one path are an error."""

    items: dict[str, Item] = field(default_factory=dict)

    def add(self, item: Item) -> None:
        """Add an item, with the folders above it."""
        old = self.items.get(item.path)
        if old is not None:
            same = (old.kind, old.source, old.data, old.target) == (
                item.kind,
                item.source,
                item.data,
                item.target,
            )
            if not same:
                raise CheckFailedError(
                    "two files have the same place in the bundle",
                    where=item.path,
                    why=f"{old.source or old.target} and {item.source or item.target}",
                )
            return
        parent = item.path.rpartition("/")[0]
        if parent and parent not in self.items:
            self.add(Item(parent, FOLDER, item.owner, ("holds files",), 0o755))
        self.items[item.path] = item

    def libraries(self) -> frozenset[str]:
        """Every name that a search of lib/ would find."""
        return frozenset(
            p.removeprefix("lib/") for p, i in self.items.items() if p.startswith("lib/") and i.kind != FOLDER
        )


def rules_of(inputs: Inputs) -> AuditRules:
    """What the audit holds a bundle of these inputs to."""
    if inputs.bundle.libc == "host":
        return AuditRules(loader=None, isa=inputs.bundle.isa, host=HOST_NAMES)
    return AuditRules(isa=inputs.bundle.isa)


def collect(inputs: Inputs) -> Contents:
    """Every item but the loader's copy and the files written about the bundle itself.

    Raises `CheckFailedError` that lists everything the engine or a library asks for and that is nowhere.
    """
    contents = Contents()
    ours = inputs.ours
    engine = tuple(owner.name for owner in inputs.contains_engine)
    launcher = tuple(owner.name for owner in inputs.contains_launcher)
    contents.add(
        Item(LAUNCHER, FILE, ours, ("starts the engine",), 0o755, inputs.launcher, contains=launcher)
    )
    contents.add(Item(ENGINE, FILE, ours, ("is the engine",), 0o755, inputs.engine, contains=engine))
    if inputs.runtime is None:
        note = b"This bundle runs on the host's loader and C library.\n"
        contents.add(Item(HOST_LIBC, FILE, ours, ("tells the launcher to use the host's loader",), data=note))
    _add_libraries(contents, inputs)
    if inputs.runtime is not None:
        _add_data(contents, inputs, inputs.runtime)
        why = ("the launcher's GCONV_PATH: empty, so that no converter comes from there",)
        contents.add(Item("share/aima/gconv", FOLDER, ours, why, 0o755))
    contents.add(
        Item("share/aima/build-info.json", FILE, ours, ("says what was built",), source=inputs.build_info)
    )
    if inputs.kernels_json is not None:
        why = ("lists the kernels with their resources",)
        contents.add(Item("share/aima/kernels.json", FILE, ours, why, source=inputs.kernels_json))
    return contents


def _add_libraries(contents: Contents, inputs: Inputs) -> None:
    runtime = inputs.runtime
    search = SearchPath((runtime.libraries,) if runtime else (), host=frozenset() if runtime else HOST_NAMES)
    process = Process(search, loader=runtime.loader if runtime else None)
    process.start(inputs.engine)
    kernels = process.dlopen(str(inputs.kernels_library)) if inputs.kernels_library else None
    opened: dict[str, str] = {}
    for name in (*inputs.bundle.roots, *(ALWAYS if runtime else ())):
        found = process.dlopen(name)
        if found is not None:
            opened[found.path.name] = (
                "named by the recipe" if name in inputs.bundle.roots else "opened by the C library"
            )
    if process.problems:
        raise unresolved(process.problems)
    for loaded in process.objects:
        if loaded.path == inputs.engine or (runtime is not None and loaded.path == runtime.loader):
            continue
        why = (*loaded.chain(), *((opened[loaded.path.name],) if loaded.path.name in opened else ()))
        if loaded is kernels:
            contains = tuple(owner.name for owner in inputs.contains_kernels)
            item = Item(
                f"lib/{loaded.path.name}", FILE, inputs.ours, why, source=loaded.path, contains=contains
            )
            contents.add(item)
        elif runtime is not None:
            _add_library(contents, loaded, why, runtime)
    _add_aliases(contents)


def _add_library(contents: Contents, loaded: Loaded, why: tuple[str, ...], runtime: Runtime) -> None:
    """The file, and the links under which it was found, as links."""
    real = loaded.image.path
    contents.add(Item(f"lib/{real.name}", FILE, runtime.owner(real), why, source=real))
    names = [link.name for link in loaded.links] or (
        [loaded.path.name] if loaded.path.name != real.name else []
    )
    for name, target in zip(names, [*names, real.name][1:], strict=True):
        contents.add(Item(f"lib/{name}", LINK, runtime.owner(loaded.path), why, 0o777, target=target))


def _add_aliases(contents: Contents) -> None:
    for entry in LEDGER:
        have = contents.libraries()
        if entry.verdict is Verdict.ALIAS and entry.owner in have and entry.target in have:
            owner = contents.items[f"lib/{entry.target}"].owner
            why = (entry.owner, f"{entry.reason}")
            contents.add(Item(f"lib/{entry.name}", LINK, owner, why, 0o777, target=entry.target))


def _add_data(contents: Contents, inputs: Inputs, runtime: Runtime) -> None:
    for data in inputs.bundle.data:
        source = runtime.root / data.source
        if not source.is_file():
            raise CheckFailedError(
                "a data file of the recipe is not in the runtime",
                where=inputs.recipe,
                why=f"{data.source} is not there",
            )
        why = (f"data of the recipe `{inputs.recipe}`",)
        contents.add(Item(str(data.target), FILE, runtime.owner(source), why, source=source))


def unresolved(problems: Iterable[Problem]) -> CheckFailedError:
    """All problems as one error, each with its chain."""
    listed = list(problems)
    text = "\n".join(f"{problem.code}: {problem}" for problem in listed)
    return CheckFailedError(
        f"{len(listed)} problem{'s' if len(listed) != 1 else ''} in what the bundle would load",
        why=f"\n{text}",
    )


def licence_items(owners: Iterable[Owner], ours: Owner, notice: Path) -> list[Item]:
    """Licence texts of all owners, under licenses/. `CheckFailedError` names each owner without a text."""
    items: list[Item] = []
    missing: list[str] = []
    for owner in sorted({o.name: o for o in owners}.values(), key=lambda o: o.name):
        text = _licence_text(owner)
        if text is None:
            missing.append(f"{owner.name} {owner.version}: {owner.text}")
            continue
        name = "LICENSE" if owner.comment else owner.text.name
        items.append(Item(f"licenses/{owner.name}/{name}", FILE, owner, ("its licence",), data=text))
    if missing:
        raise CheckFailedError("licence texts are missing", why="\n    ".join(missing))
    items.append(Item(f"licenses/{ours.name}/NOTICE", FILE, ours, ("its notice",), source=notice))
    return items


def _licence_text(owner: Owner) -> bytes | None:
    try:
        data = owner.text.read_bytes()
    except OSError:
        return None
    if owner.comment:
        start, end = data.find(b"/*"), data.find(b"*/")
        data = data[start + 2 : end].strip() + b"\n" if 0 <= start < end else b""
    return data or None


def owners_of(items: Mapping[str, Item]) -> dict[str, Owner]:
    """Every owner of a file or link, by name."""
    return {item.owner.name: item.owner for item in items.values() if item.kind != FOLDER}
