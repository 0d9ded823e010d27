"""Calls of DeepSeek, fenced and not. The other formats are tested in `test_tool_text.py`."""

import pytest

from assay.providers.tool_call_json import read_deepseek

START, END = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
)
SEPARATOR = "<｜tool▁sep｜>"


@pytest.mark.parametrize(
    "call", [f'function{SEPARATOR}f\n```json\n{{"x": 1}}\n```', f'f{SEPARATOR}{{"x": 1}}']
)
def test_a_call_is_read_with_a_fence_or_without(call: str) -> None:
    written = read_deepseek(f"Sure.{START}{call}{END}")

    assert written is not None
    assert [(each.name, each.arguments) for each in written.calls] == [("f", {"x": 1})]
    assert written.content == "Sure."


@pytest.mark.parametrize("rest", ["f", "f\n", "f\n```json\n", 'f\n```json\n{"x": '])
def test_a_call_that_was_cut_short_is_malformed(rest: str) -> None:
    written = read_deepseek(f"{START}function{SEPARATOR}{rest}")

    assert written is not None
    assert [(call.name, call.malformed) for call in written.calls] == [("f", True)]


@pytest.mark.parametrize("call", ["", "function", f"function{SEPARATOR}", f"{SEPARATOR}{{}}"])
def test_a_call_without_a_name_stays_text(call: str) -> None:
    assert read_deepseek(f"{START}{call}{END}") is None
