"""Every template that TRL ships: what it writes of a turn is read back as it was."""

from typing import Any

import pytest

from assay.providers.tool_call_json import ParsedTurn
from assay.providers.tool_text import detect_call_style, knows_reasoning, opens_reasoning, read_turn
from assay.types import Message, ToolCall, ToolSpec
from trl_templates import FORMATS, folder, template, write_turn

ARGUMENTS: dict[str, Any] = {
    "text": "it's \"fine\"\nünïcode 日本 😀 </parameter> </tool_call>, x='1') \\ end",
    "digits": "007",
    "word": "true",
    "whole": 7,
    "broken": -1.5,
    "yes": True,
    "no": False,
    "nothing": None,
    "listed": ["a", 1, None, True, {"k": "v'\"\n"}],
    "nested": {"deep": {"er": [[], {}, "ü"]}, "blank": ""},
    "blank": "",
}
_TYPES: dict[str, Any] = {
    "text": "string",
    "digits": "string",
    "word": "string",
    "whole": "integer",
    "broken": "number",
    "yes": "boolean",
    "no": "boolean",
    "nothing": ["string", "null"],
    "listed": "array",
    "nested": "object",
    "blank": "string",
}
TOOL = ToolSpec(
    name="look_up",
    description="Looks something up.",
    parameters={
        "type": "object",
        "properties": {name: {"type": kind, "description": "?"} for name, kind in _TYPES.items()},
    },
)
ONE_CALL_ONLY = {"llama3_1", "llama3_2", "gptoss"}
NO_WORDS_BESIDE_A_CALL = {"llama3_1", "llama3_2", "muse_glimmer", "gptoss"}
WRITES_REASONING = {
    "diffusion_gemma",
    "gemma4_v5",
    "glm4moe",
    "gptoss",
    "lfm2_2_5",
    "lfm2_2_5_v2",
    "lfm2_2_5_vl",
    "muse_glimmer",
    "nemotron_3_5_lightning",
    "nemotron_3_nano",
    "nemotron_3_super",
    "nemotron_3_ultra",
    "qwen3",
    "qwen3_5_nothink",
    "qwen3_5_think",
    "qwen3_6",
    "qwen3_8",
}


def said(text: str = "", *arguments: dict[str, Any], reasoning: str | None = None) -> Message:
    calls = [
        ToolCall(id=str(n), name="look_up", arguments=each) for n, each in enumerate(arguments)
    ]
    return Message(role="assistant", content=text, tool_calls=tuple(calls), reasoning=reasoning)


def read_back(name: str, message: Message) -> ParsedTurn:
    turn, source = write_turn(name, message, [TOOL]), template(name)
    style = detect_call_style(source)
    return read_turn(
        turn.completion,
        style,
        tools=[TOOL],
        opened=opens_reasoning(turn.prompt, style),
        reasons=knows_reasoning(source, style),
    )


@pytest.mark.parametrize(("name", "style"), FORMATS.items())
def test_the_format_of_a_template_and_of_its_training_version_is_known(
    name: str, style: str
) -> None:
    assert detect_call_style(template(name)) == style
    if (folder() / f"{name}_training.jinja").exists():
        assert detect_call_style(template(f"{name}_training")) == style


@pytest.mark.parametrize("name", FORMATS)
def test_calls_are_read_back_as_they_were(name: str) -> None:
    turns: list[list[dict[str, Any]]] = [[ARGUMENTS], [{}], [ARGUMENTS, {"whole": 1}]]
    for arguments in turns:
        if len(arguments) > 1 and name in ONE_CALL_ONLY:
            continue

        written = read_back(name, said("", *arguments))

        assert [(call.name, call.arguments) for call in written.calls] == [
            ("look_up", each) for each in arguments
        ]
        assert not any(call.malformed for call in written.calls)
        assert (written.content, written.reasoning or None) == ("", None)


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - NO_WORDS_BESIDE_A_CALL))
def test_words_beside_calls_are_read_back(name: str) -> None:
    written = read_back(name, said("Let me see.", {"text": "a"}, {"text": "b"}))

    assert written.content == "Let me see."
    assert [call.arguments for call in written.calls] == [{"text": "a"}, {"text": "b"}]


def test_gpt_oss_writes_words_before_a_call_as_analysis() -> None:
    written = read_back("gptoss", said("Let me see.", {"text": "a"}))

    assert (written.content, written.reasoning) == ("", "Let me see.")
    assert [call.arguments for call in written.calls] == [{"text": "a"}]


@pytest.mark.parametrize("name", FORMATS)
def test_an_answer_without_a_call_is_read_back(name: str) -> None:
    written = read_back(name, said("It is 4.\nSure."))

    assert (written.content, written.calls) == ("It is 4.\nSure.", ())
    assert not written.reasoning


@pytest.mark.parametrize("name", sorted(WRITES_REASONING))
def test_reasoning_is_read_back_apart_from_the_answer(name: str) -> None:
    answered = read_back(name, said("It is 4.", reasoning="2 + 2"))
    called = read_back(name, said("", {"text": "a"}, reasoning="2 + 2"))

    assert (answered.reasoning, answered.content) == ("2 + 2", "It is 4.")
    assert (called.reasoning, called.content) == ("2 + 2", "")
    assert [call.arguments for call in called.calls] == [{"text": "a"}]
