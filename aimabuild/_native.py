"""The native engine in process, as the build made it last; the types are in _native.pyi."""

import sys

from aimabuild.base.extension import load

sys.modules[__name__] = load("_native", __name__)
