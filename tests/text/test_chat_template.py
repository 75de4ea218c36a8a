"""Chat prompts as the engine's probe prints them: golden ones, Python's JSON and white space, refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
CASES: list[dict[str, Any]] = json.loads((ROOT / "tests/data/chat_cases.json").read_text(encoding="utf-8"))
QUESTION = {"role": "user", "content": "q"}

pytestmark = pytest.mark.toolchain


def find_engine() -> Path:
    """$AIMA_ENGINE, or an engine built in this tree; skips the test when there is none."""
    if named := os.environ.get("AIMA_ENGINE"):
        return Path(named)
    built = sorted((ROOT / "build").glob("*/libexec/aima-engine.real"), key=lambda path: path.stat().st_mtime)
    if not built:
        pytest.skip("no engine is built: `python -m aimabuild build recipes/host-cpu.yaml`")
    return built[-1]


def probe(*options: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run the probe with `text` on standard input."""
    command = [find_engine(), "chat-template-probe", *options]
    return subprocess.run(command, check=False, capture_output=True, encoding="utf-8", input=text)


def render(request: object) -> str:
    """The prompt of one request."""
    result = probe("--request-json", "-", text=json.dumps(request))
    assert result.returncode == 0, result.stderr
    text = json.loads(result.stdout)["text"]
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("case", [case for case in CASES if "text" in case], ids=lambda case: case["name"])
def test_golden_prompts(case: dict[str, Any]) -> None:
    assert render(case["request"]) == case["text"]


@pytest.mark.parametrize(
    "case", [case for case in CASES if "text" not in case], ids=lambda case: case["name"]
)
def test_golden_refusals(case: dict[str, Any]) -> None:
    result = probe("--request-json", "-", text=json.dumps(case["request"]))
    assert result.returncode == 2
    assert result.stdout == ""
    assert f"{case['refused_at']}: " in result.stderr


def test_a_line_for_each_request_of_a_batch() -> None:
    lines = [json.dumps(case["request"]) for case in CASES]
    result = probe("--requests-jsonl", "-", text="\n".join([*lines, '{"messages"']))
    assert result.returncode == 0
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer.get("text") for answer in answers] == [*(case.get("text") for case in CASES), None]
    assert answers[-1]["error"]["where"] == f"-:{len(CASES) + 1}:1:12"


def test_one_user_message() -> None:
    result = probe("--user", "Hello")
    answer = json.loads(result.stdout)
    assert answer["schema"] == "aima/chat-template-probe/v1"
    assert answer["text"] == CASES[0]["text"]
    assert answer["text"][answer["generation_prompt"] :] == "<|im_start|>assistant\n<think>\n"


def test_openai_shapes_only_when_asked() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"b": 1e-5}'}}
    messages = [{"role": "developer", "content": "s"}, QUESTION, {"role": "assistant", "tool_calls": [call]}]
    request = json.dumps({"messages": messages})
    assert probe("--request-json", "-", text=request).returncode == 2
    result = probe("--openai", "--request-json", "-", text=request)
    assert result.returncode == 0, result.stderr
    text = json.loads(result.stdout)["text"]
    assert text.startswith("<|im_start|>system\ns<|im_end|>\n")
    assert "<parameter=b>\n1e-05\n</parameter>" in text


@pytest.mark.parametrize(
    "options", [[], ["--user", "x", "--request-json", "-"], ["--user"], ["--usr", "x"], ["--openai", "x"]]
)
def test_wrong_usage(options: list[str]) -> None:
    result = probe(*options)
    assert result.returncode == 2
    assert result.stdout == ""


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@settings(max_examples=60, deadline=None)
@given(tools=st.lists(values, min_size=1, max_size=20))
def test_tools_print_as_python_prints_them(tools: list[Any]) -> None:
    text = render({"messages": [QUESTION], "tools": tools})
    listed = text[text.index("<tools>\n") + len("<tools>\n") :]
    expected = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    assert listed.startswith(expected + "\n</tools>\n")


def test_strip_agrees_with_python_on_every_code_point_of_the_bmp() -> None:
    contents = [f"{chr(c)}a{chr(c)}" for c in range(0x10000) if not 0xD800 <= c < 0xE000]
    text = render({"messages": [{"role": "user", "content": content} for content in contents]})
    turns = "".join(f"<|im_start|>user\n{content.strip()}<|im_end|>\n" for content in contents)
    assert text == turns + "<|im_start|>assistant\n<think>\n"


def test_the_comparison_script_notices_a_difference(tmp_path: Path) -> None:
    template = tmp_path / "chat_template.jinja"
    template.write_text("{{- 'x' }}", encoding="utf-8")
    script = ROOT / "scripts/compare_chat_template.py"
    options = ["--engine", find_engine(), "--count", "50", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, script, template, *options],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert result.returncode == 3
    counts = json.loads(result.stdout)
    assert counts["different"] == 50
    assert counts["equal"] == 0
