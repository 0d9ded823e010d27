"""Functions as agents: what they may return, and what becomes of their mistakes."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from assay.agents.certified_agent import AgentAnswer, AgentFault
from assay.agents.function_agent import FunctionAgent, build_trajectory
from assay.types import Message, Sample, Trajectory
from make import asked, said

ASKED = Sample(prompt="2 + 2?", ground_truth="4")


def answered(function: Callable[..., object], sample: Sample = ASKED) -> AgentAnswer:
    async def run() -> AgentAnswer:
        agent = FunctionAgent(function, "my:agent")
        try:
            return await agent.answer(sample, seed=None)
        finally:
            await agent.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    "value",
    [
        "four",
        said("four"),
        {"role": "assistant", "content": "four"},
        [said("four")],
        [asked("2 + 2?"), said("let me see"), said("four")],
        Trajectory(messages=[asked("2 + 2?"), said("four")]),
    ],
    ids=["text", "message", "dict", "messages", "conversation", "trajectory"],
)
def test_text_messages_and_trajectories_are_answers(value: Any) -> None:
    trajectory = answered(lambda sample: value).trajectory

    assert [message.role for message in trajectory.messages][:2] == ["user", "assistant"]
    assert trajectory.messages[-1].text == "four"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "returned None"),
        (4, "returned a int"),
        ([], "returned a list"),
        (b"four", "returned a bytes"),
        ([3], "an invalid message"),
        (Trajectory(), "without messages"),
    ],
)
def test_anything_else_is_no_answer(value: Any, message: str) -> None:
    with pytest.raises(AgentFault, match=message):
        build_trajectory(value, ASKED, 0.1)


def test_an_async_function_is_awaited() -> None:
    async def agent(sample: Sample) -> str:
        await asyncio.sleep(0)
        return sample.messages[0].text

    assert answered(agent).trajectory.messages[-1].text == "2 + 2?"
    assert answered(lambda sample: agent(sample)).trajectory.messages[-1].text == "2 + 2?"


def test_a_plain_function_runs_in_a_thread_and_its_own_time_is_taken() -> None:
    seen: list[str] = []

    def agent(sample: Sample) -> str:
        seen.append(threading.current_thread().name)
        started = time.perf_counter()
        while time.perf_counter() - started < 0.01:
            pass
        return "four"

    found = answered(agent)

    assert seen == ["assay-agent"]
    assert found.seconds >= 0.01
    assert found.trajectory.duration == found.seconds


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), StopIteration("x")])
def test_whatever_a_function_raises_is_a_fault_of_the_agent(error: BaseException) -> None:
    def agent(sample: Sample) -> str:
        raise error

    with pytest.raises(AgentFault, match=type(error).__name__):
        answered(agent)


@pytest.mark.parametrize("first", [asked("1 + 1?"), said("Sure.")])
def test_a_trajectory_cannot_leave_out_or_change_what_was_asked(first: Message) -> None:
    made = Trajectory(messages=[first, said("four")])

    messages = build_trajectory(made, ASKED, 0.1).messages

    assert [message.text for message in messages] == ["2 + 2?", first.text, "four"]
    assert len(made.messages) == 2


def test_a_trajectory_may_have_messages_before_the_question() -> None:
    made = Trajectory(messages=[said("Welcome."), asked("2 + 2?"), said("four")])

    assert build_trajectory(made, ASKED, 0.1) == made


def test_the_agent_cannot_read_the_answer() -> None:
    shown: list[Any] = []

    def agent(sample: Sample) -> Message:
        shown.append(sample.ground_truth)
        return said("?")

    answered(agent)

    assert shown == [None]


def test_an_agent_is_known_by_its_code() -> None:
    agent = FunctionAgent(answered, "my:agent")

    assert agent.name == "my:agent"
    assert agent.sha256 is not None
    assert agent.sha256 in agent.identity
