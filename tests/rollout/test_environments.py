"""The environments that come with assay."""

import asyncio

import pytest

from assay.models import Message
from assay.rollout import (
    BasicEnvironment,
    CalculatorEnvironment,
    Environment,
    ToolEnvironment,
    tool,
)
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
    ],
)
def test_what_is_not_arithmetic_is_answered_in_words_and_never_run(expression: str) -> None:
    assert calculate(expression).startswith("Error: ")


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
