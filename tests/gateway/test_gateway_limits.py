"""`GatewayLimits`: which calls are refused, and how the agent is told."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientSession, web
from openai import APIStatusError, AsyncOpenAI

from assay.errors import ConfigError
from assay.formats import EventReader
from assay.gateway import (
    GatewayLimits,
)
from assay.types import Trajectory
from gateway_servers import HELLO, open_client, post, serve


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (GatewayLimits(max_turns=1), "max_turns"),
        (GatewayLimits(max_tokens=20), "max_tokens"),
        (GatewayLimits(max_cost_usd=1.0), "max_cost_usd (price unknown)"),
        (GatewayLimits(max_seconds=1e-9), "max_seconds"),
    ],
    ids=["turns", "tokens", "cost", "time"],
)
def test_a_limit_ends_the_session_with_an_error_that_is_not_retried(
    limits: GatewayLimits, reason: str
) -> None:
    async def scenario() -> tuple[APIStatusError, Trajectory, int]:
        async with serve(limits=limits) as (api, _, session), open_client(session) as agent:
            with pytest.raises(APIStatusError) as caught:
                await ask_twice(agent)
            return caught.value, await session.seal(), len(api.asked)

    error, trajectory, asked = asyncio.run(scenario())

    assert error.status_code == 400
    assert error.code == "limit_reached"
    assert reason in error.message
    assert error.response.headers["x-should-retry"] == "false"
    assert trajectory.termination_reason == reason
    assert trajectory.truncated
    assert asked <= 1


def test_calls_at_the_same_time_do_not_exceed_the_limit_of_turns() -> None:
    async def scenario() -> tuple[list[int], int, Trajectory]:
        async with serve(limits=GatewayLimits(max_turns=2)) as (api, _, session):
            url = f"{session.base_url}/chat/completions"
            body = {"model": "x", "messages": HELLO}
            found = await asyncio.gather(*(post(url, body, key=session.key) for _ in range(6)))
            return sorted(each[0] for each in found), len(api.asked), await session.seal()

    statuses, asked, trajectory = asyncio.run(scenario())

    assert statuses == [200, 200, 400, 400, 400, 400]
    assert asked == 2
    assert trajectory.termination_reason == "max_turns"


def test_titles_are_not_counted_as_turns() -> None:
    title: Any = {
        "model": "x",
        "messages": [
            {"role": "system", "content": "You are a title generator. You output ONLY a title."},
            {"role": "user", "content": "hello"},
        ],
    }

    async def scenario() -> tuple[list[int], Trajectory]:
        async with serve(limits=GatewayLimits(max_turns=1)) as (_, _, session):
            url = f"{session.base_url}/chat/completions"
            turn = {"model": "x", "messages": HELLO}
            statuses = [
                (await post(url, body, key=session.key))[0] for body in (title, turn, title, turn)
            ]
            return statuses, await session.seal()

    statuses, trajectory = asyncio.run(scenario())

    assert [call.purpose for call in trajectory.calls] == ["title", "turn", "title"]
    assert statuses == [200, 200, 200, 400]


def test_the_time_limit_ends_a_stream_that_has_begun() -> None:
    async def send_slowly(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        choice = {"index": 0, "delta": {"content": "first"}, "finish_reason": None}
        head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        await response.write(b"data: %s\n\n" % json.dumps({**head, "choices": [choice]}).encode())
        await asyncio.Event().wait()
        return response

    async def scenario() -> tuple[bytes, Trajectory]:
        async with serve(limits=GatewayLimits(max_seconds=2.0)) as (api, _, session):
            api.behave(send_slowly)
            received: list[bytes] = []
            body = {"model": "x", "messages": HELLO, "stream": True}
            headers = {"Authorization": f"Bearer {session.key}"}
            url = f"{session.base_url}/chat/completions"
            async with (
                ClientSession() as http,
                http.post(url, json=body, headers=headers) as response,
            ):
                try:
                    async for part in response.content.iter_any():
                        received.append(part)
                except ClientPayloadError:
                    received.append(b"broken")
            return b"".join(received), await session.seal()

    received, trajectory = asyncio.run(scenario())

    first, last = EventReader().feed(received.removesuffix(b"broken"))
    assert b"first" in first.data
    assert json.loads(last.data)["error"]["code"] == "limit_reached"
    assert received.endswith(b"broken")
    assert trajectory.termination_reason == "max_seconds"
    assert trajectory.messages == []


async def ask_twice(agent: AsyncOpenAI) -> None:
    for _ in range(2):
        await agent.chat.completions.create(model="x", messages=HELLO)


def test_a_limit_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_turns=0 is not a number above 0"):
        GatewayLimits(max_turns=0)
