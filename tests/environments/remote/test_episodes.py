"""`SessionPool`: each step once, a bounded number of them, and none that is forgotten."""

import asyncio
import gc
import pickle
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy
import pytest

from assay.environments import Environment, Step
from assay.environments.remote.episodes import (
    AtCapacity,
    BadTask,
    EpisodeOver,
    NoSuchSession,
    OutOfOrder,
    SessionPool,
)
from assay.errors import ConfigError, EnvironmentFault
from assay.types import Message
from make import called, said
from served_environments import Counting, Faulty

COUNT = said(None, called("count"))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def counting(task: Mapping[str, Any]) -> Environment:
    return Counting()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(180):
            await test()

    asyncio.run(bounded())


@pytest.mark.parametrize("seed", [0, 1, -7, 2**70, None])
def test_the_seed_arrives_as_given(seed: int | None) -> None:
    async def test() -> None:
        session = await SessionPool(counting).open(seed=seed)

        assert session.opening[0].content == f"Count from seed {seed}."

    run(test)


def test_a_step_that_was_done_is_answered_from_memory() -> None:
    async def test() -> None:
        sessions = SessionPool(counting)
        session = await sessions.open()

        first = await sessions.step(session.id, COUNT, 0)
        again = await sessions.step(session.id, COUNT, 0)
        second = await sessions.step(session.id, COUNT, 1)

        assert again is first
        assert second.step.info["count"] == 2

    run(test)


def test_a_step_asked_for_twice_at_once_is_done_once() -> None:
    async def test() -> None:
        sessions = SessionPool(counting)
        session = await sessions.open()

        answers = await asyncio.gather(*(sessions.step(session.id, COUNT, 0) for _ in range(20)))

        assert {answer.step.info["count"] for answer in answers} == {1}
        assert len(session.steps) == 1

    run(test)


def test_a_gap_is_refused() -> None:
    async def test() -> None:
        sessions = SessionPool(counting)
        session = await sessions.open()

        with pytest.raises(OutOfOrder, match="step 1 cannot be the first") as refused:
            await sessions.step(session.id, COUNT, 1)
        assert refused.value.hint == "the next step is 0"

        await sessions.step(session.id, COUNT, 0)
        with pytest.raises(OutOfOrder, match="step 2 does not follow step 0"):
            await sessions.step(session.id, COUNT, 2)

    run(test)


def test_another_action_at_a_step_that_was_done_is_refused() -> None:
    async def test() -> None:
        sessions = SessionPool(counting)
        session = await sessions.open()
        await sessions.step(session.id, COUNT, 0)

        with pytest.raises(OutOfOrder, match="with another action"):
            await sessions.step(session.id, said("something else"), 0)

    run(test)


def test_no_step_follows_the_last_one_which_is_still_remembered() -> None:
    async def test() -> None:
        sessions = SessionPool(counting)
        session = await sessions.open()
        for index in range(10):
            await sessions.step(session.id, COUNT, index)

        assert session.over
        assert (await sessions.step(session.id, COUNT, 9)).step.terminated
        with pytest.raises(EpisodeOver):
            await sessions.step(session.id, COUNT, 10)

    run(test)


def test_sessions_beyond_the_capacity_are_refused_until_one_is_closed() -> None:
    async def test() -> None:
        sessions = SessionPool(counting, capacity=2)
        first = await sessions.open()
        await sessions.open()

        with pytest.raises(AtCapacity, match="all 2 sessions are in use") as full:
            await sessions.open()
        assert full.value.retry_after_s > 0

        await sessions.close(first.id)
        await sessions.open()
        assert len(sessions) == 2

    run(test)


def test_a_session_that_is_being_opened_takes_a_place() -> None:
    class Slow(Counting):
        async def open(self, *, seed: int | None = None) -> Sequence[Message]:
            await asyncio.Event().wait()
            return ()

    async def test() -> None:
        sessions = SessionPool(lambda task: Slow(), capacity=1)
        opening = asyncio.create_task(sessions.open())
        await asyncio.sleep(0)

        with pytest.raises(AtCapacity):
            await sessions.open()

        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        assert len(sessions) == 0

    run(test)


def test_an_idle_session_is_closed_and_a_used_one_is_not() -> None:
    async def test() -> None:
        clock = Clock()
        sessions = SessionPool(counting, idle_s=60, clock=clock)
        idle, used = await sessions.open(), await sessions.open()
        clock.now = 40.0
        await sessions.step(used.id, COUNT, 0)
        clock.now = 70.0

        assert await sessions.sweep() == 1

        assert len(sessions) == 1
        assert isinstance(idle.environment, Counting)
        assert idle.environment.closed == 1
        with pytest.raises(NoSuchSession, match="sessions idle for 60 s are closed") as gone:
            await sessions.step(idle.id, COUNT, 0)
        assert idle.id not in str(gone.value)

    run(test)


def test_idle_sessions_give_way_at_capacity() -> None:
    async def test() -> None:
        clock = Clock()
        sessions = SessionPool(counting, capacity=1, idle_s=60, clock=clock)
        await sessions.open()
        clock.now = 61.0

        await sessions.open()

        assert len(sessions) == 1

    run(test)


def test_idle_sessions_are_swept_in_the_background() -> None:
    async def test() -> None:
        async with SessionPool(counting, idle_s=0.02) as sessions:
            idle = await sessions.open()
            async with asyncio.timeout(60):
                while len(sessions):
                    await asyncio.sleep(0.005)

            assert isinstance(idle.environment, Counting)
            assert idle.environment.closed == 1

    run(test)


def test_leaving_closes_every_session() -> None:
    async def test() -> None:
        async with SessionPool(counting) as sessions:
            opened = [await sessions.open() for _ in range(3)]

        closed = [
            each.environment.closed for each in opened if isinstance(each.environment, Counting)
        ]
        assert closed == [1, 1, 1]

    run(test)


def test_a_step_under_way_ends_when_its_session_is_closed() -> None:
    async def test() -> None:
        faulty = Faulty({"fault": "endless"})
        sessions = SessionPool(lambda task: faulty)
        session = await sessions.open()
        for index in range(5):
            await sessions.step(session.id, COUNT, index)
        hanging = asyncio.create_task(sessions.step(session.id, COUNT, 5))
        await faulty.stuck.wait()

        await sessions.close(session.id)

        with pytest.raises(NoSuchSession, match="closed during this step"):
            await hanging
        assert len(sessions) == 0

    run(test)


def test_a_cancelled_step_is_cancelled_and_not_taken_for_a_fault() -> None:
    async def test() -> None:
        faulty = Faulty({"fault": "endless"})
        sessions = SessionPool(lambda task: faulty)
        session = await sessions.open()
        for index in range(5):
            await sessions.step(session.id, COUNT, index)
        hanging = asyncio.create_task(sessions.step(session.id, COUNT, 5))
        await faulty.stuck.wait()

        hanging.cancel()

        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert session.fault is None

    run(test)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raise", "RuntimeError: the counter is jammed"),
        ("nan", "the reward is nan, not a finite number"),
    ],
)
def test_a_broken_environment_stays_broken(fault: str, words: str) -> None:
    async def test() -> None:
        sessions = SessionPool(lambda task: Faulty(task))
        session = await sessions.open(task={"fault": fault})
        for index in range(5):
            await sessions.step(session.id, COUNT, index)

        for _ in range(2):
            with pytest.raises(EnvironmentFault, match=words):
                await sessions.step(session.id, COUNT, 5)
        assert len(session.steps) == 5

    run(test)


def test_an_answer_that_is_no_step_is_a_fault() -> None:
    class Wrong(Counting):
        async def step(self, action: Message) -> Step:
            return {"reward": 1.0}  # type: ignore[return-value]  # what users do

    async def test() -> None:
        sessions = SessionPool(lambda task: Wrong())
        session = await sessions.open()

        with pytest.raises(
            EnvironmentFault, match=r"`step` returned \{'reward': 1.0\}, not a `Step`"
        ):
            await sessions.step(session.id, COUNT, 0)

    run(test)


def test_values_that_a_rollout_accepts_are_accepted_from_a_served_environment() -> None:
    class Numbers(Counting):
        async def open(self, *, seed: int | None = None) -> Any:
            return [{"role": "user", "content": "go"}]

        async def step(self, action: Message) -> Step:
            values: Any = {
                "replies": [{"role": "user", "content": "on"}],
                "reward": numpy.float32(1.5),
                "terminated": numpy.bool_(True),
                "truncated": 0,
                "info": {"at": numpy.arange(2)},
                "observation": numpy.zeros(1),
            }
            return Step(**values)

    async def test() -> None:
        sessions = SessionPool(lambda task: Numbers())
        session = await sessions.open()
        step = (await sessions.step(session.id, COUNT, 0)).step

        assert session.opening == (Message(role="user", content="go"),)
        assert step.replies == (Message(role="user", content="on"),)
        assert (step.reward, step.terminated, step.truncated) == (1.5, True, False)
        assert (step.info, step.observation) == ({"at": [0, 1]}, [0.0])
        assert session.over is True

    run(test)


def test_an_environment_that_does_not_open_is_closed_and_takes_no_place() -> None:
    made: list[Counting] = []

    class Locked(Counting):
        async def open(self, *, seed: int | None = None) -> Sequence[Message]:
            made.append(self)
            raise OSError("locked")

    async def test() -> None:
        sessions = SessionPool(lambda task: Locked(), capacity=1)

        for _ in range(2):
            with pytest.raises(EnvironmentFault, match="opening the environment: OSError: locked"):
                await sessions.open(episode_id="e")

        assert len(sessions) == 0
        assert [each.closed for each in made] == [1, 1]

    run(test)
    gc.collect()


def test_a_task_that_no_environment_can_be_made_for_is_the_callers_mistake() -> None:
    def make(task: Mapping[str, Any]) -> Environment:
        raise ConfigError("no map named 'x'", hint="the maps are 'a'")

    async def test() -> None:
        with pytest.raises(BadTask, match="no map named 'x'"):
            await SessionPool(make).open(task={"map": "x"})

    run(test)


def test_a_factory_that_breaks_is_a_fault() -> None:
    def make(task: Mapping[str, Any]) -> Environment:
        raise KeyError("word")

    async def test() -> None:
        with pytest.raises(EnvironmentFault, match="making the environment: KeyError: 'word'"):
            await SessionPool(make).open()

    run(test)


def test_an_environment_that_does_not_close_frees_its_place_and_is_reported() -> None:
    class Stuck(Counting):
        async def close(self) -> None:
            raise OSError("still in use")

    async def test() -> None:
        sessions = SessionPool(lambda task: Stuck(), capacity=1)

        for _ in range(2):
            await sessions.close((await sessions.open()).id)

        assert sessions.close_errors == ["OSError: still in use"] * 2

    run(test)


def test_opening_an_episode_again_gives_its_session_until_the_first_step() -> None:
    async def test() -> None:
        sessions = SessionPool(counting)
        ask = {"seed": 0, "episode_id": "e"}
        first, second = await asyncio.gather(sessions.open(**ask), sessions.open(**ask))  # type: ignore[arg-type]  # one dict for both

        assert first is second
        assert len(sessions) == 1
        with pytest.raises(OutOfOrder, match="'e' has already started"):
            await sessions.open(seed=1, episode_id="e")
        await sessions.step(first.id, COUNT, 0)
        with pytest.raises(OutOfOrder, match="'e' has already started"):
            await sessions.open(seed=0, episode_id="e")

        await sessions.close(first.id)
        assert (await sessions.open(seed=0, episode_id="e")) is not first

    run(test)


def test_closing_twice_is_refused() -> None:
    async def test() -> None:
        sessions = SessionPool(counting)
        session = await sessions.open()
        await sessions.close(session.id)

        with pytest.raises(NoSuchSession):
            await sessions.close(session.id)

    run(test)


def test_a_session_does_not_show_its_token() -> None:
    async def test() -> None:
        session = await SessionPool(counting).open()

        assert session.token not in repr(session)

    run(test)


@pytest.mark.parametrize("options", [{"capacity": 0}, {"idle_s": 0}, {"idle_s": float("nan")}])
def test_impossible_bounds_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SessionPool(counting, **options)


def test_a_refusal_survives_the_way_between_processes() -> None:
    copied = pickle.loads(pickle.dumps(AtCapacity("full", retry_after_s=3.0)))

    assert copied.retry_after_s == 3.0
