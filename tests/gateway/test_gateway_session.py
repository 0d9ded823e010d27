"""One session: the seeds of its calls, what it records of odd requests, and the end of it."""

import asyncio
import gc
import json
import weakref
from typing import Any

import pytest
from aiohttp import ClientSession, web

from assay.gateway import Gateway, GatewayLimits, GatewaySession
from assay.gateway.dialects import OPENAI_CHAT
from assay.providers import connect
from assay.types import Trajectory
from gateway_servers import HELLO, post, serve
from model_apis import ModelApi


def list_seeds(seed: int | None, *texts: str) -> list[int | None]:
    session = GatewaySession("s", "http://127.0.0.1:1", limits=GatewayLimits(), seed=seed)
    bodies = [{"model": "m", "messages": [{"role": "user", "content": each}]} for each in texts]
    return [session.start_call(OPENAI_CHAT, body, b"", {}).seed for body in bodies]


def test_a_request_that_is_sent_again_has_another_seed() -> None:
    assert list_seeds(5, "one", "two", "one", "one", "two") == [5, 5, 6, 7, 6]


def test_without_a_seed_of_the_session_calls_have_none() -> None:
    assert list_seeds(None, "one", "one") == [None, None]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("path", ["chat/completions", "messages"])
def test_a_sealed_session_is_freed_without_the_garbage_collector(path: str, stream: bool) -> None:
    body = {"model": "x", "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}

    async def scenario() -> object:
        async with (
            ModelApi() as api,
            connect(api.endpoint()) as client,
            Gateway(client) as gateway,
            ClientSession() as http,
        ):
            session = gateway.open_session()
            for _ in range(2):
                async with http.post(
                    f"{session.base_url}/{path}",
                    json={**body, "stream": stream},
                    headers={"x-api-key": session.key},
                ) as response:
                    assert response.status == 200
                    await response.read()
            await session.seal()
            gateway.forget(session)
            watched = weakref.ref(session)
            del session
            # The connection to the gateway is still open.
            await asyncio.sleep(0)
            return watched()

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(scenario()) is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("path", "item"),
    [
        ("chat/completions", {"role": "assistant", "tool_calls": ["a call"]}),
        ("chat/completions", {"role": "assistant", "tool_calls": 5}),
        ("chat/completions", {"role": "assistant", "tool_calls": [{"function": "f"}]}),
        ("messages", {"role": "user", "content": [{"type": ["text"]}]}),
        ("responses", {"role": "user", "content": [{"type": {}}]}),
    ],
)
def test_a_refused_request_of_any_shape_does_not_lose_the_other_calls(path: str, item: Any) -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "no such item"}}, status=400)

    async def scenario() -> tuple[int, Trajectory]:
        provider = {"messages": "anthropic", "responses": "openai-responses"}.get(path, "openai")
        async with serve(ModelApi(provider)) as (model, _, session):
            field = "input" if path == "responses" else "messages"
            url = f"{session.base_url}/{path}"
            await post(url, {field: HELLO}, key=session.key)
            model.behave(refuse)
            status, _, _ = await post(url, {field: [*HELLO, item]}, key=session.key)
            return status, await session.seal()

    status, trajectory = asyncio.run(scenario())

    assert status == 400
    assert [message.text for message in trajectory.messages] == ["hello", "HELLO"]
    assert [call.error for call in trajectory.calls] == [None, "no such item"]


@pytest.mark.parametrize("written", ['{"x": NaN}', '{"x": 1e400}', "-Infinity"])
def test_numbers_that_json_lacks_do_not_lose_the_rollout(written: str) -> None:
    function = {"name": "f", "arguments": written}
    message = {"tool_calls": [{"id": "c1", "type": "function", "function": function}]}

    async def call_tool(request: web.Request, body: dict[str, Any]) -> web.Response:
        choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}}
        logprobs = {"content": [{"token": "f", "logprob": float("-inf")}]}
        choice |= {"finish_reason": "tool_calls", "logprobs": logprobs}
        choice["message"] = {"role": "assistant", "content": None, "score": float("nan"), **message}
        return web.json_response({"choices": [choice]})

    async def scenario() -> Trajectory:
        async with serve() as (model, _, session):
            url = f"{session.base_url}/chat/completions"
            model.behave(call_tool)
            await post(url, {"messages": HELLO}, key=session.key)
            result = {"role": "tool", "tool_call_id": "c1", "content": "no"}
            asked = [*HELLO, {"role": "assistant", **message}, result]
            # As `json.dumps` writes it, which Python's agents use.
            body = {"messages": asked, "metadata": {"loss": float("nan")}}
            status, _, _ = await post(url, {**body, "temperature": float("inf")}, key=session.key)
            assert status == 200
            return await session.seal()

    trajectory = asyncio.run(scenario())

    assert [message.role for message in trajectory.messages][1:] == [
        "assistant",
        "tool",
        "assistant",
    ]
    assert [call.parent for call in trajectory.calls] == [None, 0]
    stored = json.loads(trajectory.to_json_bytes())
    assert stored["calls"][0]["wire"]["answer"]["choices"][0]["logprobs"]["content"][0] == {
        "token": "f",
        "logprob": None,
    }
    assert stored["calls"][1]["wire"]["request"]["set"]["metadata"] == {"loss": None}
    assert stored["calls"][1]["sampling"] == {"temperature": None}
