"""Tools: the schema a model is told, and how its calls are answered."""

import asyncio
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from assay.environments import ToolError, tool
from assay.environments.tools import Toolbox, describe_tool
from assay.errors import ConfigError, EnvironmentFault
from assay.types import Message, ToolCall
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
    spec = describe_tool(ship).spec

    assert spec.name == "ship"
    assert spec.description == "Ship an order to a place."
    assert spec.parameters["required"] == ["order", "to"]
    properties = spec.parameters["properties"]
    assert properties["order"] == {"type": "integer", "description": "The number on the receipt."}
    assert properties["to"]["description"] == "Where it goes."
    assert properties["speed"]["enum"] == ["slow", "fast"]
    assert properties["notes"]["maxItems"] == 2
    assert (
        describe_tool(place_of).spec.parameters["properties"]["order"]["description"]
        == "Its number."
    )


def test_a_tool_without_parameters_has_an_empty_schema() -> None:
    def now() -> str:
        """Say the time."""
        return "late"

    assert describe_tool(now).spec.parameters == {
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
        "Error: unknown tool 'steal'; the tools are 'ship', 'place_of'"
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

    assert answer.startswith("Error: invalid arguments for 'ship': ")
    assert words in answer


def test_arguments_that_are_not_json_are_answered_in_words() -> None:
    [answer] = answers(ToolCall.model_validate({"name": "ship", "arguments": '{"order":'}))

    assert answer == "Error: the arguments of 'ship' are not a JSON object: '{\"order\":'"


def test_of_what_a_model_wrote_wrongly_only_the_beginning_is_shown_again() -> None:
    long = "x" * 100_000

    shown = answers(
        ToolCall.model_validate({"name": "ship", "arguments": long}),
        called(long),
        ToolCall(name="ship", arguments={long: 1}),
    )

    assert all(len(answer) < 500 for answer in shown)
    assert shown[0].endswith("x… (100002 characters)")


def test_blank_arguments_suit_a_tool_without_parameters() -> None:
    def now() -> str:
        """Say the time."""
        return "late"

    call = ToolCall.model_validate({"name": "now", "arguments": ""})

    assert [m.text for m in asyncio.run(Toolbox([now]).answer([call]))] == ["late"]


def test_a_tool_error_is_words_for_the_agent_and_another_exception_is_a_fault() -> None:
    def refuse() -> None:
        """No."""
        raise ToolError("not today")

    def crash() -> None:
        """Boom."""
        raise RuntimeError("the database is gone")

    box = Toolbox([refuse, crash])

    [refused] = asyncio.run(box.answer([called("refuse")]))
    assert (refused.text, refused.details) == ("Error: not today", {"failed": True})
    with pytest.raises(RuntimeError, match="the database is gone"):
        asyncio.run(box.answer([called("crash")]))
    with pytest.raises(RuntimeError, match="the database is gone"):
        asyncio.run(box.answer([called("refuse"), called("crash")]))


def leave() -> None:
    """Leave."""
    sys.exit(3)


async def wait_in_vain() -> None:
    """Wait for what does not come."""
    waiting = asyncio.ensure_future(asyncio.Event().wait())
    waiting.cancel()
    await waiting


@pytest.mark.parametrize("others", [[], [called("place_of", order="66")]])
@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (leave, r"the tool 'leave' called sys\.exit\(3\)"),
        (wait_in_vain, "an operation that the tool 'wait_in_vain' awaited was cancelled"),
    ],
)
def test_a_tool_that_exits_or_is_cancelled_by_itself_is_a_fault(
    broken: Callable[[], object], words: str, others: list[ToolCall]
) -> None:
    box = Toolbox([broken, place_of])

    with pytest.raises(EnvironmentFault, match=words) as fault:
        asyncio.run(box.answer([called(broken.__name__), *others]))

    assert isinstance(fault.value.__cause__, SystemExit | asyncio.CancelledError)


@pytest.mark.parametrize("calls", [1, 2])
def test_the_cancellation_of_a_rollout_goes_through_its_tools(calls: int) -> None:
    async def hang() -> None:
        """Hang."""
        await asyncio.Event().wait()

    async def cancelled() -> bool:
        answering = asyncio.ensure_future(Toolbox([hang]).answer([called("hang")] * calls))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        answering.cancel()
        await asyncio.wait([answering])
        return answering.cancelled()

    assert asyncio.run(cancelled())


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
    with pytest.raises(ConfigError, match="tool `loose`: parameter `x` has no type annotation"):

        @tool
        def loose(x) -> None:  # type: ignore[no-untyped-def]  # that is the point
            """No type."""

    with pytest.raises(ConfigError, match=r"tool `starred`: the tool takes \*args"):

        @tool
        def starred(*args: int) -> None:
            """Any number."""

    with pytest.raises(ConfigError, match="tool `placed`: parameter `x` is positional-only"):

        @tool
        def placed(x: int, /) -> None:
            """By its place."""

    with pytest.raises(ConfigError, match=r"tool `early`: .* name 'Nowhere' is not defined"):

        @tool
        def early(x: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821  # the point
            """Not known."""

    with pytest.raises(ConfigError, match=r"tool `foreign`: Unable to generate .* schema"):

        @tool
        def foreign(x: asyncio.Event) -> None:
            """No schema."""


def test_types_of_the_result_and_of_self_need_not_be_known() -> None:
    class Later:
        @tool
        def look(self: "Later", x: int) -> "Later":
            """Look."""
            return self

    assert list(describe_tool(Later.look).spec.parameters["properties"]) == ["x"]


def properties(function: Callable[..., Any]) -> dict[str, Any]:
    found: dict[str, Any] = describe_tool(function).spec.parameters["properties"]
    return found


def test_fields_in_the_signature_describe_and_restrict_a_parameter() -> None:
    def count(
        first: Annotated[int, Field(description="Where to begin.")],
        step: int = Field(3, ge=1, description="How far to go."),
        told: Annotated[int, Field(le=9)] = 0,
    ) -> str:
        """Count.

        Args:
            told: What the docstring says.
        """
        return repr((first, step, told))

    asked = [called("count", first=1), called("count", first=1, step=0)]
    good, wrong = asyncio.run(Toolbox([count]).answer(asked))

    assert good.text == "(1, 3, 0)"
    assert wrong.text.endswith("step: Input should be greater than or equal to 1")
    assert properties(count) == {
        "first": {"type": "integer", "description": "Where to begin."},
        "step": {"type": "integer", "default": 3, "minimum": 1, "description": "How far to go."},
        "told": {
            "type": "integer",
            "default": 0,
            "maximum": 9,
            "description": "What the docstring says.",
        },
    }


def test_a_parameter_may_have_any_name() -> None:
    def store(
        schema: str, json: str, copy: str, model_config: str, model_extra: str, _own: str
    ) -> str:
        """Store."""
        return "".join((schema, json, copy, model_config, model_extra, _own))

    names = ["schema", "json", "copy", "model_config", "model_extra", "_own"]
    call = called("store", **dict(zip(names, "abcdef", strict=True)))

    assert list(properties(store)) == names
    assert [m.text for m in asyncio.run(Toolbox([store]).answer([call]))] == ["abcdef"]


def after_blank_lines(a: int, b: int, c: int) -> None:
    """Do
    a thing.

    Args:
        a: The a,

            in two paragraphs.

        b (dict(str, int)): The b: with a colon.
        c:
            The c.

    Returns:
        a: Nothing.
    """


def without_blank_line(a: int, b: int, c: int) -> None:
    """Do a thing.
    Args:
        a: The a, in two paragraphs.
        b: The b: with a colon.
        c: The c.
    """


def with_fields(a: int, b: int, c: int) -> None:
    """Do a thing.
    :param a: The a,
        in two paragraphs.
    :param list[int] or None b: The b: with a colon.
    :param c: The c.
    :returns: Nothing.
    """


@pytest.mark.parametrize("function", [after_blank_lines, without_blank_line, with_fields])
def test_docstrings_are_read_with_and_without_blank_lines(function: Callable[..., None]) -> None:
    assert describe_tool(function).spec.description == "Do a thing."
    assert {name: entry["description"] for name, entry in properties(function).items()} == {
        "a": "The a, in two paragraphs.",
        "b": "The b: with a colon.",
        "c": "The c.",
    }


def test_a_parameter_without_a_note_does_not_take_that_of_the_next() -> None:
    def go(a: int, b: int) -> None:
        """Go.

        Args:
            a:
            b: The b.
        """

    assert "description" not in properties(go)["a"]
    assert properties(go)["b"]["description"] == "The b."


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tools have the same name"):
        Toolbox([ship, ship])
