"""The programs that cpu_vs_llamacpp.py compares, each run on a prompt with the time of its two phases."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aimabuild.base.errors import AimaError, UsageError


@dataclass(frozen=True)
class Sample:
    """One run: seconds for the prompt, seconds for the steps after it."""

    tokens: list[int]
    prefill_s: float
    decode_s: float
    steps: int


class Engine:
    """Our engine; a process for each run, its own clock for the two phases."""

    name = "aima-engine"

    def __init__(self, program: Path, model: Path, threads: int, isa: str | None = None) -> None:
        """UsageError when there is no such program."""
        if not os.access(program, os.X_OK):
            raise UsageError(
                "no engine program here",
                where=str(program),
                hint="`aimabuild build` makes one; or give --engine",
            )
        self.command = [str(program), "generate", "--model-dir", str(model), "--threads", str(threads)]
        if isa:
            self.name = f"{Engine.name} {isa}"
            self.command += ["--isa", isa]
        self.detail = ""

    def run(self, prompt: Sequence[int], count: int) -> Sample:
        """`count` greedy tokens after the prompt."""
        ids = ",".join(map(str, prompt))
        command = [*self.command, "--prompt-ids", ids, "--max-tokens", str(count), "--ignore-eos", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AimaError(f"the engine ended with {done.returncode}", why=done.stderr.strip()[-800:])
        result = json.loads(done.stdout)
        times, self.detail = result["timings"], result["device_detail"]
        return Sample(
            result["token_ids"], times["prefill_ms"] / 1e3, times["decode_ms"] / 1e3, times["decode_tokens"]
        )

    def close(self) -> None:
        """Nothing stays open."""


class LlamaCpp:
    """The prebuilt llama.cpp library, resident in a worker process."""

    name = "llama.cpp"

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start the worker and wait until it has loaded the model."""
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **(environment or {})},
            )
        self.facts = self._line()

    def _line(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            self.close()
            tail = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-8:]
            raise AimaError("llama.cpp's worker ended", where=str(self._log), why="\n    ".join(tail))
        value: dict[str, Any] = json.loads(line)
        return value

    def run(self, prompt: Sequence[int], count: int) -> Sample:
        """`count` greedy tokens after the prompt, from an empty cache."""
        request = {"prompt_ids": list(prompt), "max_tokens": count}
        if self._process.stdin:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        answer = self._line()
        return Sample(answer["token_ids"], answer["prefill_s"], answer["decode_s"], answer["decode_steps"])

    def close(self) -> None:
        """End the worker, whatever it is doing."""
        with self._process as process:
            if process.stdin:
                process.stdin.close()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()


class LlamaBench:
    """llama.cpp compiled for this processor, by its own benchmark program; it makes up its tokens itself."""

    name = "llama.cpp native"

    def __init__(self, program: Path, model: Path, threads: int) -> None:
        """Nothing starts before `run`."""
        self.command = [str(program), "-m", str(model), "-t", str(threads), "-r", "1", "-o", "json"]

    def run(self, prompt: Sequence[int], count: int) -> Sample:
        """One repetition of as many prompt tokens and steps, each after the program's own warm-up."""
        command = [*self.command, "-p", str(len(prompt)), "-n", str(count - 1)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AimaError(f"llama-bench ended with {done.returncode}", why=done.stderr.strip()[-800:])
        prefill, decode = json.loads(done.stdout)
        return Sample([], prefill["samples_ns"][0] / 1e9, decode["samples_ns"][0] / 1e9, count - 1)

    def close(self) -> None:
        """Nothing stays open."""


Program = Engine | LlamaCpp | LlamaBench
