"""Tool calls and reasoning inside text: what is read, and what stays text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.providers.tool_call_tags import ArgumentTypes
from assay.providers.tool_text import (
    STYLES,
    CallStyle,
    detect_call_style,
    read_calls,
    read_harmony,
    read_muse,
    read_turn,
    split_reasoning,
)
from assay.types import ToolCall, ToolSpec
from make import said
from tiny_models import FAMILIES, Family, chat_template

HERMES = '<tool_call>\n{"name": "lookup", "arguments": {"order": "A-7"}}\n</tool_call>'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "style"),
    [
        ("qwen2.5", "hermes"),
        ("qwen3", "hermes"),
        ("llama3", "llama"),
        ("mistral", "mistral"),
        ("smollm2", None),
        ("plain", None),
    ],
)
def test_the_style_is_found_in_the_chat_template(family: Family, style: CallStyle | None) -> None:
    assert family in FAMILIES
    assert detect_call_style(chat_template(family)) == style


def test_tags_between_hermes_tags_are_formats_of_their_own() -> None:
    assert detect_call_style("<tool_call>\n<function=NAME>\n<parameter=...") == "qwen3.5"
    assert detect_call_style("<tool_call>NAME\n<arg_key>...") == "glm4"


@pytest.mark.parametrize(
    ("style", "text", "content"),
    [
        ("hermes", HERMES, ""),
        ("hermes", f"Let me see.\n{HERMES}", "Let me see."),
        ("hermes", f"Two lines.\n\n{HERMES}", "Two lines.\n"),
        ("hermes", HERMES.removesuffix("\n</tool_call>"), ""),
        ("hermes", f"{HERMES}\nDone.", "\n\nDone."),
        ("llama", '{"name": "lookup", "parameters": {"order": "A-7"}}', ""),
        ("llama", '<|python_tag|>{"name": "lookup", "arguments": {"order": "A-7"}}', ""),
        ("mistral", '[TOOL_CALLS][{"name": "lookup", "arguments": {"order": "A-7"}}]', ""),
        ("mistral", 'Yes.[TOOL_CALLS] [{"name": "lookup", "arguments": {"order": "A-7"}}]', "Yes."),
        ("mistral", '[TOOL_CALLS]lookup[ARGS]{"order": "A-7"}', ""),
        ("mistral", '[TOOL_CALLS]lookup[CALL_ID]abc123def[ARGS]{"order": "A-7"}', ""),
    ],
)
def test_a_call_is_read(style: CallStyle, text: str, content: str) -> None:
    written = read_calls(text, style)

    assert [(call.name, call.arguments) for call in written.calls] == [("lookup", {"order": "A-7"})]
    assert written.content == content


def test_several_calls_are_read_in_their_order() -> None:
    two = HERMES + "\n" + HERMES.replace("A-7", "B-8")
    listed = '[TOOL_CALLS]a[ARGS]{"x": 1}[TOOL_CALLS]b[ARGS]{"x": 2}'

    assert [call.arguments["order"] for call in read_calls(two, "hermes").calls] == ["A-7", "B-8"]
    assert [call.name for call in read_calls(listed, "mistral").calls] == ["a", "b"]


def test_an_id_that_the_model_wrote_is_kept() -> None:
    (call,) = read_calls("[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{}", "mistral").calls

    assert call.id == "abc123def"


def test_arguments_in_a_string_are_kept_as_the_model_wrote_them() -> None:
    text = '<tool_call>{"name": "f", "arguments": "not json"}</tool_call>'

    (call,) = read_calls(text, "hermes").calls

    assert call.malformed
    assert call.raw_arguments == "not json"


@pytest.mark.parametrize(
    ("style", "text", "raw"),
    [
        (
            "hermes",
            '<tool_call>\n{"name": "f", "arguments": {"x": }}\n</tool_call>',
            '{"name": "f", "arguments": {"x": }}',
        ),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"x": "a', None),
        ("hermes", '<tool_call>{"name": "f", "arguments": {}}}</tool_call>', None),
        ("qwen3.5", '<tool_call>{"name": "f", "arguments": {"x": }}</tool_call>', None),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"x": }', '{"x": }'),
    ],
)
def test_a_named_call_with_broken_arguments_is_a_malformed_call(
    style: CallStyle, text: str, raw: str | None
) -> None:
    (call,) = read_calls(text, style).calls

    assert (call.name, call.malformed, call.arguments) == ("f", True, {})
    assert raw is None or call.raw_arguments == raw


def test_calls_beside_a_malformed_one_are_read() -> None:
    text = f'{HERMES}<tool_call>{{"name": "f", "arguments": {{"x": }}}}</tool_call>{HERMES}Done.'

    written = read_calls(text, "hermes")

    assert [(call.name, call.malformed) for call in written.calls] == [
        ("lookup", False),
        ("f", True),
        ("lookup", False),
    ]
    assert written.content == "\nDone."


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("hermes", "<tool_call>{broken</tool_call>"),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": 3, "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"x": NaN}}</tool_call>'),
        ("hermes", f"{HERMES}<tool_call>oops</tool_call>"),
        ("hermes", "<tool_call>" + "[" * 5000 + "</tool_call>"),
        ("llama", 'Sure: {"name": "f", "parameters": {}}'),
        ("llama", '[{"name": "f", "parameters": {}}]'),
        ("mistral", "[TOOL_CALLS][1, 2]"),
        ("mistral", "[TOOL_CALLS][]"),
        ("mistral", "[TOOL_CALLS]f{}"),
        (None, HERMES),
    ],
)
def test_what_is_no_call_stays_what_the_model_said(style: CallStyle | None, text: str) -> None:
    written = read_calls(text, style)

    assert written.calls == ()
    assert written.content == text


MARKS = (
    "<tool_call>",
    '<tool_call>{"name": "f", "arguments": {"x": "',
    '<tool_call>{"name": "f", "arguments": {"x": "</tool_call>',
    "</tool_call>",
    "[TOOL_CALLS]",
    "{",
    "<function=f>",
    "<parameter=x>",
    "</parameter>",
    "</function>",
    "<arg_key>x</arg_key><arg_value>",
    "</arg_value>",
    "<|tool_call_start|>[f(",
    "x='",
    "')]",
    "<|tool_call_end|>",
    '<|tool_call>call:f{x:<|"|>',
    '<|"|>}<tool_call|>',
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n",
    "\n```<｜tool▁call▁end｜>",
    " to=functions.f<|channel|>commentary json<|message|>",
    "<|end|><|start|>assistant",
    '<atem:invoke name="f"><atem:parameter name="x">',
    "</atem:parameter></atem:invoke>",
)


@given(
    text=st.lists(st.text(max_size=5) | st.sampled_from(MARKS), max_size=8).map("".join),
    style=st.sampled_from(STYLES),
)
def test_no_text_raises_and_no_call_is_lost(text: str, style: CallStyle) -> None:
    written = read_calls(text, style)

    if style not in ("gpt-oss", "muse"):
        assert written.calls or written.content == text
    for call in written.calls:
        assert call.name
        assert ToolCall.model_validate_json(call.model_dump_json()) == call


@pytest.mark.parametrize("style", STYLES)
def test_a_long_text_of_broken_calls_is_read_in_one_pass(style: CallStyle) -> None:
    for mark in MARKS:
        # A reader that goes back for each mark would not end in the time of a test.
        read_calls(mark * 20_000, style)
        read_calls("<tool_call><function=f><parameter=x>" * 10_000 + mark * 10_000, style)


def test_a_call_inside_of_reasoning_is_not_a_call() -> None:
    text = f"<think>\nMaybe {HERMES}\n</think>\n\nNo."
    lookup = ToolSpec(name="lookup")

    written = read_turn(text, "hermes", tools=[lookup], opened=False, reasons=True)

    assert (written.content, written.calls) == ("No.", ())
    assert written.reasoning == f"Maybe {HERMES}"


def test_a_closing_tag_inside_of_a_string_does_not_end_the_call() -> None:
    text = HERMES.replace("A-7", "</tool_call>")

    (call,) = read_calls(text, "hermes").calls

    assert call.arguments == {"order": "</tool_call>"}


@given(
    words=st.text(alphabet="ab \n", max_size=8).filter(lambda text: text == text.strip()),
    arguments=st.dictionaries(
        st.text(min_size=1, max_size=5), st.integers() | st.text(), max_size=3
    ),
)
def test_a_canonical_call_is_written_back_as_it_was(
    words: str, arguments: dict[str, object]
) -> None:
    body = json.dumps({"name": "f", "arguments": arguments}, ensure_ascii=False)
    if "</tool_call>" in body or "<tool_call>" in body:
        return
    text = (
        f"{words}\n<tool_call>\n{body}\n</tool_call>"
        if words
        else f"<tool_call>\n{body}\n</tool_call>"
    )

    written = read_calls(text, "hermes")

    message = said(written.content, *written.calls)
    (call,) = message.tool_calls
    again = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    start = f"{message.text}\n" if message.text else ""
    assert f"{start}<tool_call>\n{again}\n</tool_call>" == text


@pytest.mark.parametrize(
    ("text", "opened", "expected"),
    [
        ("<think>\nhm\n</think>\n\nYes", False, ("hm", "Yes")),
        ("hm\n</think>\n\nYes", True, ("hm", "Yes")),
        ("<think>\n\n</think>\n\nYes", False, ("", "Yes")),
        ("Yes", False, (None, "Yes")),
        ("<think>\nhm", False, (None, "<think>\nhm")),
        ("hm", True, (None, "hm")),
        ("Yes </think>", False, (None, "Yes </think>")),
    ],
)
def test_reasoning_is_parted_from_the_answer(
    text: str, opened: bool, expected: tuple[str | None, str]
) -> None:
    assert split_reasoning(text, opened=opened) == expected


TYPES = ArgumentTypes([])
ANALYSIS = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"


def test_the_header_that_gpt_oss_samples_names_the_function_after_the_channel() -> None:
    text = ANALYSIS + '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}'

    written = read_harmony(text + "<|call|>", TYPES)

    assert [(call.name, call.arguments) for call in written.calls] == [("f", {"a": 1})]
    assert (written.reasoning, written.content) == ("hm", "")


def test_commentary_without_a_recipient_is_said() -> None:
    text = "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant"

    written = read_harmony(text + " to=functions.f<|channel|>commentary json<|message|>{", TYPES)

    assert written.content == "I will look."
    assert [(call.name, call.raw_arguments) for call in written.calls] == [("f", "{")]


def test_without_tools_a_call_stays_what_the_model_said() -> None:
    called = ' to=functions.f<|channel|>commentary json<|message|>{"a": 1}<|call|>'

    assert read_harmony(called, None).content == '{"a": 1}'
    assert read_muse(" to=f<|message|>words<|eot|>", None).content == "words"


def test_text_outside_of_any_message_is_kept() -> None:
    assert read_harmony("plain words", TYPES).content == "plain words"
    assert read_muse("plain words", TYPES).content == "plain words"


def test_a_message_to_a_tool_without_a_call_is_a_malformed_one() -> None:
    written = read_muse(" to=f<|message|>words<|eot|>", TYPES)

    assert [(call.name, call.malformed) for call in written.calls] == [("f", True)]


def test_several_calls_in_one_block_are_read() -> None:
    block = "".join(
        f'<atem:invoke name="f">\n<atem:parameter name="x">{n}</atem:parameter>\n</atem:invoke>\n'
        for n in (1, 2)
    )
    text = f" to=f<|message|><atem:function_calls>\n{block}</atem:function_calls><|eot|>"

    assert [call.arguments for call in read_muse(text, TYPES).calls] == [{"x": 1}, {"x": 2}]
