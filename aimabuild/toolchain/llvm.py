"""What Debian's LLVM tools need besides the HIP runtime's libraries.

llvm-objdump is linked to libcurl for its debuginfod client, which pulls in TLS, Kerberos and LDAP: two dozen
packages for something that offline disassembly never calls. So a library of that name is made whose functions
fail.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from aimabuild.base.errors import AimaError
from aimabuild.base.files import sha256_bytes
from aimabuild.toolchain.cache import Cache

_FUNCTIONS = (
    *("curl_global_init", "curl_global_cleanup", "curl_easy_init", "curl_easy_cleanup", "curl_easy_setopt"),
    *(
        "curl_easy_perform",
        "curl_easy_getinfo",
        "curl_easy_strerror",
        "curl_slist_append",
        "curl_slist_free_all",
    ),
)
# 0 is a null handle from curl_easy_init: the client gives up there, before any other call.
_SOURCE = "".join(f"void *{name}(void) {{ return 0; }}\n" for name in _FUNCTIONS)
_VERSIONS = f"CURL_OPENSSL_4 {{ global: {'; '.join(_FUNCTIONS)}; local: *; }};\n"


def curl_stub(cache: Cache, zig: Path) -> Path:
    """The folder that holds the stand-in `libcurl.so.4`, made by the locked compiler when it is not there."""
    key = sha256_bytes(f"{zig}\n{_SOURCE}{_VERSIONS}".encode())[:16]
    folder = cache.tree("curl-stub", key)
    if (folder / "libcurl.so.4").is_file():
        return folder
    with cache.scratch() as scratch:
        made = scratch / "made"
        made.mkdir()
        (scratch / "stub.c").write_text(_SOURCE)
        (scratch / "stub.map").write_text(_VERSIONS)
        command = [
            *(
                str(zig),
                "cc",
                "-target",
                "x86_64-linux-gnu.2.28",
                "-shared",
                "-fPIC",
                "-nostdlib",
                "-Os",
                "-s",
            ),
            *("-Wl,-soname,libcurl.so.4", f"-Wl,--version-script={scratch / 'stub.map'}"),
            *("-o", str(made / "libcurl.so.4"), str(scratch / "stub.c")),
        ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={
                "PATH": os.defpath,
                "ZIG_GLOBAL_CACHE_DIR": str(cache.root / "zig"),
                "ZIG_LOCAL_CACHE_DIR": str(scratch / "zig"),
            },
        )
        if done.returncode != 0:
            raise AimaError(
                "the LLVM tools cannot be prepared", where=" ".join(command), why=done.stderr.strip()[-2000:]
            )
        try:
            made.rename(folder)
        except OSError:
            if not (folder / "libcurl.so.4").is_file():  # another process was first, or something is wrong
                raise
    return folder
