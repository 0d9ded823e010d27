"""Functions as agents: how they are called, and what happens to their mistakes."""

import asyncio
import contextvars
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay import EvalConfig, evaluate_sync
from assay.agents import RunContext
from assay.agents.agent import AgentFault
from assay.agents.function_agent import FunctionAgent, name_function
from assay.errors import ConfigError
from assay.types import Sample, Trajectory

ASKED = Sample(prompt="2 + 2?", ground_truth="4")


def answer(function: Callable[..., object], sample: Sample = ASKED) -> Trajectory:
    async def run() -> Trajectory:
        agent = FunctionAgent(function, "my:agent")
        try:
            return await agent.run(sample, RunContext(messages=sample.messages, repeat=7))
        finally:
            await agent.close()

    return asyncio.run(run())


def test_an_async_function_is_awaited() -> None:
    async def agent(sample: Sample) -> str:
        await asyncio.sleep(0)
        return sample.messages[0].text

    class Callable:
        async def __call__(self, sample: Sample) -> str:
            return "four"

    assert answer(agent).messages[-1].text == "2 + 2?"
    assert answer(lambda sample: agent(sample)).messages[-1].text == "2 + 2?"
    assert answer(Callable()).messages[-1].text == "four"


async def _say_four(sample: Sample) -> dict[str, str]:
    return {"role": "assistant", "content": "four"}


def _say_five(sample: Sample) -> str:
    return "five"


@pytest.mark.parametrize(("function", "said"), [(_say_four, "four"), (_say_five, "five")])
def test_an_agent_in_use_can_be_sent_to_workers(function: Callable[..., object], said: str) -> None:
    async def run() -> list[Trajectory]:
        agent = FunctionAgent(function)
        context = RunContext(messages=ASKED.messages)
        first = await agent.run(ASKED, context)
        copied = pickle.loads(pickle.dumps(agent))
        try:
            return [first, await copied.run(ASKED, context)]
        finally:
            await agent.close()
            await copied.close()

    assert [each.messages[-1].text for each in asyncio.run(run())] == [said, said]


class _Own:
    name = "mine"
    identity = "mine 1"
    closes = 0

    def __init__(self, run: Callable[..., object]) -> None:
        self.run = run

    async def close(self) -> None:
        self.closes += 1


async def _answer_sample(sample: Sample) -> dict[str, str]:
    return {"role": "assistant", "content": "4"}


@pytest.mark.parametrize(
    "run",
    [lambda sample: "4", lambda sample, context: "4", _answer_sample],
    ids=["sample", "sample and context", "async, sample"],
)
def test_run_of_an_object_is_called_as_a_function_is(
    run: Callable[..., object], tmp_path: Path
) -> None:
    agent: Any = _Own(run)  # not of the protocol, whose `run` is async and takes the context
    config = EvalConfig(agent=agent, score_fn="exact_answer")

    report = evaluate_sync([ASKED], config, store=tmp_path / "runs.db")

    assert report.mean == 1.0
    assert report.spec.config["agent"] == {"name": "mine", "identity": "mine 1"}
    assert agent.closes == 1


def test_a_plain_function_runs_in_a_thread_and_its_own_time_is_taken() -> None:
    seen: list[str] = []

    def agent(sample: Sample) -> str:
        seen.append(threading.current_thread().name)
        started = time.perf_counter()
        while time.perf_counter() - started < 0.01:
            pass
        return "four"

    trajectory = answer(agent)

    assert seen == ["assay-agent"]
    assert trajectory.duration is not None
    assert trajectory.duration >= 0.01
    assert trajectory.termination_reason == "agent"
    assert not trajectory.terminated


def test_a_second_parameter_is_the_context() -> None:
    def positional(sample: Sample, more: RunContext) -> str:
        return str(more.repeat)

    def named(sample: Sample, context: RunContext | None = None) -> str:
        return "none" if context is None else str(context.repeat)

    def own_option(sample: Sample, temperature: float = 0.5) -> str:
        return str(temperature)

    found = [answer(each).messages[-1].text for each in (positional, named, own_option)]

    assert found == ["7", "7", "0.5"]


@pytest.mark.parametrize("function", [lambda: "x", lambda a, b, c: "x"])
def test_a_function_that_takes_no_sample_is_refused(function: Callable[..., object]) -> None:
    with pytest.raises(ConfigError, match="cannot be called with a sample"):
        FunctionAgent(function)


def test_a_function_may_read_the_variables_of_its_caller() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("set outside")

    async def asynchronous(sample: Sample) -> str:
        return variable.get()

    assert answer(lambda sample: variable.get()).messages[-1].text == "set outside"
    assert answer(asynchronous).messages[-1].text == "set outside"


def test_an_error_of_a_function_keeps_its_kind_and_place() -> None:
    def agent(sample: Sample) -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        answer(agent)

    assert caught.traceback[-1].name == "agent"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_of_a_function_is_a_fault_of_the_agent(error: BaseException) -> None:
    def agent(sample: Sample) -> str:
        raise error

    with pytest.raises(AgentFault, match=type(error).__name__):
        answer(agent)


def test_a_function_that_raises_stop_iteration_does_not_hang() -> None:
    def agent(sample: Sample) -> str:
        raise StopIteration("x")

    with pytest.raises(RuntimeError, match="the agent raised StopIteration"):
        answer(agent)


def test_blocking_functions_run_at_the_same_time_and_can_be_abandoned() -> None:
    released, entered = threading.Event(), threading.Barrier(21, timeout=60)

    def agent(sample: Sample) -> str:
        entered.wait()
        released.wait(60)
        return "late"

    async def run() -> list[object]:
        made = FunctionAgent(agent)
        context = RunContext(messages=ASKED.messages)
        calls = [asyncio.create_task(made.run(ASKED, context)) for _ in range(20)]
        await asyncio.to_thread(entered.wait)  # all twenty are inside the function
        for call in calls:
            call.cancel()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        await made.close()
        return list(ends)

    try:
        assert all(isinstance(end, asyncio.CancelledError) for end in asyncio.run(run()))
    finally:
        released.set()


def test_an_agent_can_be_used_after_it_was_closed() -> None:
    async def asynchronous(sample: Sample) -> str:
        return "four"

    async def twice(function: Callable[..., object]) -> list[str]:
        agent, texts = FunctionAgent(function), []
        for _ in range(2):
            made = await agent.run(ASKED, RunContext(messages=ASKED.messages))
            texts.append(made.messages[-1].text)
            await agent.close()
        return texts

    assert asyncio.run(twice(lambda sample: "four")) == ["four", "four"]
    assert asyncio.run(twice(asynchronous)) == ["four", "four"]


def test_an_agent_is_known_by_its_name_and_its_code() -> None:
    agent = FunctionAgent(answer, "my:agent")

    assert agent.name == "my:agent"
    assert agent.sha256 is not None
    assert agent.identity != FunctionAgent(name_function, "my:agent").identity
    assert agent.identity == FunctionAgent(answer, "my:agent").identity
    assert FunctionAgent(answer).name.endswith(":answer")
