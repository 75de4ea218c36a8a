"""llama.cpp, resident, driven by JSON lines: started by cpu_vs_llamacpp.py inside the peers' own environment.

    python llamacpp_worker.py MODEL.gguf THREADS CONTEXT BATCH VOCABULARY

Prints one line when the model is loaded: {"system_info", "version", "commit"}. Then, for every line on stdin
{"prompt_ids": [..], "max_tokens": N}, from an empty cache: the prompt in one llama_decode, then N greedy
tokens, the first of which comes from the prompt's logits: {"token_ids", "prefill_s", "decode_s",
"decode_steps"}. Ids from VOCABULARY on are padding and are not chosen.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from llama_cpp_py_sync import __llama_cpp_commit__, __version__
from llama_cpp_py_sync._cffi_bindings import get_ffi, get_lib


class Peer:
    """One model and one context."""

    def __init__(self, path: str, threads: int, context: int, batch: int, vocabulary: int) -> None:
        """Map the model and warm nothing; RuntimeError when llama.cpp refuses it."""
        self.ffi, self.lib = get_ffi(), get_lib()
        self.lib.llama_backend_init()
        model_params = self.lib.llama_model_default_params()
        model_params.n_gpu_layers = 0
        self.model = self.lib.llama_model_load_from_file(path.encode(), model_params)
        if self.model == self.ffi.NULL:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        params = self.lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, batch, batch
        params.n_threads = params.n_threads_batch = threads
        params.no_perf = True
        self.context = self.lib.llama_init_from_model(self.model, params)
        if self.context == self.ffi.NULL:
            raise RuntimeError("llama.cpp cannot make a context")
        self.vocabulary = vocabulary

    def decode(self, ids: list[int]) -> int:
        """One llama_decode of `ids`; the token with the highest logit after the last of them."""
        tokens = self.ffi.new("llama_token[]", ids)
        status = self.lib.llama_decode(self.context, self.lib.llama_batch_get_one(tokens, len(ids)))
        if status != 0:
            raise RuntimeError(f"llama_decode of {len(ids)} tokens returned {status}")
        row = self.lib.llama_get_logits_ith(self.context, -1)
        logits: npt.NDArray[np.float32] = np.frombuffer(
            self.ffi.buffer(row, 4 * self.vocabulary), dtype=np.float32
        )
        return int(logits.argmax())

    def run(self, prompt: list[int], count: int) -> dict[str, Any]:
        """The prompt, then `count` tokens, with the time of each phase."""
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        start = time.perf_counter()
        tokens = [self.decode(prompt)]
        first = time.perf_counter()
        while len(tokens) < count:
            tokens.append(self.decode(tokens[-1:]))
        end = time.perf_counter()
        steps = len(tokens) - 1
        return {
            "token_ids": tokens,
            "prefill_s": first - start,
            "decode_s": end - first,
            "decode_steps": steps,
        }

    def facts(self) -> dict[str, str]:
        """What the library says about itself."""
        text = self.ffi.string(self.lib.llama_print_system_info()).decode()
        return {"system_info": text.strip(), "version": __version__, "commit": __llama_cpp_commit__}


def main() -> None:
    """Serve requests until stdin ends."""
    path, threads, context, batch, vocabulary = sys.argv[1], *map(int, sys.argv[2:6])
    peer = Peer(path, threads, context, batch, vocabulary)
    sys.stdout.write(json.dumps(peer.facts()) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        request = json.loads(line)
        sys.stdout.write(json.dumps(peer.run(request["prompt_ids"], request["max_tokens"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
