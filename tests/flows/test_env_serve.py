"""`assay env serve` as users run it: a process of its own, and rollouts that reach it by URL."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.agents import run_agent
from assay.environments import GymEnvironment, RemoteEnvironments
from assay.types import Message, Trajectory
from commands import call_main
from make import called, said
from scripted import Scripted

RIGHT = said(None, called("act", action="right"))
DESK = '''
"""A desk clerk with one tool."""
from assay.types import Message
from assay.environments import Step, ToolEnvironment, tool


class Desk(ToolEnvironment):
    """The agent must name the place of the order that its task is about."""

    def __init__(self, task):
        super().__init__()
        self._place = task["place"]

    @tool
    def look_up(self, order: str) -> str:
        """Find an order."""
        return self._place

    async def open(self, *, seed=None):
        return (Message(role="user", content=f"Where is it? (seed {seed})"),)

    async def step(self, action):
        if action.tool_calls:
            return await super().step(action)
        right = action.text == self._place
        return Step(reward=float(right), terminated=True, ended_by_agent=True)


class PlainDesk(Desk):
    def __init__(self):
        super().__init__({"place": "Bergen"})
'''


@contextmanager
def serving(
    *arguments: str, folder: Path, token: str | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its first line of output; killed if it is still there at the end."""
    environment = {key: value for key, value in os.environ.items() if key != "ASSAY_ENV_TOKEN"}
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "assay", "env", "serve", *arguments],
        cwd=folder,
        env=environment if token is None else {**environment, "ASSAY_ENV_TOKEN": token},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().rstrip("\n")
            if not line:
                _, said_instead = process.communicate(timeout=120)
                pytest.fail(f"nothing was served: {said_instead}")
            yield process, line
        finally:
            process.kill()


def stopped(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str, str]:
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def shown(trajectory: Trajectory) -> list[str]:
    return [message.text for message in trajectory.messages if message.role != "assistant"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_its_address_and_stops_cleanly_with_sessions_open(
    number: signal.Signals, tmp_path: Path
) -> None:
    async def left_open(url: str) -> None:
        async with RemoteEnvironments(url) as environments:
            await environments.make().open(seed=0)

    with serving("gym:FrozenLake-v1", folder=tmp_path) as (process, url):
        assert url.startswith("http://127.0.0.1:")
        asyncio.run(left_open(url))

        assert stopped(process, number) == (0, "", "")


def test_two_hundred_rollouts_queue_for_fifty_sessions_with_their_own_seeds(
    tmp_path: Path,
) -> None:
    async def one(environments: RemoteEnvironments, seed: int) -> Trajectory:
        return await run_agent(Scripted(*[RIGHT] * 101), environments.make(), [], seed=seed)

    async def rollouts(url: str) -> list[Trajectory]:
        async with RemoteEnvironments(url) as environments:
            return await asyncio.gather(*(one(environments, n // 2) for n in range(200)))

    async def local(seed: int) -> Trajectory:
        lake = GymEnvironment("FrozenLake-v1")
        return await run_agent(Scripted(*[RIGHT] * 101), lake, [], seed=seed)

    with serving("gym:FrozenLake-v1", "--capacity", "50", folder=tmp_path) as (_, url):
        trajectories = asyncio.run(rollouts(url))

    assert all(trajectory.termination_reason == "environment" for trajectory in trajectories)
    for first, second in zip(trajectories[::2], trajectories[1::2], strict=True):
        assert shown(first) == shown(second)
    for seed in (0, 1, 99):
        assert shown(trajectories[2 * seed]) == shown(asyncio.run(local(seed)))


def test_a_class_in_the_current_folder_is_served_with_its_task(tmp_path: Path) -> None:
    (tmp_path / "desks.py").write_text(DESK)

    async def rollout(url: str) -> Trajectory:
        script = Scripted(said(None, called("look_up", order="7")), said("Oslo"))
        async with RemoteEnvironments(url) as environments:
            return await run_agent(script, environments.make({"place": "Oslo"}), [], seed=0)

    with serving("desks:Desk", "--json", folder=tmp_path) as (process, line):
        announced = json.loads(line)
        trajectory = asyncio.run(rollout(announced["url"]))
        status, _, err = stopped(process, signal.SIGTERM)

    assert announced["mcp_url"] is None
    assert (status, err) == (0, "")
    assert shown(trajectory) == ["Where is it? (seed 0)", "Oslo"]
    assert trajectory.evaluation_result is not None
    assert trajectory.evaluation_result.score == 1.0


def test_the_same_sessions_are_served_to_mcp_clients(tmp_path: Path) -> None:
    (tmp_path / "desks.py").write_text(DESK)

    async def asked(url: str) -> tuple[Message, ...]:
        async with RemoteEnvironments(url) as environments:
            assert environments.kind == "mcp"
            environment = environments.make()
            await environment.open(seed=0)
            step = await environment.step(said(None, called("look_up", order="7")))
            await environment.close()
            return step.replies

    with serving("desks:PlainDesk", "--json", folder=tmp_path) as (_, line):
        replies = asyncio.run(asked(json.loads(line)["mcp_url"]))

    assert [reply.text for reply in replies] == ["Bergen"]


def test_a_token_is_made_up_and_shown_once(tmp_path: Path) -> None:
    async def opened(url: str, token: str | None) -> None:
        async with RemoteEnvironments(url, kind="own", token=token) as environments:
            environment = environments.make()
            await environment.open()
            await environment.close()

    with serving("calculator", "--token", "--json", folder=tmp_path) as (process, line):
        announced = json.loads(line)
        asyncio.run(opened(announced["url"], announced["token"]))
        with pytest.raises(Exception, match="HTTP 401"):
            asyncio.run(opened(announced["url"], None))

        assert announced["token"] not in "".join(stopped(process, signal.SIGTERM)[1:])


def test_a_token_of_the_user_is_not_shown(tmp_path: Path) -> None:
    token = "a-token-of-the-user-of-this"
    with serving("calculator", "--json", folder=tmp_path, token=token) as (process, line):
        assert json.loads(line)["token"] is None
        assert token not in line + "".join(stopped(process, signal.SIGTERM)[1:])


def test_what_cannot_be_served_exits_2_and_says_why(tmp_path: Path) -> None:
    done = call_main(tmp_path, "env", "serve", "no_such_module:Desk")

    assert (done.returncode, done.stdout) == (2, "")
    assert "'no_such_module:Desk' cannot be imported" in done.stderr
    assert "No module named 'no_such_module'\n" in done.stderr
