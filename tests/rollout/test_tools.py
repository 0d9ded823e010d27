"""Tools: the schema a model is told, and how its calls are answered."""

import asyncio
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from assay.errors import ConfigError
from assay.models import Message, ToolCall
from assay.rollout import ToolError, tool
from assay.rollout.tools import Toolbox, describe
from make import called


class Place(BaseModel):
    city: str
    street: str | None = None


def ship(
    order: int,
    to: Place,
    speed: Literal["slow", "fast"] = "slow",
    notes: Annotated[list[str], Field(max_length=2)] = [],  # noqa: B006  # a schema default
) -> str:
    """Ship an order
    to a place.

    More words that the model is not told.

    Args:
        order: The number
            on the receipt.
        to (Place): Where it goes.
    """
    return f"{order} to {to.city}, {speed}, {notes}"


async def place_of(order: str) -> str:
    """Say where an order is.

    :param str order: Its number.
    """
    return {"66": "Hamburg"}.get(order, "unknown")


def answers(*calls: ToolCall) -> list[str]:
    box = Toolbox([ship, place_of])
    return [message.text for message in asyncio.run(box.answer(calls))]


def test_the_schema_comes_from_signature_and_docstring() -> None:
    spec = describe(ship).spec

    assert spec.name == "ship"
    assert spec.description == "Ship an order to a place."
    assert spec.parameters["required"] == ["order", "to"]
    properties = spec.parameters["properties"]
    assert properties["order"] == {"type": "integer", "description": "The number on the receipt."}
    assert properties["to"]["description"] == "Where it goes."
    assert properties["speed"]["enum"] == ["slow", "fast"]
    assert properties["notes"]["maxItems"] == 2
    assert describe(place_of).spec.parameters["properties"]["order"]["description"] == "Its number."


def test_a_tool_without_parameters_has_an_empty_schema() -> None:
    def now() -> str:
        """Say the time."""
        return "late"

    assert describe(now).spec.parameters == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


def test_arguments_are_checked_and_converted() -> None:
    assert answers(called("ship", order=7, to={"city": "Kiel"}, speed="fast")) == [
        "7 to Kiel, fast, []"
    ]


def test_an_unknown_tool_is_answered_in_words() -> None:
    assert answers(called("steal")) == [
        "Error: there is no tool 'steal'; the tools are 'ship', 'place_of'"
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "order: Field required"),
        ({"order": "many", "to": {"city": "Kiel"}}, "order: Input should be a valid integer"),
        ({"order": 1, "to": {"street": "x"}}, "to.city: Field required"),
        ({"order": 1, "to": {"city": "Kiel"}, "gift": 1}, "gift: Extra inputs are not permitted"),
    ],
)
def test_wrong_arguments_are_answered_in_words(arguments: dict[str, Any], words: str) -> None:
    [answer] = answers(called("ship", **arguments))

    assert answer.startswith("Error: wrong arguments for 'ship': ")
    assert words in answer


def test_arguments_that_are_not_json_are_answered_in_words() -> None:
    [answer] = answers(ToolCall.model_validate({"name": "ship", "arguments": '{"order":'}))

    assert answer == "Error: the arguments of 'ship' are not a JSON object: '{\"order\":'"


def test_a_tool_error_is_words_for_the_agent_and_another_exception_is_a_fault() -> None:
    def refuse() -> None:
        """No."""
        raise ToolError("not today")

    def crash() -> None:
        """Boom."""
        raise RuntimeError("the database is gone")

    box = Toolbox([refuse, crash])

    assert [m.text for m in asyncio.run(box.answer([called("refuse")]))] == ["Error: not today"]
    with pytest.raises(RuntimeError, match="the database is gone"):
        asyncio.run(box.answer([called("crash")]))
    with pytest.raises(RuntimeError, match="the database is gone"):
        asyncio.run(box.answer([called("refuse"), called("crash")]))


def test_parallel_calls_run_together_and_are_answered_in_call_order() -> None:
    met = asyncio.Barrier(2)
    finished: list[str] = []

    async def first() -> str:
        """Wait for the other."""
        await met.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        finished.append("first")
        return "one"

    async def second() -> str:
        """Wait for the other."""
        await met.wait()
        finished.append("second")
        return "two"

    box = Toolbox([first, second])

    replies = asyncio.run(box.answer([called("first", "a"), called("second", "b")]))

    assert finished == ["second", "first"]
    assert replies == (
        Message(role="tool", content="one", tool_call_id="a", name="first"),
        Message(role="tool", content="two", tool_call_id="b", name="second"),
    )


def test_results_that_are_not_text_are_written_as_json() -> None:
    def look() -> dict[str, object]:
        """Look."""
        return {"place": Place(city="Kiel"), "set": {1}}

    [answer] = asyncio.run(Toolbox([look]).answer([called("look")]))

    assert answer.text == '{"place":{"city":"Kiel","street":null},"set":[1]}'


def test_a_signature_that_cannot_become_a_schema_fails_where_it_is_written() -> None:
    with pytest.raises(ConfigError, match="tool `loose`: parameter `x` has no type"):

        @tool
        def loose(x) -> None:  # type: ignore[no-untyped-def]  # that is the point
            """No type."""

    with pytest.raises(ConfigError, match=r"tool `starred`: takes \*args"):

        @tool
        def starred(*args: int) -> None:
            """Any number."""


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tools have one name"):
        Toolbox([ship, ship])
