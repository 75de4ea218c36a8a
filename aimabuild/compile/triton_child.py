"""Compiles one Triton kernel. Runs alone in a process of its own, by path, with the locked Triton and nothing
of this package: `python -I -B triton_child.py REQUEST.json`.

The request names the source, its function, the types of its arguments in order, what they are multiples of,
the compile-time constants, target and options, and where image and metadata go. All of it is explicit: Triton
specialises nothing on its own here, since it never sees an argument's value.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

_METADATA = ("name", "num_warps", "warp_size", "shared", "global_scratch_size", "profile_scratch_size")


def _load(source: Path, symbol: str) -> Any:
    spec = importlib.util.spec_from_file_location("kernel", source)
    if spec is None or spec.loader is None:
        raise SystemExit(f"cannot load {source}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, symbol, None)
    if function is None:
        raise SystemExit(f"the source defines no function `{symbol}`")
    return function


def _check_names(found: list[str], request: dict[str, Any]) -> None:
    """A pointer `x` of the spec is `x_ptr` or `x` in the source; the constants follow the arguments."""
    wanted = [*(arg["name"] for arg in request["args"]), *request["constants"]]
    if [name.removesuffix("_ptr") for name in found] != wanted:
        raise SystemExit(f"the source takes ({', '.join(found)}), the sidecar says ({', '.join(wanted)})")


def main() -> None:
    """Compile the request of the one argument."""
    request = json.loads(Path(sys.argv[1]).read_text())
    sys.path.insert(0, request["site"])
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = _load(Path(request["source"]), request["symbol"])
    names = list(function.arg_names)
    _check_names(names, request)
    count = len(request["args"])
    signature = {name: arg["type"] for name, arg in zip(names, request["args"], strict=False)}
    signature |= dict.fromkeys(names[count:], "constexpr")
    attrs = {
        (i,): [["tt.divisibility", arg["divisibility"]]]
        for i, arg in enumerate(request["args"])
        if arg["divisibility"] > 1
    }
    compiled = triton.compile(
        ASTSource(function, signature, request["constants"], attrs),
        target=GPUTarget(*request["target"]),
        options=request["options"],
    )
    metadata = compiled.metadata._asdict()
    Path(request["image"]).write_bytes(compiled.asm[request["format"]])
    facts = {name: metadata[name] for name in _METADATA} | {"version": triton.__version__}
    Path(request["metadata"]).write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
