"""The control plane: where it stands, and what its readings may hold."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer as LocalServer

from assay.environments.remote.control_plane import ABSENT, ControlPlane, EpisodeStatus
from assay.environments.remote.http_client import EnvironmentClient
from assay.errors import EnvironmentFault

Made = TypeVar("Made")


def plane_that(
    answers: Any,
    play: Callable[[ControlPlane], Awaitable[Made]],
    *,
    endpoint: str = "/mcp",
    asked: list[Any] | None = None,
) -> Made:
    """What a play at a server comes to that answers everything the same: JSON, or a status."""

    async def handle(request: web.Request) -> web.Response:
        if asked is not None:
            body = await request.text()
            asked.append((request.method, request.path_qs, request.headers.get("who"), body))
        if isinstance(answers, int):
            return web.Response(status=answers, text="words")
        text = answers if isinstance(answers, str) else json.dumps(answers)
        return web.Response(text=text, content_type="application/json")

    async def run() -> Made:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", handle)
        async with LocalServer(application) as server, aiohttp.ClientSession() as http:
            url = str(server.make_url(endpoint))
            return await play(ControlPlane(EnvironmentClient(url, http), url, {"who": "me"}))

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        ("/mcp", "/control/status"),
        ("/mcp/", "/control/status"),
        ("/", "/control/status"),
        ("/a/mcp?key=v", "/a/control/status?key=v"),
        ("/tools", "/tools/control/status"),
    ],
)
def test_it_stands_beside_the_data_plane(endpoint: str, path: str) -> None:
    asked: list[Any] = []

    plane_that({"terminated": False}, lambda plane: plane.status(), endpoint=endpoint, asked=asked)

    assert asked == [("GET", path, "me", "")]


@pytest.mark.parametrize("seed", [0, 42, None])
def test_a_reset_sends_the_seed_as_it_is(seed: int | None) -> None:
    asked: list[Any] = []

    plane_that({}, lambda plane: plane.reset(seed), asked=asked)

    assert json.loads(asked[0][3]) == {"seed": seed}


def test_a_reset_tells_the_task_where_one_is_given() -> None:
    asked: list[Any] = []

    plane_that({}, lambda plane: plane.reset(1, {}), asked=asked)

    assert json.loads(asked[0][3]) == {"seed": 1, "task": {}}


def test_readings_are_read() -> None:
    full = {"terminated": True, "truncated": True, "step_count": 3, "total_reward": 2}

    assert plane_that(full, lambda plane: plane.status()) == EpisodeStatus(True, True, 3, 2.0)
    assert plane_that({"terminated": False}, lambda plane: plane.status()) == EpisodeStatus(
        False, False, None, None
    )
    assert plane_that({"reward": 1}, lambda plane: plane.reward()) == (1.0, None)
    assert plane_that({"reward": None, "step_count": 0}, lambda plane: plane.reward()) == (None, 0)
    assert plane_that({"a": 1}, lambda plane: plane.info()) == {"a": 1}
    assert plane_that([1, "x"], lambda plane: plane.initial_state()) == [1, "x"]


@pytest.mark.parametrize("status", [404, 405, 501])
def test_what_is_not_there_is_absent_and_not_empty(status: int) -> None:
    assert plane_that(status, lambda plane: plane.initial_state()) is ABSENT
    assert plane_that(status, lambda plane: plane.info()) == {}
    assert plane_that(status, lambda plane: plane.close()) is None


@pytest.mark.parametrize("status", [404, 500])
def test_a_reading_that_is_needed_and_not_there_is_a_fault(status: int) -> None:
    plays: list[Callable[[ControlPlane], Awaitable[Any]]] = [
        lambda plane: plane.status(),
        lambda plane: plane.reward(),
        lambda plane: plane.reset(1),
    ]
    for play in plays:
        with pytest.raises(EnvironmentFault, match=f"cannot be read: HTTP {status}: words"):
            plane_that(status, play)


def test_a_session_that_cannot_be_closed_is_a_fault() -> None:
    with pytest.raises(EnvironmentFault, match="close_session"):
        plane_that(500, lambda plane: plane.close())


def test_info_that_cannot_be_read_says_so() -> None:
    assert "HTTP 500" in plane_that(500, lambda plane: plane.info())["info_error"]
    assert "not JSON" in plane_that("<", lambda plane: plane.info())["info_error"]


@pytest.mark.parametrize("flag", [None, 0, "no", 1])
def test_an_end_that_is_neither_true_nor_false_is_a_fault(flag: Any) -> None:
    with pytest.raises(EnvironmentFault, match="`terminated` is"):
        plane_that({"terminated": flag}, lambda plane: plane.status())
    with pytest.raises(EnvironmentFault, match="`truncated` is"):
        plane_that({"terminated": False, "truncated": flag}, lambda plane: plane.status())


@pytest.mark.parametrize("count", [-1, 1.0, "3", True])
def test_a_count_that_counts_nothing_is_a_fault(count: Any) -> None:
    with pytest.raises(EnvironmentFault, match="`step_count` is"):
        plane_that({"terminated": False, "step_count": count}, lambda plane: plane.status())


def test_only_an_end_is_over() -> None:
    assert EpisodeStatus(True, False, 1, None).over
    assert EpisodeStatus(False, True, 1, None).over
    assert not EpisodeStatus(False, False, 1, None).over
