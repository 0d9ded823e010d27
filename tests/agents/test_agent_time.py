"""Time in the turn loop: what counts, what is cut off, and who else gets a turn."""

import asyncio
from collections.abc import Sequence

import pytest

from assay.agents import Limits, RolloutFailed, run_agent
from assay.environments import BasicEnvironment, Step
from assay.providers import ClientSettings, Reply, connect
from assay.types import (
    Boundary,
    Endpoint,
    Message,
    ModelCall,
    ToolSpec,
    Trajectory,
)
from make import asked, said
from scripted import Scripted
from told_loop import in_told_time


class Endless(Scripted):
    """Answers at once, for ever."""

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        return Reply(said("go"), ModelCall())


class Treadmill(BasicEnvironment):
    """Never over, unless it is told so."""

    over = False

    async def step(self, action: Message) -> Step:
        return Step(terminated=self.over)


def test_waiting_for_a_turn_counts_neither_as_duration_nor_against_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Endpoint(provider="mock", model="echo", extra_params={"latency_s": 1.0})

    async def five_at_once() -> list[Trajectory]:
        async with connect(slow, ClientSettings(concurrency=1)) as client:
            return await asyncio.gather(
                *(
                    run_agent(
                        client, BasicEnvironment(), [asked("?")], limits=Limits(max_seconds=1.5)
                    )
                    for _ in range(5)
                )
            )

    ended = in_told_time(five_at_once(), monkeypatch)

    assert [trajectory.termination_reason for trajectory in ended] == ["agent"] * 5
    assert [trajectory.duration for trajectory in ended] == pytest.approx([1.0] * 5)


@pytest.mark.parametrize(("seconds", "reason"), [(3.0, "agent"), (1.0, "max_seconds")])
def test_waiting_between_attempts_does_count(
    seconds: float, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = {"error": {"status": 429, "retry_after": 2}}
    busy = Endpoint(provider="mock", model="script", extra_params={"replies": [error, "8"]})

    async def once() -> Trajectory:
        async with connect(busy) as client:
            limits = Limits(max_seconds=seconds)
            return await run_agent(client, BasicEnvironment(), [asked("?")], limits=limits)

    trajectory = in_told_time(once(), monkeypatch)

    assert trajectory.termination_reason == reason
    assert trajectory.duration is not None
    assert round(trajectory.duration) == min(seconds, 2.0)


def test_closing_is_no_part_of_the_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(BasicEnvironment):
        async def close(self) -> None:
            await asyncio.sleep(5)

    trajectory = in_told_time(run_agent(Scripted(said("8")), Slow(), []), monkeypatch)

    assert trajectory.duration == 0.0
    assert not trajectory.model_extra


def test_an_environment_that_never_closes_is_left_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stuck(BasicEnvironment):
        async def close(self) -> None:
            await asyncio.sleep(3600)

    trajectory = in_told_time(run_agent(Scripted(said("8")), Stuck(), []), monkeypatch)

    told = (trajectory.model_extra or {})["close_error"]
    assert told == "TimeoutError: the environment did not close within 10 s"
    assert trajectory.termination_reason == "agent"


def test_a_timeout_of_closing_itself_is_told_as_it_is() -> None:
    class Late(BasicEnvironment):
        async def close(self) -> None:
            raise TimeoutError("the server did not say goodbye")

    trajectory = asyncio.run(run_agent(Scripted(said("8")), Late(), []))

    told = (trajectory.model_extra or {})["close_error"]
    assert told == "TimeoutError: the server did not say goodbye"


def test_a_timeout_of_the_environment_itself_is_not_the_limit() -> None:
    class Late(BasicEnvironment):
        async def step(self, action: Message) -> Step:
            raise TimeoutError("the tool took too long")

    with pytest.raises(RolloutFailed, match="the tool took too long") as caught:
        asyncio.run(run_agent(Scripted(said("8")), Late(), [], limits=Limits(max_seconds=60)))

    assert caught.value.boundary is Boundary.ENVIRONMENT


def test_seconds_are_counted_where_nothing_ever_waits() -> None:
    limits = Limits(max_seconds=0.005, max_turns=100_000)

    trajectory = asyncio.run(run_agent(Endless(), Treadmill(), [], limits=limits))

    assert trajectory.termination_reason == "max_seconds"
    assert trajectory.truncated


def test_others_get_a_turn_where_nothing_ever_waits() -> None:
    treadmill = Treadmill()

    async def stops_it() -> None:
        treadmill.over = True

    async def both() -> Trajectory:
        running = asyncio.create_task(
            run_agent(Endless(), treadmill, [], limits=Limits(max_turns=100_000))
        )
        await asyncio.sleep(0)
        await stops_it()
        return await running

    assert asyncio.run(both()).termination_reason == "environment"


def test_a_limit_that_the_environment_swallows_ends_the_rollout_at_its_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Deaf(Treadmill):
        async def step(self, action: Message) -> Step:
            try:
                await asyncio.sleep(2)
            except asyncio.CancelledError:
                await asyncio.sleep(0)
            return Step()

    trajectory = in_told_time(
        run_agent(Endless(), Deaf(), [], limits=Limits(max_seconds=3)), monkeypatch
    )

    assert trajectory.termination_reason == "max_seconds"
    assert trajectory.steps == 2
