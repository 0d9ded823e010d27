"""Values that agents should not return: damaged ones are converted or refused, never crash."""

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_outputs import RECORDED, recorded
from assay.errors import WireError
from assay.formats import convert_agent_output
from assay.types import Message, Sample


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "the agent returned None"),
        ([], "the agent returned an empty list"),
        ((), "the agent returned an empty list"),
        (object(), "the agent returned a value of type object"),
        (b"not JSON", "the agent returned a value of type bytes"),
        ((text for text in ["Rain."]), "the agent returned a value of type generator"),
        (Sample(messages=[]), "the agent returned a Sample"),
        ({"messages": []}, "the agent returned a value of type dict without a readable message"),
        ({"messages": ["a"]}, "the agent returned a value of type dict without a readable message"),
        ({"choices": []}, "the agent returned a value of type dict without a readable message"),
        ({"role": 5}, r"messages\[0\].role: unreadable: .*valid string"),
    ],
)
def test_a_value_that_is_not_an_answer_is_refused(value: object, said: str) -> None:
    with pytest.raises(WireError, match=said) as refused:
        convert_agent_output(value)

    assert "return " in (refused.value.hint or "")


def nest(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def contain_itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["messages"] = [value]
    return value


def multiply(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value] * 10
    return value


class Raising:
    @property
    def model_dump(self) -> object:
        raise RuntimeError("no fields today")


class Exiting:
    def to_dict(self) -> object:
        sys.exit(3)


class Endless:
    def to_dict(self) -> object:
        return {"again": Endless()}


class Lying:
    @property  # type: ignore[misc]  # read-only, to raise
    def __class__(self) -> Any:
        raise ValueError("no class today")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (nest(100_000), "nested too deeply"),
        ([{"role": "assistant", "content": nest(500)}], "nested too deeply"),
        (contain_itself(), r"output.messages\[0\]: the value contains itself"),
        ([0] * 600_000, "more than 500,000 parts"),
        (Raising(), "the Raising cannot be read: RuntimeError: no fields today"),
        (Exiting(), "the Exiting cannot be read: SystemExit: 3"),
        (Endless(), "nested too deeply"),
        (Lying(), "the Lying cannot be read: ValueError: no class today"),
        ([Lying()], "cannot be read: ValueError: no class today"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_hostile_value_is_refused(value: object, said: str) -> None:
    with pytest.raises(WireError, match=said):
        convert_agent_output(value)


def test_a_value_that_is_small_here_and_vast_when_it_is_read_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("assay.formats.plain_values.MAX_VALUES", 5_000)

    with pytest.raises(WireError, match="more than 5,000 parts"):
        convert_agent_output(multiply(30))


words = st.sampled_from(
    "role content type parts kind part_kind tool_calls function name arguments args id call_id "
    "output error status text message messages choices candidates contents usage lc kwargs data "
    "steps state task source value answer assistant user model ai request response tool-call "
    "tool-return tool_use tool_result function_call reasoning output_text refusal { x".split()
)


leaves = st.none() | st.booleans() | st.integers() | st.floats() | words


anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=6),
    max_leaves=20,
)


@given(anything)
def test_any_json_is_converted_or_refused(value: object) -> None:
    try:
        output = convert_agent_output(value)
    except WireError:
        return

    assert output.messages
    for message in output.messages:
        assert Message.model_validate_json(message.model_dump_json()).role == message.role


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """A recorded output in which up to three values are others."""
    names = sorted(path.stem for path in RECORDED.iterdir())
    value = recorded(draw(st.sampled_from(names)))
    for _ in range(draw(st.integers(1, 3))):
        place = value
        while True:
            keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key: Any = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and draw(st.booleans()):
                place = place[key]
                continue
            place[key] = draw(anything)
            break
    return value


@given(damaged())
def test_damaged_outputs_are_converted_or_refused(value: Any) -> None:
    try:
        output = convert_agent_output(value)
    except WireError:
        return

    assert output.messages
