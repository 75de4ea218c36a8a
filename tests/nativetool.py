"""The module `aimabuild._native` for tests."""

from __future__ import annotations

from types import ModuleType

import pytest

from aimabuild.base.errors import AimaError
from aimabuild.toolchain import headers


def native() -> ModuleType:
    """The module; skips where this Python has no headers to build it with, fails where it is not built."""
    try:
        from aimabuild import _native
    except ImportError as error:
        missing = no_headers()
        if missing is not None:
            pytest.skip(str(missing))
        pytest.fail(str(error))
    return _native


def no_headers() -> AimaError | None:
    """Why the module cannot be built with this Python, if so."""
    if len(headers.parts()) > 1:  # the locked ones fit
        return None
    try:
        headers.headers(headers.__file__)  # type: ignore[arg-type]
    except AimaError as error:
        return error
    return None
