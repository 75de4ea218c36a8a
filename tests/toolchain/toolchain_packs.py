"""Tiny .deb and .whl files, a folder mirror, and a loopback HTTP server that can misbehave."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import zstandard

from aimabuild.schema.lock import DebianPackage, Lock, Wheel

COMPRESSORS = {
    "xz": lzma.compress,
    "gz": gzip.compress,
    "zst": lambda data: zstandard.ZstdCompressor().compress(data),
    "": lambda data: data,
}


def member(name: str, kind: bytes = tarfile.REGTYPE, *, mode: int = 0o644, link: str = "") -> tarfile.TarInfo:
    """A tar header."""
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname = kind, mode, link
    return info


def make_tar(files: Mapping[str, bytes], special: Sequence[tarfile.TarInfo] = ()) -> bytes:
    """A tar of plain files followed by the given headers (without content)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            info = member(name, mode=0o755 if "usr/bin/" in name else 0o644)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for info in special:
            archive.addfile(info)
    return buffer.getvalue()


def make_deb(
    files: Mapping[str, bytes], special: Sequence[tarfile.TarInfo] = (), compression: str = "xz"
) -> bytes:
    """A .deb: an ar archive of debian-binary, control.tar and data.tar."""
    suffix = f".{compression}" if compression else ""
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": gzip.compress(make_tar({"./control": b"Package: x\n"})),
        f"data.tar{suffix}": COMPRESSORS[compression](make_tar(files, special)),
    }
    result = b"!<arch>\n"
    for name, data in parts.items():
        result += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
        result += data + b"\n" * (len(data) % 2)
    return result


def make_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, bytes], tag: str = "py3-none-any"
) -> Wheel:
    """Write a wheel that pip accepts, and return its lock entry."""
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    path = folder / f"{stem}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, data in files.items():
            archive.writestr(inner, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    data = path.read_bytes()
    return Wheel(name, version, path.name, len(data), hashlib.sha256(data).hexdigest(), "MIT")


def publish(
    mirror: Path, name: str, data: bytes, version: str = "1.0-1", group: str = "group"
) -> DebianPackage:
    """Put a .deb into a folder mirror, and return its lock entry."""
    path = f"pool/main/{name[0]}/{name}/{name}_{version}_amd64.deb"
    (mirror / path).parent.mkdir(parents=True, exist_ok=True)
    (mirror / path).write_bytes(data)
    return DebianPackage(
        name, version, "amd64", path, len(data), hashlib.sha256(data).hexdigest(), "MIT", (group,)
    )


def make_lock(debian: Sequence[DebianPackage] = (), wheels: Sequence[Wheel] = ()) -> Lock:
    """A lock of these entries."""
    return Lock(("sid",), tuple(debian), tuple(wheels), ("3.11",), ())


class Mirror(ThreadingHTTPServer):
    """Serves a folder on a loopback port; attributes make it misbehave. `log`: (path, range) pairs."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.log: list[tuple[str, str | None]] = []
        self.ranges = True
        self.cut_after: int | None = None
        self.failures = 0
        self.pause = 0.0

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        mirror, wanted = self.server, self.headers.get("Range")
        mirror.log.append((self.path, wanted))
        path = mirror.folder / self.path.lstrip("/")
        if mirror.failures:
            mirror.failures -= 1
            self.send_error(503)
            return
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted and mirror.ranges else 0
        if start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if wanted and mirror.ranges else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self._body(data[start:])

    def _body(self, data: bytes) -> None:
        sent = 0
        for offset in range(0, len(data), 1024):
            block = data[offset : offset + 1024]
            if self.server.cut_after is not None and sent + len(block) > self.server.cut_after:
                self.close_connection = True
                return
            self.wfile.write(block)
            sent += len(block)
            time.sleep(self.server.pause)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""


@contextmanager
def serve(folder: Path) -> Iterator[Mirror]:
    """A running Mirror."""
    server = Mirror(folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
