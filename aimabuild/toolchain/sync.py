"""Bring the wanted parts into the cache: fetch what is missing, a few files at a time, and unpack it."""

from __future__ import annotations

import difflib
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from aimabuild.base.errors import AimaError, UsageError
from aimabuild.base.reporter import Reporter
from aimabuild.schema.lock import DebianPackage, Lock, Wheel
from aimabuild.toolchain.cache import Cache, explain_os_errors
from aimabuild.toolchain.fetch import fetch_package
from aimabuild.toolchain.mirror import find_mirrors
from aimabuild.toolchain.parts import BY_NAME, NEEDS, PARTS, PartSpec, describe, files_of, tree_key
from aimabuild.toolchain.trees import DamagedError, make_tree
from aimabuild.toolchain.wheels import fetch_wheel

_DOWNLOADS = 4
_UNPACKS = 2
_File = DebianPackage | Wheel


@dataclass(frozen=True)
class SyncReport:
    """What a sync did: bytes over the network, wall time in seconds, parts unpacked."""

    fetched_bytes: int
    seconds: float
    unpacked: tuple[str, ...]


def select(names: Sequence[str] | None) -> tuple[PartSpec, ...]:
    """The parts of these names (None: all but those on demand) with those that they run on, in order."""
    if names is None:
        return tuple(spec for spec in PARTS if not spec.on_demand)
    wanted = set(names)
    unknown = wanted - BY_NAME.keys()
    if unknown:
        near = difflib.get_close_matches(min(unknown), BY_NAME, 1)
        hint = f"did you mean `{near[0]}`?" if near else f"parts: {', '.join(BY_NAME)}"
        raise UsageError(f"there is no toolchain part `{min(unknown)}`", hint=hint)
    for name in names:
        wanted.update(NEEDS.get(name, ()))
    return tuple(spec for spec in PARTS if spec.name in wanted)


def sync(
    lock: Lock,
    cache: Cache,
    specs: Sequence[PartSpec],
    *,
    reporter: Reporter,
    offline: bool = False,
    mirror: str | None = None,
) -> SyncReport:
    """Make the tree of every part in `specs`. AimaError for whatever fails first; the cache stays sound."""
    start = time.monotonic()
    todo = [spec for spec in specs if not cache.tree(spec.name, tree_key(spec, lock)).is_dir()]
    if not todo:
        return SyncReport(0, time.monotonic() - start, ())
    with explain_os_errors(cache):
        cache.prepare()
        fetched = _Run(lock, cache, reporter, offline=offline, mirror=mirror).run(todo)
    return SyncReport(fetched, time.monotonic() - start, tuple(spec.name for spec in todo))


class _Run:
    """One sync: downloads in one pool, unpacking in another, each part as soon as its files are there."""

    def __init__(
        self, lock: Lock, cache: Cache, reporter: Reporter, *, offline: bool, mirror: str | None
    ) -> None:
        self._lock = lock
        self._cache = cache
        self._reporter = reporter
        self._offline = offline
        self._given = mirror
        self._mirrors: tuple[str, ...] | None = None
        self._guard = threading.Lock()
        self._stop = threading.Event()

    def run(self, todo: Sequence[PartSpec]) -> int:
        """Fetch and unpack; a damaged cached file is fetched once more. Returns the bytes fetched."""
        fetched = self._pass(todo)
        again = [
            spec for spec in todo if not self._cache.tree(spec.name, tree_key(spec, self._lock)).is_dir()
        ]
        if again:
            fetched += self._pass(again)
        damaged = [
            spec.name
            for spec in again
            if not self._cache.tree(spec.name, tree_key(spec, self._lock)).is_dir()
        ]
        if damaged:
            raise AimaError(
                f"the cached files of {', '.join(damaged)} are damaged again and again",
                where=str(self._cache.root),
            )
        return fetched

    def _pass(self, todo: Sequence[PartSpec]) -> int:
        needed = {spec.name: files_of(spec, self._lock) for spec in todo}
        distinct = {file.sha256: file for files in needed.values() for file in files}
        missing = {key: file for key, file in distinct.items() if not self._cache.has_file(key, file.size)}
        self._check_possible(missing.values())
        # Large files first, so that the last one to arrive is a small one.
        order = sorted(missing.values(), key=lambda file: -file.size)
        total = sum(file.size for file in order)
        if order:
            self._reporter.line(f"fetching {len(order)} files, {total / 1e6:.1f} MB")
        with self._reporter.task("toolchain", total, unit="bytes") as task:

            def advance(amount: int) -> None:
                if self._stop.is_set():
                    raise AimaError("stopped")
                with self._guard:
                    task.advance(amount)

            return self._work(todo, needed, order, advance)

    def _work(
        self,
        todo: Sequence[PartSpec],
        needed: dict[str, tuple[_File, ...]],
        order: Sequence[_File],
        advance: Callable[[int], None],
    ) -> int:
        fetched = 0
        waiting = {
            name: {file.sha256 for file in files} & {file.sha256 for file in order}
            for name, files in needed.items()
        }
        with ThreadPoolExecutor(_DOWNLOADS) as downloads, ThreadPoolExecutor(_UNPACKS) as unpacks:
            jobs: dict[Future[int], str] = {
                downloads.submit(self._fetch, file, advance): file.sha256 for file in order
            }
            pending: set[Future[int]] = set(jobs)
            ready = [spec for spec in todo if not waiting[spec.name]]
            try:
                while pending or ready:
                    pending.update(unpacks.submit(self._unpack, spec, needed[spec.name]) for spec in ready)
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    ready = []
                    for job in done:
                        fetched += job.result()
                        if job in jobs:
                            ready += _arrived(jobs[job], waiting, todo)
            except BaseException:
                self._stop.set()  # running downloads end at their next block
                downloads.shutdown(wait=False, cancel_futures=True)
                unpacks.shutdown(wait=False, cancel_futures=True)
                raise
        return fetched

    def _fetch(self, file: _File, advance: Callable[[int], None]) -> int:
        if isinstance(file, DebianPackage):
            assert self._mirrors is not None  # noqa: S101 - _check_possible has found them
            return fetch_package(file, self._mirrors, self._cache, advance)
        return fetch_wheel(file, self._cache, advance)

    def _unpack(self, spec: PartSpec, files: tuple[_File, ...]) -> int:
        try:
            make_tree(spec, files, tree_key(spec, self._lock), self._cache)
            self._reporter.line(f"  {spec.name} {describe(spec, self._lock).version}: unpacked")
        except DamagedError as error:
            self._reporter.warn(f"the cached file of {error} was damaged; fetching it again")
        return 0

    def _check_possible(self, missing: Collection[_File]) -> None:
        """Before anything starts: offline with files missing, or no mirror to fetch Debian files from."""
        if self._offline and missing:
            names = sorted(f"{file.name} {file.version}" for file in missing)
            raise AimaError(
                f"{len(names)} toolchain files are not in the cache, and `--offline` forbids fetching",
                where=str(self._cache.root),
                why=", ".join(names),
                hint="run `aimabuild toolchain sync` with a network",
            )
        if self._mirrors is None and any(isinstance(file, DebianPackage) for file in missing):
            self._mirrors = find_mirrors(self._given)


def _arrived(sha256: str, waiting: dict[str, set[str]], todo: Sequence[PartSpec]) -> list[PartSpec]:
    """Note that a file is there; returns the parts that now have all of theirs."""
    complete = []
    for spec in todo:
        if sha256 in waiting[spec.name]:
            waiting[spec.name].remove(sha256)
            if not waiting[spec.name]:
                complete.append(spec)
    return complete
