"""Turns of several messages: what is thought, said and called."""

from assay.providers.argument_types import ArgumentTypes
from assay.providers.turn_channels import read_harmony, read_muse

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
