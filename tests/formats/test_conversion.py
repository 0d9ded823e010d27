"""What is reported as dropped, and how hostile data is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from assay.errors import WireError
from assay.formats import from_atif, from_eval_record, from_vertex, read_tools
from assay.formats.anthropic import from_anthropic, to_anthropic
from assay.formats.bedrock import from_bedrock, to_bedrock
from assay.formats.conversion import (
    Converted,
    Dropped,
    apply_spelling,
    compute_spelling,
    expect_mapping,
    expect_message,
    is_same_json,
    make_storable,
    validate_wire,
    write_json_object,
)
from assay.formats.gemini import from_gemini, to_gemini
from assay.formats.huggingface import from_huggingface, to_huggingface
from assay.formats.openai_chat import from_openai_chat, to_openai_chat
from assay.types import Message


def test_an_exact_conversion_gives_its_value() -> None:
    assert Converted([1]).exact() == [1]


def test_a_lossy_conversion_refuses_to_be_exact_and_names_the_loss() -> None:
    lossy = Converted([1], (Dropped("messages[2].reasoning", "left out"),))

    with pytest.raises(WireError, match=r"messages\[2\]\.reasoning: left out") as caught:
        lossy.exact()

    assert caught.value.where == "messages[2].reasoning"
    assert caught.value.hint is not None


def test_a_long_list_of_losses_says_how_many_are_not_shown() -> None:
    lossy = Converted(None, tuple(Dropped(f"messages[{n}].name", "left out") for n in range(8)))

    with pytest.raises(WireError, match="and 3 more"):
        lossy.exact()


@pytest.mark.parametrize(
    "convert",
    [
        from_anthropic,
        from_bedrock,
        from_gemini,
        from_huggingface,
        from_openai_chat,
        to_anthropic,
        to_bedrock,
        to_gemini,
        to_huggingface,
        to_openai_chat,
    ],
)
@pytest.mark.parametrize("messages", [None, 5, "text", {"messages": []}, [[]]])
def test_every_conversion_refuses_what_is_no_list_of_messages(
    convert: Callable[[Any], object], messages: object
) -> None:
    with pytest.raises(WireError) as caught:
        convert(messages)

    assert caught.value.where is not None
    assert caught.value.where.startswith(("messages", "contents"))


def test_something_that_is_no_message_is_refused() -> None:
    with pytest.raises(WireError, match=r"messages\[0\]: dict is not a Message"):
        expect_message({"role": "user"}, "messages[0]")


@pytest.mark.parametrize("value", [None, [], "text", {1: 2}])
def test_something_that_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(WireError, match="here"):
        expect_mapping(value, "here")


def test_a_validation_error_says_where_in_the_message_it_is() -> None:
    with pytest.raises(WireError) as caught:
        validate_wire(Message, {"role": "user", "tool_calls": [{"name": "f"}, {}]}, "messages[3]")

    assert caught.value.where == "messages[3].tool_calls[1].name"


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, True, False),
        (1, 1.0, False),
        ([1, {"a": None}], (1, {"a": None}), True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ([1], [1, 2], False),
        ("a", "a", True),
    ],
)
def test_sameness_is_that_of_json(left: object, right: object, equal: bool) -> None:
    assert is_same_json(left, right) is equal


def test_lone_surrogates_are_repaired_everywhere_and_other_values_are_left_alone() -> None:
    plain = {"a": ["b"]}

    assert make_storable(plain) is plain
    assert make_storable({"a\ud800": ["b\udfff", 1]}) == {"a\ufffd": ["b\ufffd", 1]}


def test_what_json_has_no_word_for_cannot_be_written() -> None:
    with pytest.raises(WireError, match="arguments: the value cannot be written as JSON"):
        write_json_object({"a": object()}, "arguments")


def test_a_spelling_is_the_difference_to_the_usual_one_and_can_be_applied() -> None:
    wire = {"role": "user", "extra": [], "flag": True}
    usual = {"role": "user", "content": None, "flag": 1}

    spelling = compute_spelling(wire, usual, "some_format")

    assert spelling is not None
    assert spelling["unset"] == ["content"]
    assert is_same_json(apply_spelling(usual, spelling), wire)
    assert compute_spelling(usual, usual, "some_format") is None


@pytest.mark.parametrize(
    "read",
    [
        lambda deep: from_atif({"schema_version": "ATIF-v1.8", "extra": deep}),
        lambda deep: from_eval_record({"request": {"contents": []}, "metadata": deep}),
        lambda deep: from_vertex({"prompt": deep}),
        lambda deep: read_tools([{"name": "f", "parameters": deep}], "tools"),
    ],
    ids=["atif", "eval", "vertex", "tools"],
)
@pytest.mark.parametrize("depth", [600, 100_000])
def test_a_document_that_is_nested_too_deeply_is_refused(
    read: Callable[[Any], Any], depth: int
) -> None:
    deep: Any = {}
    for _ in range(depth):
        deep = {"a": deep}

    with pytest.raises(WireError, match="nested too deeply"):
        read(deep)
