"""Write tests/data/tokenizer_cases.json: texts and the ids that the reference tokenizer gives them.

    python scripts/make_tokenizer_cases.py MODEL/tokenizer.json tests/data/tokenizer_cases.json

Needs `pip install tokenizers==0.23.3`, the reference; the tests need the written file alone.
"""

from __future__ import annotations

import json
import random
import sys
import unicodedata
from pathlib import Path

from tokenizers import Tokenizer

BY_HAND = [
    "",
    "hello",
    " hello",
    "Hello, world!",
    "I'm here; WE'LL see, they'Ve x'\u017f 'tis y'all",
    "  two  spaces   ",
    "tabs\tand\nnew\r\nlines\n\n\n end",
    " \n \n  x",
    "你好，世界。今天天气不错",
    "日本語と한국어",
    "हिन्दी ไทย العربية עברית தமிழ்",
    "e\u0301 == \u00e9; A\u030a \u212b \ufb01 \u1e9b\u0323",
    "\u0958 \u0344 \u2126 \uf900 \u2f801",
    "😀👩\u200d💻🏳️\u200d🌈",
    'def f(x: int) -> str:\n    return f"value={x:#x}"\n\n\n# end\n',
    "1234567890 3.14 ²³ ٣٤٥ Ⅷ",
    "<|im_start|>system\nx<|im_end|>\n",
    "<think>\n\n</think>\n\n",
    "a<tool_call>\n<function=f>\n</tool_call>b",
    "<|im_start|",
    "<<|im_end|>>",
    "\u00a0\u3000x\u2028y\u0085z\u200b",
    "俱乐部 人力资源 毛泽东 众所周知",
    "является факт",
    "\x00\x01\x7f",
    "ﷺ ℡ ①",
    "a\u0301\u0327 o\u0302\u0323",
    "\u1100\u1161\u11a8 각",
    "\U0001e2ed\u05b9 x\u0301\u1ac0",
    "<|endoftext|><|audio_pad|><tts_pad>",
    "a" * 300,
    " " * 200 + "x",
    "\u0301" * 70,
    "=-" * 100,
]
RANDOM_CASES = 400


def pools(tokenizer: Tokenizer) -> list[list[str]]:
    """Kinds of text: each a list of pieces to draw from."""
    scalars = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    letters = [c for c in scalars if unicodedata.category(c)[0] == "L" and c < "\u3000"]
    marks = [c for c in scalars if unicodedata.category(c)[0] == "M"]
    numbers = [c for c in scalars if unicodedata.category(c)[0] == "N"]
    spaces = [c for c in scalars if c.isspace() and c not in "\x1c\x1d\x1e\x1f"]
    composed = [unicodedata.normalize("NFD", c) for c in scalars if unicodedata.normalize("NFD", c) != c]
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    words = [
        "the",
        "quick",
        "Brown",
        "FOX",
        "naïve",
        "straße",
        "функция",
        "être",
        "함수",
        "変数",
        "return",
        "const",
        "null",
        "x_1",
        "3rd",
    ]
    contractions = ["'s", "'S", "'\u017f", "'t", "'re", "'VE", "'m", "'LL", "'d", "'l", "''s", "\u2019s"]
    lines = ["\r", "\n", "\r\n", " ", "  ", "\t", "\n\n", " \n"]
    ascii_text = [chr(c) for c in range(32, 127)]
    return [scalars, letters, marks, numbers, spaces, composed, added, words, contractions, lines, ascii_text]


def main() -> None:
    tokenizer = Tokenizer.from_file(sys.argv[1])
    source = random.Random(20260)  # noqa: S311 - reproducible, not secret
    kinds = pools(tokenizer)
    texts = list(BY_HAND)
    for _ in range(RANDOM_CASES):
        pieces = (source.choice(source.choice(kinds)) for _ in range(source.randrange(1, 24)))
        texts.append("".join(pieces))
    cases = []
    for text in texts:
        ids = tokenizer.encode(text).ids
        cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=True)})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    Path(sys.argv[2]).write_text(f"[\n{lines}\n]\n")
    print(f"{len(cases)} cases, {sum(len(case['ids']) for case in cases)} ids")


if __name__ == "__main__":
    main()
