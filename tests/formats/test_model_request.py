"""Requests and answers between APIs: settings, finish reasons, tools that take text."""

import pytest

from assay.errors import WireError
from assay.formats import normalize_finish_reason
from assay.formats.model_request import (
    build_free_text_tool,
    collect_settings,
    get_free_text,
    wrap_free_text_calls,
)
from assay.types import Message, ToolCall

PLAIN = Message(role="assistant", content="x")
CALLING = Message(role="assistant", tool_calls=(ToolCall(id="1", name="f"),))


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("stop", PLAIN, "stop"),
        ("end_turn", PLAIN, "stop"),
        (None, PLAIN, "stop"),
        ("stop", CALLING, "tool_calls"),
        ("tool_use", CALLING, "tool_calls"),
        ("MAX_TOKENS", PLAIN, "length"),
        ("length", CALLING, "length"),
        ("refusal", PLAIN, "content_filter"),
        ("unheard of", PLAIN, "stop"),
    ],
)
def test_finish_reasons_have_one_name(reason: str | None, message: Message, expected: str) -> None:
    assert normalize_finish_reason(reason, message) == expected


def test_settings_are_named_ignored_or_refused() -> None:
    body = {"model": "m", "top": 1, "user": "u", "flag": False, "unset": None, "empty": []}
    settings, dropped = collect_settings(
        body, names={"top": "top_p"}, known={"model"}, ignored={"user"}
    )

    assert settings == {"top_p": 1}
    assert [each.where for each in dropped] == ["user"]
    with pytest.raises(WireError, match="`logit_bias` cannot be translated"):
        collect_settings({"logit_bias": {"1": 2}}, names={}, known=(), ignored=())


def test_a_tool_that_takes_text_becomes_one_with_an_argument_and_back() -> None:
    call = ToolCall(id="1", name="patch", raw_arguments="*** Begin", type="custom")
    message = Message(role="assistant", tool_calls=(call,))

    (wrapped,) = wrap_free_text_calls([message])

    assert wrapped.tool_calls[0].arguments == {"input": "*** Begin"}
    assert get_free_text(wrapped.tool_calls[0]) == "*** Begin"
    assert build_free_text_tool("patch", "d").parameters["required"] == ["input"]
    assert wrap_free_text_calls([PLAIN]) == [PLAIN]
