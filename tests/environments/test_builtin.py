"""The environments that come with assay."""

import asyncio
import inspect
import sys

import pytest

from assay.environments import (
    BasicEnvironment,
    CalculatorEnvironment,
    Environment,
    ToolEnvironment,
    tool,
)
from assay.types import Message
from make import called, said


def calculate(expression: str) -> str:
    step = asyncio.run(
        CalculatorEnvironment().step(said(None, called("calculate", expression=expression)))
    )
    return step.replies[0].text


def test_all_of_them_are_environments() -> None:
    assert isinstance(BasicEnvironment(), Environment)
    assert isinstance(CalculatorEnvironment(), Environment)


def test_the_first_answer_ends_the_basic_environment() -> None:
    step = asyncio.run(BasicEnvironment().step(said("4")))

    assert step.terminated
    assert step.ended_by_agent
    assert step.reward is None


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("5 + 3", "8"),
        ("(2 + 3) * 4", "20"),
        ("-2 ** 2", "-4"),
        ("7 / 2", "3.5"),
        ("7 // 2 % 3", "0"),
        ("1e3", "1000"),
        ("1e15", "1000000000000000"),
        ("99999999 * 99999999", "9999999800000001"),
        ("9007199254740993 - 9007199254740992", "1"),
        ("2 ** 100", "1267650600228229401496703205376"),
        ("2 ** 100 % 1000 // 2", "188"),
        ("2 ** 100 / 2 ** 99", "2"),
        ("123456789012345678 / 2", "61728394506172839"),
        ("2 ** -1", "0.5"),
        ("(-1) ** (2 ** 60 + 1)", "-1"),
        ("9" * 400, "9" * 400),
        ("-" * 499 + "1", "-1"),
    ],
)
def test_the_calculator_calculates(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "1 / 0",
        "2 +",
        "__import__('os').system('true')",
        "().__class__",
        "9 ** 9 ** 9 ** 9",
        "(-8) ** 0.5",
        "True + 1",
        "'a' * 10",
        "1 if 2 else 3",
        "+".join(["1"] * 400),
        "(" * 400,
        "~" * 490 + "1",
    ],
)
def test_what_is_not_arithmetic_is_answered_in_words_and_never_run(expression: str) -> None:
    assert calculate(expression).startswith("Error: ")


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("7 % 0", "division by zero"),
        ("7.5 // 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("1e999", "the result is too large"),
        ("-1e999", "the result is too large"),
        ("1e308 * 10", "the result is too large"),
        ("9 ** 9 ** 9", "the result is too large"),
        ("2 ** 4095 * 2 ** 4095", "the result is too large"),
        ("10 ** 400 + 0.5", "the result is too large"),
        ("(-8) ** 0.5", "the result is not a real number"),
        ("2 * (ä^3)", "only numbers and + - * / // % ** are allowed, not 'ä^3'"),
    ],
)
def test_the_calculator_says_why_it_cannot(expression: str, words: str) -> None:
    assert calculate(expression) == f"Error: {words}"


def test_only_the_beginning_of_a_long_mistake_is_shown() -> None:
    answer = calculate("~" * 490 + "1")

    assert len(answer) < 300
    assert answer.endswith("~… (493 characters)")


def test_an_expression_that_is_nested_too_deeply_is_answered_in_words() -> None:
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 300)
    try:
        answer = calculate("-" * 400 + "1")
    finally:
        sys.setrecursionlimit(usual)

    assert answer == "Error: the expression is nested too deeply"


def test_an_answer_without_a_call_ends_a_tool_environment() -> None:
    step = asyncio.run(CalculatorEnvironment().step(said("8")))

    assert step.terminated
    assert step.ended_by_agent


def test_tools_of_a_base_class_are_offered_first() -> None:
    class Scientific(CalculatorEnvironment):
        @tool
        def root(self, number: float) -> float:
            """Take the square root."""
            return float(number**0.5)

    environment = Scientific()
    step = asyncio.run(environment.step(said(None, called("root", number=16))))

    assert [spec.name for spec in environment.tools] == ["calculate", "root"]
    assert step.replies == (
        Message(role="tool", content="4.0", tool_call_id="call_1", name="root"),
    )


def test_tools_may_be_static_and_class_methods() -> None:
    class Desk(ToolEnvironment):
        place = "Kiel"

        @staticmethod
        @tool
        def inner(a: int) -> int:
            return a

        @tool
        @staticmethod
        def outer(a: int) -> int:
            return a

        @classmethod
        @tool
        def where(cls, a: int) -> str:
            return f"{a} {cls.place}"

        @tool
        @classmethod
        def there(cls, a: int) -> str:
            return f"{a} {cls.place}"

    desk = Desk()
    names = ["inner", "outer", "where", "there"]
    step = asyncio.run(desk.step(said(None, *(called(name, name, a=1) for name in names))))

    assert [spec.name for spec in desk.tools] == names
    assert all(list(spec.parameters["properties"]) == ["a"] for spec in desk.tools)
    assert [reply.text for reply in step.replies] == ["1", "1", "1 Kiel", "1 Kiel"]


def test_each_environment_keeps_its_own_state() -> None:
    class Counter(ToolEnvironment):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        @tool
        def add(self) -> int:
            """Count one up."""
            self.count += 1
            return self.count

    first, second = Counter(), Counter()
    asyncio.run(first.step(said(None, called("add"), called("add", "call_2"))))

    assert (first.count, second.count) == (2, 0)
