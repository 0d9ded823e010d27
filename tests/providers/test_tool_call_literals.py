"""Calls with literals as arguments, and literals by themselves."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.providers.literals import LiteralReader
from assay.providers.tool_call_literals import read_gemma, read_python_calls

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(VALUES)
def test_what_python_writes_is_read_back(value: Any) -> None:
    assert LiteralReader(repr(value)).read_whole() == value


@pytest.mark.parametrize(
    "text", ["", "f()", "1 2", "{1: 2}", "'a", "1e999", "[1", "[" * 200, "{'a' 1}", "'\\ud800'"]
)
def test_what_is_no_literal_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # whatever is wrong with it
        LiteralReader(text).read_whole()


def wrapped(calls: str) -> str:
    return f"<|tool_call_start|>[{calls}]<|tool_call_end|>"


def test_python_calls_without_brackets_and_with_json_quotes_are_read() -> None:
    written = read_python_calls('<|tool_call_start|>f(a="x\\"y", b={"k": null})', escapes=True)

    assert written is not None
    assert [(call.name, call.arguments) for call in written.calls] == [
        ("f", {"a": 'x"y', "b": {"k": None}})
    ]


def test_quotes_that_are_not_escaped_end_where_the_argument_does() -> None:
    text = wrapped("f(a='it's', b='x', c='it's)'), g(a='C:\\new')")

    written = read_python_calls(text, escapes=False)

    assert written is not None
    assert [call.arguments for call in written.calls] == [
        {"a": "it's", "b": "x", "c": "it's)"},
        {"a": "C:\\new"},
    ]


@pytest.mark.parametrize("call", ["f(a=?)", "f(1)", "f(a='x", "f(a=[1)", "f("])
def test_python_arguments_that_cannot_be_read_are_kept_as_they_were_written(call: str) -> None:
    for escapes in (True, False):
        written = read_python_calls(wrapped(call), escapes=escapes)

        assert written is not None
        (broken,) = written.calls
        assert broken.malformed
        assert str(broken.raw_arguments).startswith("(")


def test_a_list_without_a_name_stays_text() -> None:
    assert read_python_calls(wrapped("1, 2"), escapes=True) is None
    assert read_gemma("<|tool_call>f{}<tool_call|>") is None


def test_gemma_arguments_that_are_json_are_read_too() -> None:
    written = read_gemma('<|tool_call>call:f{"a": "x", "b": [1]}<tool_call|>')

    assert written is not None
    assert written.calls[0].arguments == {"a": "x", "b": [1]}


@pytest.mark.parametrize("body", ["{a:x}", '{a:<|"|>x}', "{a:1", "{", "{a}", "{a:1}b"])
def test_gemma_arguments_that_cannot_be_read_are_kept_as_they_were_written(body: str) -> None:
    written = read_gemma(f"<|tool_call>call:f{body}<tool_call|>")

    assert written is not None
    (broken,) = written.calls
    assert (broken.malformed, broken.raw_arguments) == (True, body)
