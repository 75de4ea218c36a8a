"""Machine code as text, and the matrix instructions in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from aimabuild.base.errors import AimaError
from aimabuild.compile.process import run

# gfx11, gfx12: v_wmma_f32_16x16x16_bf16. Hopper: HGMMA.64x64x16.F32.BF16 (warp group), HMMA.16816.F32.BF16.
_MATRIX = re.compile(r"\b(?:v_s?wmma[a-z]*_([a-z0-9_]+)|((?:HGMMA|HMMA|QGMMA|IGMMA|IMMA)[A-Za-z0-9.]*))")


def objdump_text(objdump: Sequence[str], image: Path, symbol: str | None = None) -> str:
    """Disassembly of an AMD code object, of one function when `symbol` is given.

    `objdump` is the command that starts llvm-objdump. Raises `AimaError` when it fails or finds nothing.
    """
    what = [f"--disassemble-symbols={symbol}"] if symbol else ["-d"]
    text = run([*objdump, *what, "--no-show-raw-insn", str(image)], timeout=120).stdout
    if symbol is None:
        return text
    found = re.search(rf"^[0-9a-f]+ <{re.escape(symbol)}>:$", text, re.MULTILINE)
    if found is None:
        raise AimaError(f"`{symbol}` is not in the code object", where=str(image))
    return text[found.start() :]


def nvdisasm_text(nvdisasm: Sequence[str], image: Path) -> str:
    """Disassembly of a cubin."""
    return run([*nvdisasm, "-c", str(image)], timeout=120).stdout


def matrix_ops(text: str) -> Counter[str]:
    """Form -> count of the matrix instructions in a disassembly; gfx forms as `f32_16x16x16_bf16`."""
    return Counter(amd or nvidia for amd, nvidia in _MATRIX.findall(text))


def mnemonics(text: str) -> Counter[str]:
    """Instruction -> count in a disassembly; predicates and modifiers after a point are left out."""
    return Counter(name for line in text.splitlines() if (name := _mnemonic(line)))


def _mnemonic(line: str) -> str | None:
    """The instruction of a line: AMD's `\ts_load_b64 ...  // 000...`, NVIDIA's `/*0010*/ @P0 LDG.E ... ;`."""
    if found := re.match(r"\t([a-z][a-z0-9_]+)\b", line):
        return found[1] if found[1] != "s_code_end" else None  # padding after the last instruction
    found = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P[0-9T]+\s+)?([A-Z][A-Z0-9]*)", line)
    return found[1] if found else None


def main_form(ops: Counter[str]) -> str | None:
    """The most frequent form, the first by name among equals."""
    return min(ops, key=lambda form: (-ops[form], form), default=None)
