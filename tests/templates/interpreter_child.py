"""Runs one Triton kernel in Triton's interpreter, without torch: `python -I interpreter_child.py REQUEST`.

The request names the kernel's source, and an .npz file for each launch: arrays by argument name with their
element types, scalars, constants and the grid. Every array is written back as the kernel left it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np


class Storage:
    """The memory of a tensor."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def cpu(self) -> Storage:
        return self

    def copy_(self, other: Storage) -> None:
        if other.array is not self.array:
            self.array[...] = other.array


class Tensor:
    """What the interpreter asks of a tensor, around a numpy array."""

    def __init__(self, array: np.ndarray[Any, Any], dtype: Any) -> None:
        self.array, self.dtype = array, dtype

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def untyped_storage(self) -> Storage:
        return Storage(self.array)

    def new_empty(self, _size: int, device: str) -> Tensor:
        del device
        return Tensor(self.array, self.dtype)

    def set_(self, storage: Storage, _offset: int, _size: Any, _stride: Any) -> None:
        self.array = storage.array

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.array.itemsize for step in self.array.strides)


def add_in_order() -> None:
    """Replace the interpreter's dot product: it takes the bits of bf16 for whole numbers, and a BLAS adds in
    an order that depends on the block's shape. Here products are added over ascending k, as in hardware.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    def values(operand: Any) -> np.ndarray[Any, Any]:
        if operand.dtype.scalar != tl.bfloat16:
            return operand.data.astype(np.float32)
        return (operand.data.astype(np.uint32) << np.uint32(16)).view(np.float32)

    def create_dot(_self: Any, a: Any, b: Any, d: Any, *_rest: Any) -> Any:
        left, right, total = values(a), values(b), d.data.copy()
        for k in range(left.shape[1]):
            total += left[:, k, None] * right[None, k, :]
        return interpreter.TensorHandle(total, d.dtype.scalar)

    interpreter.InterpreterBuilder.create_dot = create_dot


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    os.environ["TRITON_INTERPRET"] = "1"
    sys.path.insert(0, request["site"])
    import triton.language as tl

    spec = importlib.util.spec_from_file_location("kernel", request["source"])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = getattr(module, request["symbol"])
    add_in_order()
    types = {"bf16": tl.bfloat16, "f32": tl.float32, "i32": tl.int32}
    for launch in request["launches"]:
        with np.load(launch["arrays"]) as file:
            arrays = {name: file[name] for name in file.files}
        args = [
            Tensor(arrays[arg["name"]], types[arg["dtype"]])
            if arg["kind"] == "pointer"
            else launch["scalars"][arg["name"]]
            for arg in request["args"]
        ]
        with np.errstate(all="ignore"):
            kernel[tuple(launch["grid"])](*args, **request["constants"])
        np.savez(launch["arrays"], **arrays)


if __name__ == "__main__":
    main()
