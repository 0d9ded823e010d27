"""Episodes by the names that clients give them: opened late, kept apart, forgotten when idle."""

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import pytest
from pydantic_core import from_json

from assay.environments import Step
from assay.environments.remote import mcp_episodes
from assay.environments.remote.episodes import AtCapacity, NoSuchSession, SessionPool
from assay.environments.remote.mcp_episodes import Episodes
from assay.errors import EnvironmentFault
from assay.types import Message, ToolSpec

Made = TypeVar("Made")


class Noting:
    """Notes its seed and what is done to it."""

    tools: Sequence[ToolSpec] = ()

    def __init__(self, task: Mapping[str, Any], notes: list[Any]) -> None:
        self.task = task
        self.notes = notes

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        self.notes.append(("open", seed, dict(self.task)))
        return ()

    async def step(self, action: Message) -> Step:
        (call,) = action.tool_calls
        if call.name == "break":
            raise RuntimeError("broken")
        self.notes.append((call.name, call.arguments))
        if call.name == "hang":
            await asyncio.Event().wait()
        return Step(replies=(Message(role="tool", content=call.name),), reward=1.0)

    async def close(self) -> None:
        self.notes.append("close")


class Told:
    """Episodes whose clock is told, and the notes of their environments."""

    def __init__(self, capacity: int = 100) -> None:
        self.at = 0.0
        self.notes: list[Any] = []
        self.sessions = SessionPool(
            lambda task: Noting(task, self.notes),
            capacity=capacity,
            idle_s=10.0,
            clock=lambda: self.at,
        )
        self.episodes = Episodes(self.sessions, clock=lambda: self.at)


def played(play: Callable[[Told], Awaitable[Made]], **options: Any) -> Made:
    async def run() -> Made:
        return await play(Told(**options))

    return asyncio.run(run())


def test_an_episode_is_closed_in_the_middle_of_a_step_that_hangs() -> None:
    async def play(told: Told) -> list[Any]:
        episode = told.episodes.get_or_create("a")
        hangs = asyncio.ensure_future(episode.step("hang", {}))
        while len(told.notes) < 2:
            await asyncio.sleep(0)
        await told.episodes.close("a")
        with pytest.raises(NoSuchSession, match="closed during this step"):
            await hangs
        assert len(told.sessions) == 0
        return told.notes

    assert played(play) == [("open", None, {}), ("hang", {}), "close"]


def test_a_name_costs_nothing_until_something_of_it_is_asked_for() -> None:
    async def play(told: Told) -> list[Any]:
        episode = told.episodes.get_or_create("a", {"seed": 0, "config": {"level": 1}})
        assert told.notes == []
        assert episode.steps() == []
        assert not episode.is_open
        assert [reply.text for reply in await episode.step("go", {"x": 1})] == ["go"]
        await told.episodes.close("a")
        return told.notes

    assert played(play) == [("open", 0, {"level": 1}), ("go", {"x": 1}), "close"]


def test_the_same_name_is_the_same_episode_and_is_opened_once() -> None:
    async def play(told: Told) -> list[Any]:
        assert told.episodes.get_or_create("a") is told.episodes.get_or_create("a")
        await asyncio.gather(*(told.episodes.get_or_create("a").session() for _ in range(5)))
        return told.notes

    assert played(play) == [("open", None, {})]


@pytest.mark.parametrize("seed", ["7", True, 1.5, None])
def test_a_seed_that_is_no_whole_number_is_none(seed: Any) -> None:
    async def play(told: Told) -> int | None:
        return told.episodes.get_or_create("a", {"seed": seed, "config": "not a task"}).seed

    assert played(play) is None


def test_a_reset_closes_what_was_and_keeps_the_task() -> None:
    async def play(told: Told) -> list[Any]:
        await told.episodes.get_or_create("a", {"config": {"level": 1}}).session()
        await told.episodes.reset("a", 3)
        await told.episodes.get_or_create("a").session()
        await told.episodes.reset("a", 4, {"level": 2})
        await told.episodes.get_or_create("a").session()
        return told.notes

    assert played(play) == [
        ("open", None, {"level": 1}),
        "close",
        ("open", 3, {"level": 1}),
        "close",
        ("open", 4, {"level": 2}),
    ]


class SlowToClose(Noting):
    """Closes when `may_close` is set."""

    may_close: asyncio.Event

    async def close(self) -> None:
        self.notes.append("closing")
        await self.may_close.wait()
        await super().close()


class ResetInProgress(Told):
    """An episode `a` with level 1, in a reset to seed 3 that waits for the old session."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        SlowToClose.may_close = asyncio.Event()
        self.sessions = SessionPool(lambda task: SlowToClose(task, self.notes), idle_s=10.0)
        self.episodes = Episodes(self.sessions)

    async def begin(self) -> "asyncio.Future[None]":
        await self.episodes.get_or_create("a", {"config": {"level": 1}}).session()
        reset = asyncio.ensure_future(self.episodes.reset("a", 3))
        while "closing" not in self.notes:
            await asyncio.sleep(0)
        self.notes.clear()
        return reset


def test_a_request_during_a_reset_waits_for_the_restarted_episode() -> None:
    async def play() -> list[Any]:
        told = ResetInProgress()
        reset = await told.begin()
        request = asyncio.ensure_future(told.episodes.get_or_create("a").step("go", {}))
        for _ in range(10):
            await asyncio.sleep(0)
        assert told.notes == []
        SlowToClose.may_close.set()
        await asyncio.gather(reset, request)
        # The name leads to the session of that request, so that a close leaves none open.
        await told.episodes.close("a")
        assert len(told.sessions) == 0
        return told.notes

    expected = ["close", ("open", 3, {"level": 1}), ("go", {}), "closing", "close"]
    assert asyncio.run(play()) == expected


def test_a_second_reset_during_a_reset_keeps_the_task() -> None:
    async def play() -> list[Any]:
        told = ResetInProgress()
        reset = await told.begin()
        request = asyncio.ensure_future(told.episodes.get_or_create("a").session())
        await asyncio.sleep(0)
        second = asyncio.ensure_future(told.episodes.reset("a", 4))
        await asyncio.sleep(0)
        SlowToClose.may_close.set()
        await asyncio.gather(reset, request, second)
        assert (await told.episodes.get_existing("a").session()).seed == 4
        assert len(told.sessions) == 1
        return [note for note in told.notes if note[0] == "open"]

    assert asyncio.run(play()) == [("open", 3, {"level": 1}), ("open", 4, {"level": 1})]


def test_a_transport_is_known_during_a_reset() -> None:
    async def play() -> None:
        told = ResetInProgress()
        line = told.episodes.start_transport({"session_id": "a"})
        reset = await told.begin()
        assert told.episodes.find_by_transport(line) is told.episodes.get_existing("a")
        SlowToClose.may_close.set()
        await reset

    asyncio.run(play())


def test_an_episode_that_is_closed_during_a_reset_stays_closed() -> None:
    async def play() -> None:
        told = ResetInProgress()
        reset = await told.begin()
        closing = asyncio.ensure_future(told.episodes.close("a"))
        await asyncio.sleep(0)
        SlowToClose.may_close.set()
        await asyncio.gather(reset, closing)
        assert len(told.sessions) == 0
        with pytest.raises(NoSuchSession, match="not found"):
            told.episodes.get_existing("a")

    asyncio.run(play())


def test_an_episode_that_takes_long_to_open_keeps_its_name() -> None:
    gate = asyncio.Event()

    class SlowToOpen(Noting):
        async def open(self, *, seed: int | None = None) -> Sequence[Message]:
            await gate.wait()
            return await super().open(seed=seed)

    async def play() -> None:
        told = Told(capacity=1)
        told.sessions = SessionPool(
            lambda task: SlowToOpen(task, told.notes), capacity=1, idle_s=10.0
        )
        told.episodes = Episodes(told.sessions, clock=lambda: told.at)
        opening = asyncio.ensure_future(told.episodes.get_or_create("a").session())
        await asyncio.sleep(0)
        for number in range(99):
            told.episodes.get_or_create(str(number))
        told.at = 11.0
        told.episodes.get_or_create("one more")
        gate.set()
        await opening
        await told.episodes.close("a")
        assert len(told.sessions) == 0

    asyncio.run(play())


def test_an_expired_session_is_not_opened_again() -> None:
    async def play(told: Told) -> list[Any]:
        episode = told.episodes.get_or_create("a")
        await episode.step("go", {})
        told.at = 11.0
        await told.sessions.sweep()
        with pytest.raises(NoSuchSession):
            await episode.step("go", {})
        with pytest.raises(NoSuchSession):
            episode.steps()
        await told.episodes.close("a")
        return told.notes

    assert played(play) == [("open", None, {}), ("go", {}), "close"]


def test_a_broken_environment_gives_no_steps() -> None:
    async def play(told: Told) -> None:
        episode = told.episodes.get_or_create("a")
        await episode.step("go", {})
        with pytest.raises(EnvironmentFault, match="broken"):
            await episode.step("break", {})
        episode.steps()

    with pytest.raises(EnvironmentFault, match="broken"):
        played(play)


def test_lines_lead_to_their_episodes_until_they_are_hung_up() -> None:
    async def play(told: Told) -> list[Any]:
        line = told.episodes.start_transport({"session_id": "a"})
        nameless = told.episodes.start_transport({"session_id": 7})
        assert told.episodes.find_by_transport(line) is told.episodes.get_or_create("a")
        assert told.episodes.find_by_transport(nameless) is told.episodes.get_or_create(nameless)
        assert told.episodes.find_by_transport("nope") is None
        await told.episodes.get_or_create("a").session()
        assert await told.episodes.end_transport(line)
        assert not await told.episodes.end_transport(line)
        assert told.episodes.find_by_transport(line) is None
        return told.notes

    assert played(play) == [("open", None, {}), "close"]


def test_unknown_and_overlong_names_are_refused() -> None:
    async def play(told: Told) -> None:
        with pytest.raises(NoSuchSession, match="not found"):
            told.episodes.get_existing("a")
        with pytest.raises(NoSuchSession, match="not found"):
            await told.episodes.close("a")
        with pytest.raises(NoSuchSession, match="has 201 characters, over 200"):
            told.episodes.get_or_create("a" * 201)

    played(play)


def test_names_without_a_session_are_forgotten_when_idle_and_bounded_before() -> None:
    async def play(told: Told) -> None:
        open_one = told.episodes.get_or_create("open")
        await open_one.session()
        for number in range(99):
            told.episodes.get_or_create(str(number))
        with pytest.raises(AtCapacity, match="the server already has 100 named episodes"):
            told.episodes.get_or_create("one more")
        told.at = 9.0
        await open_one.step("go", {})
        told.at = 11.0
        told.episodes.get_or_create("one more")
        assert told.episodes.get_or_create("open") is open_one
        with pytest.raises(NoSuchSession):
            told.episodes.get_existing("5")

    played(play, capacity=1)


def test_lines_are_bounded_too() -> None:
    async def play(told: Told) -> None:
        for _ in range(100):
            told.episodes.start_transport({"session_id": "a"})
        with pytest.raises(AtCapacity):
            told.episodes.start_transport({"session_id": "a"})
        told.at = 11.0
        told.episodes.start_transport({"session_id": "a"})

    played(play, capacity=1)


def test_tasks_of_names_without_a_session_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_episodes, "MAX_WAITING_BYTES", 1000)

    async def play(told: Told) -> None:
        big = {"config": {"text": "x" * 400}}
        told.episodes.get_or_create("a", big)
        told.episodes.get_or_create("b", big)
        with pytest.raises(AtCapacity):
            told.episodes.get_or_create("c", big)
        with pytest.raises(AtCapacity):
            await told.episodes.reset("d", 1, big)
        with pytest.raises(AtCapacity):
            told.episodes.start_transport({**big, "session_id": "e"})
        told.episodes.get_or_create("small")

        # With a session, a task is the session's: there is room again.
        await told.episodes.get_or_create("a").session()
        told.episodes.get_or_create("c", big)

        told.at = 11.0
        told.episodes.get_or_create("later", big)
        told.episodes.get_or_create("latest", big)
        with pytest.raises(NoSuchSession):
            told.episodes.get_existing("b")

    played(play)


def test_a_reset_that_is_refused_leaves_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_episodes, "MAX_WAITING_BYTES", 100)

    async def play(told: Told) -> None:
        episode = told.episodes.get_or_create("a", {"seed": 7})
        with pytest.raises(AtCapacity):
            await told.episodes.reset("a", 8, {"text": "x" * 400})

        assert told.episodes.get_existing("a") is episode
        assert episode.seed == 7

    played(play)


def test_a_waiting_task_takes_no_more_memory_than_its_text() -> None:
    text = b'{"config": {"a": [%s]}}' % b",".join([b"{}"] * 20_000)

    async def play(told: Told) -> int:
        tracemalloc.start()
        try:
            for number in range(5):
                told.episodes.get_or_create(str(number), from_json(text))
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert played(play) < 2 * 5 * len(text)


def test_a_task_is_the_same_when_its_session_opens() -> None:
    task: dict[str, Any] = {
        "text": "Zürich ☕",
        "numbers": [1, 2.5, -0.0, 10**30],
        "none": None,
        "deep": {"a": [{}]},
    }

    async def play(told: Told) -> list[Any]:
        await told.episodes.get_or_create("a", {"config": task}).session()
        await told.episodes.reset("a", 1)
        await told.episodes.get_or_create("a").session()
        return told.notes

    assert played(play) == [("open", None, task), "close", ("open", 1, task)]
