"""`Gateway`: who may call, what is recorded, and what retries get."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientSession, ServerDisconnectedError, web
from openai import APIError, APIStatusError, AsyncOpenAI

from assay.errors import ConfigError
from assay.gateway import (
    Gateway,
    GatewaySession,
    GatewaySettings,
    RecordedCall,
    expand_request,
)
from assay.providers import connect
from assay.types import Trajectory
from gateway_servers import HELLO, open_client, post, serve
from model_apis import ModelApi


def test_a_call_is_recorded_with_request_answer_usage_and_times() -> None:
    async def scenario() -> Trajectory:
        async with serve() as (_, _, session), open_client(session) as agent:
            await agent.chat.completions.create(model="any", messages=HELLO, temperature=0.5)
            return await session.seal()

    trajectory = asyncio.run(scenario())

    (call,) = trajectory.calls
    assert call.usage is not None
    assert (call.usage.input_tokens, call.usage.output_tokens) == (20, 5)
    assert call.sampling["temperature"] == 0.5
    assert call.message_index == 1
    assert call.latency_s is not None
    assert call.wire is not None
    assert call.wire["answer"]["choices"][0]["message"]["content"] == "HELLO"
    assert expand_request(trajectory.calls, 0) == {
        "model": "any",
        "messages": HELLO,
        "temperature": 0.5,
    }


def test_settings_of_the_endpoint_override_those_of_the_agent() -> None:
    async def scenario() -> dict[str, Any]:
        async with serve(temperature=0.0, max_tokens=7) as (api, _, session):
            async with open_client(session) as agent:
                await agent.chat.completions.create(model="x", messages=HELLO, temperature=0.9)
            return api.asked[0]

    asked = asyncio.run(scenario())

    assert asked["temperature"] == 0.0
    assert asked["max_tokens"] == 7


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_the_seed_of_a_session_applies_to_calls_without_one(provider: str) -> None:
    async def scenario() -> list[Any]:
        async with serve(ModelApi(provider)) as (api, gateway, _):
            async with open_client(gateway.open_session(seed=5)) as agent:
                await agent.chat.completions.create(model="x", messages=HELLO)
                await agent.chat.completions.create(model="x", messages=HELLO, seed=6)
            return [asked.get("seed") for asked in api.asked]

    # Anthropic's API has no seed.
    assert asyncio.run(scenario()) == ([5, 6] if provider == "openai" else [None, None])


def test_the_concurrency_limit_of_the_model_grows_with_its_answers() -> None:
    async def scenario() -> tuple[int, int]:
        async with (
            ModelApi() as api,
            connect(api.endpoint()) as client,
            Gateway(client) as gateway,
            open_client(gateway.open_session()) as agent,
        ):
            before = client.limiter.limit
            for _ in range(3):
                calls = (
                    agent.chat.completions.create(model="x", messages=HELLO) for _ in range(before)
                )
                await asyncio.gather(*calls)
            return before, client.limiter.limit

    before, after = asyncio.run(scenario())

    assert after > before


@pytest.mark.parametrize("header", ["Authorization", "x-api-key", "api-key"])
def test_the_key_is_accepted_in_each_usual_header(header: str) -> None:
    async def scenario() -> int:
        async with serve() as (_, _, session):
            value = f"Bearer {session.key}" if header == "Authorization" else session.key
            url = f"{session.base_url}/chat/completions"
            body = {"model": "x", "messages": HELLO}
            return (await post(url, body, headers={header: value}))[0]

    assert asyncio.run(scenario()) == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/models", "/", ""])
def test_strangers_are_refused_and_not_recorded(path: str) -> None:
    async def scenario() -> list[tuple[int, int, int]]:
        async with serve() as (api, gateway, session):
            other = gateway.open_session()
            found = []
            for url, key in (
                (session.root_url + path, "wrong"),
                (session.root_url + path, ""),
                (session.root_url + path, other.key),
                (f"{gateway.url}/s/foreign{path}", session.key),
                (f"{gateway.url}{path}", session.key),
            ):
                status, _, _ = await post(url, {"model": "x", "messages": HELLO}, key=key)
                found.append((status, len(session.calls), len(api.asked)))
            return found

    assert set(asyncio.run(scenario())) == {(401, 0, 0)}


def test_headers_may_contain_any_bytes() -> None:
    async def scenario() -> list[bytes]:
        async with serve() as (_, gateway, session):
            host, port = gateway.url.removeprefix("http://").split(":")
            data = json.dumps({"model": "x", "messages": HELLO}).encode()
            statuses = []
            for header in (b"x-api-key: \xff", b"x-api-key: %s\r\nx-session-id: \xff"):
                reader, writer = await asyncio.open_connection(host, int(port))
                filled = header.replace(b"%s", session.key.encode())
                writer.write(
                    f"POST /s/{session.id}/v1/chat/completions HTTP/1.1\r\nHost: x\r\n".encode()
                    + b"%s\r\nContent-Length: %d\r\n\r\n%s" % (filled, len(data), data)
                )
                statuses.append((await reader.readline()).split()[1])
                writer.close()
                await writer.wait_closed()
            (await session.seal()).to_json()
            return statuses

    assert asyncio.run(scenario()) == [b"401", b"200"]


def test_an_unknown_path_with_the_right_key_is_not_found() -> None:
    async def scenario() -> tuple[int, bytes]:
        async with serve() as (_, _, session):
            status, _, body = await post(f"{session.base_url}/embeddings", {}, key=session.key)
            return status, body

    status, body = asyncio.run(scenario())

    assert status == 404
    assert b"/v1/responses" in body


def test_after_the_end_of_the_sample_calls_are_refused() -> None:
    async def scenario() -> tuple[APIStatusError, int, int]:
        async with serve() as (api, _, session), open_client(session) as agent:
            await agent.chat.completions.create(model="x", messages=HELLO)
            await session.seal()
            with pytest.raises(APIStatusError) as caught:
                await agent.chat.completions.create(model="x", messages=HELLO)
            return caught.value, len((await session.seal()).calls), len(api.asked)

    error, recorded, asked = asyncio.run(scenario())

    assert error.status_code == 409
    assert error.response.headers["x-should-retry"] == "false"
    assert (recorded, asked) == (1, 1)


def test_sealing_ends_the_calls_in_flight() -> None:
    arrived = asyncio.Event()

    async def wait(request: web.Request, body: dict[str, Any]) -> web.Response:
        arrived.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def scenario() -> Trajectory:
        async with serve() as (api, _, session), open_client(session) as agent:
            api.behave(wait)
            call = asyncio.create_task(agent.chat.completions.create(model="x", messages=HELLO))
            await arrived.wait()
            trajectory = await session.seal()
            with pytest.raises(APIError):
                await call
            return trajectory

    trajectory = asyncio.run(scenario())

    assert trajectory.messages == []
    assert trajectory.calls[0].error in (
        "the call was aborted",
        "the session ended before the answer",
    )


def test_models_and_head_are_answered() -> None:
    async def scenario() -> tuple[list[str], int, dict[str, Any]]:
        async with serve() as (_, _, session), open_client(session) as agent:
            models = [model.id async for model in agent.models.list()]
            models.append((await agent.models.retrieve("vendor/other-model")).id)
            headers = {"x-api-key": session.key, "anthropic-version": "2023-06-01"}
            async with ClientSession() as http:
                async with http.head(session.root_url) as response:
                    status = response.status
                async with http.get(f"{session.base_url}/models", headers=headers) as listed:
                    return models, status, await listed.json()

    models, status, listed = asyncio.run(scenario())

    assert models == ["upstream-model", "vendor/other-model"]
    assert status == 200
    assert listed["data"][0]["type"] == "model"


@pytest.mark.parametrize(("provider", "counted"), [("anthropic", 77), ("openai", 30)])
def test_tokens_are_counted_by_the_model_or_estimated(provider: str, counted: int) -> None:
    async def scenario() -> tuple[dict[str, Any], Trajectory]:
        async with serve(ModelApi(provider)) as (_, _, session):
            url = f"{session.base_url}/messages/count_tokens"
            body = {"model": "x", "messages": [{"role": "user", "content": "words " * 10}]}
            _, _, answer = await post(url, body, headers={"x-api-key": session.key})
            return json.loads(answer), await session.seal()

    answer, trajectory = asyncio.run(scenario())

    assert answer == {"input_tokens": counted}
    assert [call.purpose for call in trajectory.calls] == ["count_tokens"]
    assert trajectory.messages == []


def test_a_marked_retry_gets_the_recorded_answer() -> None:
    async def scenario() -> tuple[list[bytes], Trajectory, int]:
        async with serve() as (api, _, session):
            url = f"{session.base_url}/chat/completions"
            body = {"model": "x", "messages": HELLO}
            answers = []
            for count in ("0", "1", "2"):
                headers = {"x-stainless-retry-count": count}
                answers.append((await post(url, body, key=session.key, headers=headers))[2])
            return answers, await session.seal(), len(api.asked)

    answers, trajectory, asked = asyncio.run(scenario())

    assert asked == 1
    assert [json.loads(answer) for answer in answers] == [json.loads(answers[0])] * 3
    assert [call.purpose for call in trajectory.calls] == ["turn", "retry", "retry"]
    assert [call.parent for call in trajectory.calls] == [None, 0, 0]
    usages = [call.usage.output_tokens for call in trajectory.calls if call.usage is not None]
    assert usages == [5, 0, 0]


def test_an_unmarked_repetition_is_a_new_call() -> None:
    async def scenario() -> tuple[Trajectory, int]:
        async with serve() as (api, _, session), open_client(session) as agent:
            for _ in range(2):
                await agent.chat.completions.create(model="x", messages=HELLO)
            return await session.seal(), len(api.asked)

    trajectory, asked = asyncio.run(scenario())

    assert asked == 2
    assert [branch.reason for branch in trajectory.branches] == ["root", "resampled"]


def test_a_retry_after_a_failure_asks_the_model_again() -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "busy"}}, status=503)

    async def scenario() -> tuple[Trajectory, int]:
        async with serve() as (api, _, session):
            api.behave(refuse)
            client = AsyncOpenAI(base_url=session.base_url, api_key=session.key, max_retries=2)
            async with client as agent:
                await agent.chat.completions.create(model="x", messages=HELLO)
            return await session.seal(), len(api.asked)

    trajectory, asked = asyncio.run(scenario())

    assert asked == 2
    assert [call.error for call in trajectory.calls] == ["busy", None]
    assert [message.text for message in trajectory.messages] == ["hello", "HELLO"]


def test_a_retry_after_a_failure_gets_no_answer_of_an_equal_request() -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "busy"}}, status=429)

    async def scenario() -> tuple[list[str | None], list[str], int]:
        async with serve() as (api, _, session):
            url = f"{session.base_url}/chat/completions"
            # Two samples of one question: the first is refused, and tried again after the other.
            api.behave(refuse)
            for count in ("0", "0", "1", "1"):
                headers = {"x-stainless-retry-count": count}
                await post(url, {"messages": HELLO}, key=session.key, headers=headers)
            calls = (await session.seal()).calls
            return [call.error for call in calls], [call.purpose for call in calls], len(api.asked)

    errors, purposes, asked = asyncio.run(scenario())

    assert errors == ["busy", None, None, None]
    assert purposes == ["turn", "turn", "turn", "retry"]
    assert asked == 3


def test_token_ids_are_asked_for_without_streaming_and_the_agent_gets_a_stream() -> None:
    async def scenario() -> tuple[str, dict[str, Any], Trajectory]:
        api = ModelApi("openai-compatible")
        api.token_ids = True
        params = {"return_token_ids": True, "logprobs": True}
        async with (
            serve(api, extra_params=params) as (_, _, session),
            open_client(session) as agent,
        ):
            text = ""
            async for chunk in await agent.chat.completions.create(
                model="x", messages=HELLO, stream=True
            ):
                text += chunk.choices[0].delta.content or ""
            return text, api.asked[0], await session.seal()

    text, asked, trajectory = asyncio.run(scenario())

    assert text == "HELLO"
    assert asked["stream"] is False
    assert asked["return_token_ids"] is True
    (call,) = trajectory.calls
    assert call.completion_ids == (1001,)
    assert call.logprobs == (-0.5,)
    assert call.prompt_ids is not None


@pytest.mark.parametrize("fails", [False, True], ids=["answer", "error"])
def test_a_stream_is_kept_alive_while_the_whole_answer_is_awaited(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.gateway.http_answers.KEEP_ALIVE_S", 0.001)
    release = asyncio.Event()

    async def wait(request: web.Request, body: dict[str, Any]) -> web.Response:
        await release.wait()
        if fails:
            return web.json_response({"error": {"message": "too late"}}, status=503)
        content = [{"type": "text", "text": "late"}]
        return web.json_response({"content": content, "stop_reason": "end_turn"})

    async def scenario() -> list[bytes]:
        received: list[bytes] = []
        async with serve(ModelApi("anthropic")) as (api, _, session), ClientSession() as http:
            api.behave(wait)
            body = {"model": "x", "messages": HELLO, "stream": True}
            headers = {"Authorization": f"Bearer {session.key}"}
            url = f"{session.base_url}/chat/completions"
            async with http.post(url, json=body, headers=headers) as response:
                try:
                    async for part in response.content.iter_any():
                        received.append(part)
                        release.set()
                except ClientPayloadError:
                    received.append(b"broken")
        return received

    received = asyncio.run(scenario())

    assert received[0].startswith(b": keep-alive\n\n")
    if fails:
        assert b"too late" in b"".join(received)
        assert received[-1] == b"broken"
    else:
        assert b'"late"' in b"".join(received)
        assert b"".join(received).endswith(b"data: [DONE]\n\n")


def test_an_agent_that_leaves_does_not_lose_the_answer_for_its_retry() -> None:
    arrived, release = asyncio.Event(), asyncio.Event()

    async def wait(request: web.Request, body: dict[str, Any]) -> web.Response:
        arrived.set()
        await release.wait()
        choice = {"index": 0, "message": {"role": "assistant", "content": "late"}}
        return web.json_response({"choices": [{**choice, "finish_reason": "stop"}]})

    async def scenario() -> tuple[str, int]:
        async with serve() as (api, _, session):
            api.behave(wait)
            url = f"{session.base_url}/chat/completions"
            body = {"model": "x", "messages": HELLO}
            first = asyncio.create_task(post(url, body, key=session.key))
            await arrived.wait()
            first.cancel()
            headers = {"x-stainless-retry-count": "1"}
            second = asyncio.create_task(post(url, body, key=session.key, headers=headers))
            await asyncio.sleep(0)
            release.set()
            _, _, answer = await second
            return json.loads(answer)["choices"][0]["message"]["content"], len(api.asked)

    assert asyncio.run(scenario()) == ("late", 1)


def test_the_observer_sees_each_call_when_it_ends() -> None:
    seen: list[tuple[str, int | None]] = []

    def observe(session: GatewaySession, call: RecordedCall) -> None:
        seen.append((call.purpose, call.status))

    async def scenario() -> None:
        async with (
            ModelApi() as api,
            connect(api.endpoint()) as client,
            Gateway(client, observe=observe) as gateway,
            open_client(gateway.open_session()) as agent,
        ):
            await agent.chat.completions.create(model="x", messages=HELLO)

    asyncio.run(scenario())

    assert seen == [("turn", 200)]


def test_a_port_in_use_is_a_usage_error() -> None:
    async def scenario() -> None:
        async with ModelApi() as api, connect(api.endpoint()) as client:
            port = int(api.url.rpartition(":")[2])
            with pytest.raises(ConfigError, match="cannot listen"):
                async with Gateway(client, GatewaySettings(port=port)):
                    pass

    asyncio.run(scenario())


def test_a_port_that_does_not_exist_is_a_usage_error() -> None:
    async def scenario() -> None:
        async with connect("mock:echo") as client:
            with pytest.raises(ConfigError, match="ports end at 65535"):
                async with Gateway(client, GatewaySettings(port=99999)):
                    pass

    asyncio.run(scenario())


def test_a_gateway_that_stops_ends_its_sessions() -> None:
    async def scenario() -> bool:
        async with serve() as (_, gateway, session):
            pass
        with pytest.raises((ServerDisconnectedError, OSError)):
            await post(f"{session.base_url}/chat/completions", {}, key=session.key)
        return session.is_sealed and not gateway.is_running

    assert asyncio.run(scenario())
