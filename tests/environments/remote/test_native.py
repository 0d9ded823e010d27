"""`OwnEnvironment` against real servers: seeds, queues, and every way in which a server breaks."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

import served_environments
from assay.agents import RolloutFailed, run_agent
from assay.environments import (
    Environment,
    EnvironmentServer,
    GymEnvironment,
    RemoteEnvironments,
    ServerProcess,
    ServerSettings,
    launch_server,
)
from assay.environments.remote.http_client import ConnectionFailed, InvalidResponse, TimedOut
from assay.errors import EnvironmentFault
from assay.providers import Reply
from assay.types import Boundary, Message, Trajectory
from make import called, said
from scripted import Scripted
from served_environments import Counting, Faulty

COUNT = said(None, called("count"))
RIGHT = said(None, called("act", action="right"))


def faulty_server() -> AbstractAsyncContextManager[ServerProcess]:
    program = str(Path(served_environments.__file__))
    return launch_server([sys.executable, program, "{port}"], "http://127.0.0.1:{port}")


@pytest.fixture(scope="module")
def faulty() -> Iterator[str]:
    """The address of a server process that breaks as a task says."""
    with asyncio.Runner() as runner:
        process = faulty_server()
        server = runner.run(process.__aenter__())
        yield server.url
        runner.run(process.__aexit__(None, None, None))


async def sessions_at(url: str) -> int:
    async with aiohttp.ClientSession() as http, http.get(f"{url}/health") as response:
        return int((await response.json())["sessions"])


async def broken_rollout(
    environments: RemoteEnvironments, task: Mapping[str, Any], **options: Any
) -> RolloutFailed:
    environment = environments.make(task)
    with pytest.raises(RolloutFailed) as failed:
        await run_agent(Scripted(*[COUNT] * 10), environment, [], **options)
    return failed.value


def require_invalid_with_five_steps(failed: RolloutFailed) -> None:
    assert failed.boundary is Boundary.ENVIRONMENT
    assert isinstance(failed.__cause__, EnvironmentFault)
    assert failed.trajectory.steps == 5
    assert len(failed.trajectory.calls) == 6
    result = failed.trajectory.evaluation_result
    assert result is not None
    assert not result.is_score_valid
    assert result.reward is None
    assert [output.base_reward for output in result.step_outputs or ()] == [0.25] * 5


FAULTS: dict[str, tuple[type[EnvironmentFault], str]] = {
    "raise": (EnvironmentFault, "HTTP 500 (environment): step 5: RuntimeError: the counter"),
    "nan": (EnvironmentFault, "HTTP 500 (environment): step 5: the reward is nan"),
    "unwritable": (
        EnvironmentFault,
        "HTTP 500 (environment): step 5: `Step.info['when']` cannot be written as JSON",
    ),
    "page": (EnvironmentFault, "HTTP 500: <h1>Internal Server Error</h1>"),
    "garbage": (InvalidResponse, "the answer does not fit the protocol: body: Invalid JSON"),
    "no reward": (InvalidResponse, "the answer does not fit the protocol: reward: Field required"),
    "reward in words": (InvalidResponse, "the answer does not fit the protocol: reward: "),
    "huge": (InvalidResponse, "the answer is longer than 4194304 bytes"),
    "elsewhere": (InvalidResponse, "the server redirects to another address (HTTP 307)"),
    "hang": (TimedOut, "the server did not answer within 1 s"),
    "endless": (TimedOut, "the server did not answer within 1 s"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_server_makes_the_sample_invalid_and_keeps_its_steps(
    fault: str, faulty: str
) -> None:
    kind, words = FAULTS[fault]
    limit_s = 1.0 if kind is TimedOut else 60.0

    async def test() -> None:
        async with RemoteEnvironments(faulty, kind="own", timeout_s=limit_s) as environments:
            failed = await broken_rollout(environments, {"fault": fault})

        require_invalid_with_five_steps(failed)
        assert isinstance(failed.__cause__, kind)
        assert words in str(failed)
        assert faulty in str(failed)
        assert set(failed.trajectory.model_extra or {}) <= {"tools"}
        assert await sessions_at(faulty) == 0

    asyncio.run(test())


def test_a_server_that_dies_at_step_5_makes_the_sample_invalid_and_keeps_its_steps() -> None:
    async def test() -> None:
        async with (
            faulty_server() as server,
            RemoteEnvironments(server.url, kind="own", timeout_s=60) as environments,
        ):
            failed = await broken_rollout(environments, {"fault": "die"})

        require_invalid_with_five_steps(failed)
        assert isinstance(failed.__cause__, ConnectionFailed)
        assert "(3 attempts)" in str(failed)
        assert "check that the environment server is running" in str(failed)

    asyncio.run(test())


def test_a_server_that_freezes_makes_the_sample_invalid_and_keeps_its_steps() -> None:
    class Freezing(Scripted):
        """A model during whose sixth answer the server freezes."""

        def __init__(self, pid: int) -> None:
            super().__init__(*[COUNT] * 10)
            self._pid = pid

        async def complete(self, messages: Sequence[Message], **options: Any) -> Any:
            if len(self.asked) == 5:
                os.kill(self._pid, signal.SIGSTOP)
            return await super().complete(messages, **options)

    async def test() -> None:
        async with (
            faulty_server() as server,
            RemoteEnvironments(server.url, kind="own", timeout_s=3.0) as environments,
        ):
            try:
                with pytest.raises(RolloutFailed) as failed:
                    await run_agent(Freezing(server.pid), environments.make(), [])
            finally:
                os.kill(server.pid, signal.SIGCONT)

        require_invalid_with_five_steps(failed.value)
        assert isinstance(failed.value.__cause__, TimedOut)
        assert (failed.value.trajectory.model_extra or {})["close_error"].startswith("TimedOut")

    asyncio.run(test())


def run(
    test: Callable[[EnvironmentServer, RemoteEnvironments], Awaitable[None]],
    make: Callable[[Mapping[str, Any]], Environment] = Faulty,
    *,
    token: str | None = None,
    capacity: int = 100,
    **options: Any,
) -> None:
    async def served() -> None:
        settings = ServerSettings(token=token, capacity=capacity)
        async with (
            asyncio.timeout(180),
            EnvironmentServer(make, settings) as server,
            RemoteEnvironments(server.url, kind="own", token=token, **options) as environments,
        ):
            await test(server, environments)

    asyncio.run(served())


def slippery(task: Mapping[str, Any]) -> Environment:
    return GymEnvironment("FrozenLake-v1", options={"is_slippery": True})


def shown(trajectory: Trajectory) -> list[str]:
    return [message.text for message in trajectory.messages if message.role != "assistant"]


async def frozen_lake(environment: Environment, seed: int | None) -> Trajectory:
    return await run_agent(Scripted(*[RIGHT] * 100), environment, [], seed=seed)


def test_the_same_seed_twice_gives_the_same_trajectory_here_and_there() -> None:
    async def test(server: EnvironmentServer, environments: RemoteEnvironments) -> None:
        trajectories = {
            seed: [shown(await frozen_lake(environments.make(), seed)) for _ in range(2)]
            for seed in range(6)
        }

        for seed, (first, second) in trajectories.items():
            assert first == second == shown(await frozen_lake(slippery({}), seed))
        assert len({tuple(first) for first, _ in trajectories.values()}) > 1

    run(test, slippery)


@pytest.mark.parametrize("seed", [0, 1, 2**40, None])
def test_the_seed_arrives_as_given(seed: int | None) -> None:
    async def test(server: EnvironmentServer, environments: RemoteEnvironments) -> None:
        environment = environments.make()

        opening = await environment.open(seed=seed)

        assert opening[0].content == f"Count from seed {seed}."
        await environment.close()

    run(test)


def test_two_hundred_rollouts_queue_for_fifty_sessions_and_none_fails() -> None:
    most = 0

    async def test(server: EnvironmentServer, environments: RemoteEnvironments) -> None:
        class Watching(Scripted):
            async def complete(self, messages: Sequence[Message], **kwargs: Any) -> Reply:
                nonlocal most
                most = max(most, len(server.sessions))
                return await super().complete(messages, **kwargs)

        async def one(seed: int) -> Trajectory:
            return await run_agent(Watching(*[COUNT] * 10), environments.make(), [], seed=seed)

        trajectories = await asyncio.gather(*(one(seed) for seed in range(200)))

        for seed, trajectory in enumerate(trajectories):
            assert trajectory.steps == 10
            assert trajectory.messages[0].content == f"Count from seed {seed}."
            assert trajectory.evaluation_result is not None
            assert trajectory.evaluation_result.score == 2.5
            assert trajectory.session["seed"] == seed
        assert len(server.sessions) == 0
        sessions = [trajectory.session for trajectory in trajectories]
        assert {session["base_url"] for session in sessions} == {server.url}
        assert len({session["session_id"] for session in sessions}) == 200
        assert not any("token" in session for session in sessions)

    run(test, capacity=50)
    assert 0 < most <= 50


def test_fifty_sessions_at_once_do_not_mix() -> None:
    async def test(server: EnvironmentServer, environments: RemoteEnvironments) -> None:
        opened = [environments.make() for _ in range(50)]
        await asyncio.gather(*(each.open(seed=seed) for seed, each in enumerate(opened)))
        assert len(server.sessions) == 50

        for _ in range(3):
            steps = await asyncio.gather(*(each.step(COUNT) for each in opened))
            assert [step.info["seed"] for step in steps] == list(range(50))

        await asyncio.gather(*(each.close() for each in opened))
        assert len(server.sessions) == 0

    run(test)


def test_waiting_for_a_session_ends_at_its_own_limit() -> None:
    async def test(server: EnvironmentServer, environments: RemoteEnvironments) -> None:
        first = environments.make()
        await first.open()

        with pytest.raises(EnvironmentFault, match=r"the server had no free session for 0.1 s"):
            await environments.make().open()
        await first.close()

    run(test, capacity=1, queue_s=0.1)


def test_a_step_arrives_whole() -> None:
    async def test(server: EnvironmentServer, environments: RemoteEnvironments) -> None:
        remote, local = environments.make(), Counting()
        assert await remote.open(seed=3) == await local.open(seed=3)
        assert list(remote.tools) == list(local.tools)

        for _ in range(10):
            assert await remote.step(COUNT) == await local.step(COUNT)
        await remote.close()

    run(test)


def test_a_step_whose_answer_is_lost_is_not_done_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Losing(EnvironmentServer):
        """Does what it is asked to, and hangs up before its first two answers to each request."""

        def _build_application(self) -> web.Application:
            application = super()._build_application()
            losses: dict[str, int] = {}

            @web.middleware
            async def lose(request: web.Request, handler: Any) -> web.StreamResponse:
                asked = f"{request.method} {request.path} {await request.text()}"
                response: web.StreamResponse = await handler(request)
                losses[asked] = losses.get(asked, 0) + 1
                if losses[asked] <= 2 and request.method == "POST" and request.transport:
                    request.transport.abort()
                return response

            application.middlewares.append(lose)
            return application

    async def test() -> None:
        async with (
            Losing(Faulty) as server,
            RemoteEnvironments(server.url, kind="own") as environments,
        ):
            environment = environments.make()
            await environment.open(seed=1)
            counts = [(await environment.step(COUNT)).info["count"] for _ in range(4)]
            assert counts == [1, 2, 3, 4]
            assert len(server.sessions) == 1
            await environment.close()

    monkeypatch.setattr("assay.environments.remote.native._FIRST_RETRY_S", 0.001)
    asyncio.run(test())


def test_the_task_reaches_the_environment() -> None:
    tasks: list[Mapping[str, Any]] = []

    def make(task: Mapping[str, Any]) -> Environment:
        tasks.append(task)
        return Counting()

    async def test(server: EnvironmentServer, environments: RemoteEnvironments) -> None:
        environment = environments.make({"map": ["SF", "FG"]})
        await environment.open()
        await environment.close()

    run(test, make)
    assert tasks == [{"map": ["SF", "FG"]}]


def test_a_wrong_token_is_a_fault_that_does_not_show_it() -> None:
    token = "the-right-token-for-this"

    async def test(server: EnvironmentServer, environments: RemoteEnvironments) -> None:
        environment = environments.make()
        await environment.open()
        await environment.close()
        async with RemoteEnvironments(server.url, kind="own", token="wrong-" + token) as wrong:
            with pytest.raises(EnvironmentFault, match=r"HTTP 401 \(denied\)") as failed:
                await wrong.make().open()
        assert token not in str(failed.value)

    run(test, token=token)


def test_an_environment_is_one_episode() -> None:
    async def test(server: EnvironmentServer, environments: RemoteEnvironments) -> None:
        environment = environments.make()
        with pytest.raises(EnvironmentFault, match="the environment is not open"):
            await environment.step(COUNT)
        await environment.close()
        await environment.open()

        with pytest.raises(
            EnvironmentFault, match="the environment is single-use and was already opened"
        ):
            await environment.open()

        await environment.close()
        await environment.close()
        assert len(server.sessions) == 0

    run(test)


def test_a_session_that_the_server_forgot_is_a_fault() -> None:
    async def test(server: EnvironmentServer, environments: RemoteEnvironments) -> None:
        environment = environments.make()
        await environment.open()
        await server.sessions.__aexit__(None, None, None)

        with pytest.raises(EnvironmentFault, match=r"HTTP 404 \(no_session\)"):
            await environment.step(COUNT)
        await environment.close()

    run(test)


def test_a_large_message_arrives() -> None:
    async def test(server: EnvironmentServer, environments: RemoteEnvironments) -> None:
        environment = environments.make()
        await environment.open()

        step = await environment.step(said("x" * 3_000_000, called("count")))

        assert step.reward == 0.25
        await environment.close()

    run(test)
