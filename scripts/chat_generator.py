"""Random chat requests as JSON text: mostly what clients send, now and then what nobody should send.

They are text and not Python values because spelling counts: `1E5`, `-0`, integers beyond 64 bit, escapes
and keys that appear twice must reach both renderers as written.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

FRAGMENTS = (
    "Hello", "world", " ", "  ", "\n", "\n\n", "\t", "\r\n", "a", "x = 1;", "天气怎么样", "ñandú",
    "e\u0301", "नमस्ते", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "𝔘", "\u00a0", "\u1680",
    "\u3000", "\u2007", "\u2028", "\u2029", "\u200b", "\ufeff", "\x85", "\x1c", "\x1f", "\x00",
    "\x0b", "\x7f", '"', "\\", "</", "<b>&amp;'", "{}", '{"k": 1}', "{{ x }}", "{% raw %}",
    "/no_think", "<think>", "</think>", "<think>\n", "\n</think>\n\n", "<tool_response>",
    "</tool_response>", "<tool_call>", "</tool_call>", "<|im_end|>\n", "<|im_start|>system\n",
    "<|image_pad|>", "<|endoftext|>", "</parameter>", "</function>", "image", "text", "video",
)  # fmt: skip
NUMBERS = (
    "0", "-0", "1", "-1", "2", "10", "2.5", "1.0", "-0.0", "0e0", "-0E-7", "1E5", "1e-05", "1.50",
    "0.1", "1e16", "1e15", "1e22", "9999999999999998.0", "123456789012345678",
    "9223372036854775807", "9223372036854775808", "18446744073709551616",
    "-123456789012345678901234567890", "1" + "0" * 400, "0.0001", "0.00001", "5e-324",
    "1.7976931348623157e308", "1e-400", "3.141592653589793238462643", "2.2250738585072011e-308",
    "0.30000000000000004", "100000000000000000000.0", "12.0e-1",
)  # fmt: skip
WORDS = ("city", "days", "q", "opt", "name", "unit", "path", "content", "größe", "键", "type", "")
NAMES = ("f", "get_weather", "größe", "")


@dataclass(frozen=True)
class Literal:
    """A JSON value spelled in a certain way."""

    text: str


@dataclass(frozen=True)
class Members:
    """An object whose keys may repeat."""

    pairs: tuple[tuple[str, object], ...]


class ChatGenerator:
    """Requests from one seed. `wild` is the share of requests in which any field may have any type."""

    def __init__(self, seed: int, *, wild: float = 0.35) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.wild_share = wild
        self.wild = False

    def request(self) -> str:
        """One request as JSON text."""
        self.wild = self.random.random() < self.wild_share
        fields: dict[str, object] = {"model": "qwen"} if self.chance(0.2) else {}
        messages = self.messages()
        if not self.odd(0.02):
            fields["messages"] = self.anything(2) if self.odd(0.03) else messages
        if self.chance(0.5):
            fields["tools"] = self.tools()
        for name in ("enable_thinking", "preserve_thinking", "add_vision_id", "add_generation_prompt"):
            if self.chance(0.4):
                fields[name] = self.anything(1) if self.odd(0.3) else self.chance(0.5)
        return self.spell(fields)

    def chance(self, share: float) -> bool:
        """True in `share` of the calls."""
        return self.random.random() < share

    def odd(self, share: float) -> bool:
        """True in `share` of the calls for a wild request, never for another."""
        return self.wild and self.chance(share)

    def pick(self, *choices: Callable[[], object]) -> object:
        """The value of one of several makers."""
        return self.random.choice(choices)()

    def text(self) -> str:
        """A string with white space and markup where they hurt most."""
        return "".join(self.random.choices(FRAGMENTS, k=self.random.choice((0, 1, 1, 2, 3, 5, 8))))

    def anything(self, depth: int) -> object:
        """Any JSON value."""
        simple = (self.text, lambda: None, lambda: self.chance(0.5), self.number)
        if depth == 0:
            return self.pick(*simple)
        return self.pick(*simple, lambda: self.items(depth - 1), lambda: self.members(depth - 1))

    def number(self) -> Literal:
        """A number in one of its spellings."""
        if self.chance(0.5):
            return Literal(self.random.choice(NUMBERS))
        value = self.random.uniform(-10, 10) * 10 ** self.random.uniform(-30, 30)
        return Literal(repr(value) if self.chance(0.5) else f"{value:.{self.random.randrange(18)}E}")

    def items(self, depth: int) -> list[object]:
        """A list."""
        return [self.anything(depth) for _ in range(self.random.randrange(4))]

    def members(self, depth: int) -> Members:
        """An object; one in eight may repeat a key."""
        count = self.random.randrange(5)
        keys = self.random.choices(WORDS, k=count) if self.chance(0.125) else self.random.sample(WORDS, count)
        return Members(tuple((key, self.anything(depth)) for key in keys))

    def messages(self) -> list[object]:
        """A conversation."""
        out: list[object] = [self.message("system")] if self.chance(0.4) else []
        if self.odd(0.2):
            roles = ("system", "user", "assistant", "tool", "developer", "User", "")
            return out + [self.message(self.random.choice(roles)) for _ in range(self.random.randrange(6))]
        for _ in range(self.random.choice((1, 1, 1, 2, 2, 3, 6))):
            out += [self.message("user")] * (1 if self.chance(0.95) else 2)
            while self.chance(0.45):
                out.append(self.message("assistant", calls=True))
                out += [self.message("tool") for _ in range(self.random.choice((0, 1, 1, 2, 3)))]
            out += [self.message("assistant")] if self.chance(0.6) else []
        if self.chance(0.5) and len(out) > 1:
            out.append(self.message("user"))
        return out

    def message(self, role: str, *, calls: bool = False) -> object:
        """One message of a role."""
        if self.odd(0.01):
            return self.anything(1)
        fields: dict[str, object] = {"role": self.anything(1) if self.odd(0.02) else role}
        if not self.chance(0.05):
            fields["content"] = self.content(role)
        if role == "assistant" and self.chance(0.4):
            fields["reasoning_content"] = self.reasoning()
        if calls or self.odd(0.1):
            fields["tool_calls"] = self.calls()
        if role == "tool" and self.chance(0.7):
            fields["tool_call_id"] = "call_1"
        if self.chance(0.2):
            fields = dict(self.random.sample(list(fields.items()), len(fields)))
        return fields

    def reasoning(self) -> object:
        """The reasoning of an assistant message."""
        if self.odd(0.2):
            return self.anything(1)
        return self.text() if self.chance(0.7) else None

    def content(self, role: str) -> object:
        """A content: a string, null, parts, or in a wild request anything."""
        if self.odd(0.05):
            return self.anything(2)
        if role == "user" and self.chance(0.1):
            return f"<tool_response>{self.text()}</tool_response>"
        if self.chance(0.7):
            return self.text()
        if self.chance(0.1):
            return None
        vision = role != "system" or self.odd(0.2)
        return [self.part(vision=vision) for _ in range(self.random.randrange(5))]

    def part(self, *, vision: bool) -> object:
        """One part of a content."""
        if self.odd(0.15):
            odd = (self.text, lambda: {"type": "audio"}, lambda: {"type": "text"}, lambda: self.items(0))
            return self.pick(
                *odd, lambda: self.anything(1), lambda: {"type": "text", "text": self.anything(1)}
            )
        if not vision or self.chance(0.6):
            return {"type": "text", "text": self.text()} if self.chance(0.9) else {"text": self.text()}
        url = {"url": "data:image/png;base64,AA=="}
        shapes: tuple[dict[str, object], ...] = (
            {"type": "image"}, {"type": "image_url", "image_url": url}, {"image": "a.png"},
            {"image_url": None}, {"type": "video"}, {"type": "video", "video": "a.mp4"}, {"video": None},
            {"type": "image", "text": "x"},
        )  # fmt: skip
        return self.random.choice(shapes)

    def calls(self) -> object:
        """The tool calls of a message."""
        if self.odd(0.1):
            return self.anything(1)
        return [self.call() for _ in range(self.random.choice((0, 1, 1, 1, 2, 3)))]

    def call(self) -> object:
        """One tool call, with or without its wrapper."""
        fields: dict[str, object] = {}
        if not self.odd(0.05):
            fields["name"] = self.anything(1) if self.odd(0.1) else self.random.choice(NAMES)
        if not self.chance(0.1):
            fields["arguments"] = self.anything(2) if self.odd(0.15) else self.members(3)
        if self.chance(0.15):
            return fields
        function = self.anything(1) if self.odd(0.05) else fields
        return {"id": "call_1", "type": "function", "function": function}

    def tools(self) -> object:
        """The tools of a request."""
        if self.odd(0.2):
            return self.anything(2)
        if self.chance(0.1):
            return None
        return [self.tool() for _ in range(self.random.randrange(4))]

    def tool(self) -> object:
        """One tool with a schema."""
        function = {"name": "f", "description": self.text(), "parameters": self.members(3)}
        return {"type": "function", "function": function}

    def spell(self, value: object) -> str:
        """JSON text of a value, with the freedoms that JSON leaves."""
        gap = self.random.choice(("", "", " ", "\n")) if self.chance(0.1) else ""
        if isinstance(value, Literal):
            return value.text + gap
        if isinstance(value, str):
            return json.dumps(value, ensure_ascii=self.chance(0.2)) + gap
        if isinstance(value, (list, tuple)):
            return "[" + gap + ",".join(self.spell(item) for item in value) + "]" + gap
        if isinstance(value, dict):
            value = Members(tuple(value.items()))
        if isinstance(value, Members):
            return (
                "{" + gap + ",".join(f"{self.spell(k)}:{self.spell(v)}" for k, v in value.pairs) + "}" + gap
            )
        return json.dumps(value) + gap
