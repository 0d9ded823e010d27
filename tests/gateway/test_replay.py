"""`Replay`: recorded calls answer those of a later run, in the API of the agent."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession, web

from assay.errors import ReplayDifference
from assay.gateway import (
    Gateway,
    GatewaySession,
    OfflineClient,
    Recording,
    Replay,
    ReplaySession,
    request_normalization,
    write_recording,
)
from assay.providers import connect
from assay.types import Endpoint, Sample, Trajectory
from model_apis import ModelApi
from recorded_calls import Recording as RecordedCalls
from recorded_calls import agent, user

# An address of another machine without a key: asking it would fail.
NOWHERE = Endpoint(provider="openai", model="upstream-model", api_base="https://models.invalid/v1")
PATHS = {
    "openai": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
}
Work = Callable[[GatewaySession], Awaitable[Any]]


def ask(provider: str, *texts: str, stream: bool = False, **fields: Any) -> dict[str, Any]:
    """A request in which the model has answered all texts but the last, in capitals."""
    messages: list[dict[str, Any]] = []
    for text in texts[:-1]:
        messages += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": text.upper()},
        ]
    messages.append({"role": "user", "content": texts[-1]})
    name = "input" if provider == "openai-responses" else "messages"
    most = {"max_tokens": 100} if provider == "anthropic" else {}
    return {"model": "any", name: messages, "stream": stream, **most, **fields}


async def post(
    session: GatewaySession, provider: str, body: dict[str, Any], **headers: str
) -> tuple[int, str]:
    url = f"{session.root_url}{PATHS[provider]}"
    known = {"Authorization": f"Bearer {session.key}", **headers}
    async with ClientSession() as http, http.post(url, json=body, headers=known) as response:
        return response.status, await response.text()


def record(path: Path, work: Work, *, provider: str = "openai", prepare: Any = None) -> Recording:
    """Record the calls of `work` with a scripted server as those of the sample `s1`."""

    async def scenario() -> Trajectory:
        async with ModelApi(provider) as api:
            if prepare is not None:
                prepare(api)
            async with connect(api.endpoint()) as client, Gateway(client) as gateway:
                session = gateway.open_session()
                await work(session)
                return await session.seal()

    trajectory = asyncio.run(scenario()).model_copy(update={"duration": 9.0})
    sample = Sample(id="s1", trajectory=trajectory)
    write_recording(path, [(sample, 0)], run="run-1", endpoint={})
    return Recording.open(path)


def replay(
    recording: Recording, work: Work, **settings: Any
) -> tuple[Any, Trajectory, ReplaySession]:
    """Answer the calls of `work` from a recording; nothing else can answer."""

    async def scenario() -> tuple[Any, Trajectory, ReplaySession]:
        async with Gateway(OfflineClient(NOWHERE)) as gateway:
            recorded = Replay(recording, **settings).open("s1", 0)
            session = gateway.open_session(replay=recorded)
            result = await work(session)
            return result, await session.seal(), recorded

    return asyncio.run(scenario())


@pytest.mark.parametrize("provider", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_answers_are_those_of_the_recording_in_each_api(
    tmp_path: Path, provider: str, stream: bool
) -> None:
    async def work(session: GatewaySession) -> list[tuple[int, str]]:
        first = await post(session, provider, ask(provider, "one", stream=stream))
        return [first, await post(session, provider, ask(provider, "one", "two", stream=stream))]

    live: list[tuple[int, str]] = []

    async def work_and_keep(session: GatewaySession) -> None:
        live.extend(await work(session))

    recording = record(tmp_path / "calls.jsonl", work_and_keep, provider=provider)
    answers, trajectory, recorded = replay(recording, work)

    assert recorded.difference is None
    assert [status for status, _ in answers] == [200, 200]
    assert all(word in text for (_, text), word in zip(answers, ("ONE", "TWO"), strict=True))
    if not stream:
        assert answers == live
    texts = [message.text for message in trajectory.messages]
    assert texts == ["one", "ONE", "two", "TWO"]


def test_tokens_usage_and_latency_are_the_recorded_ones(tmp_path: Path) -> None:
    def prepare(api: ModelApi) -> None:
        api.token_ids = True

    async def work(session: GatewaySession) -> tuple[int, str]:
        return await post(session, "openai", ask("openai", "one", return_token_ids=True))

    recording = record(tmp_path / "calls.jsonl", work, prepare=prepare)
    _, trajectory, recorded = replay(recording, work)

    rollout = recording.load("s1", 0)
    assert rollout is not None
    (then,), (now,) = [each.build_call() for each in rollout.exchanges], trajectory.calls
    assert now.completion_ids == then.completion_ids is not None
    assert now.logprobs == then.logprobs is not None
    assert now.latency_s == then.latency_s is not None
    assert now.usage is not None
    assert (now.usage.input_tokens, now.usage.cost_usd) == (20, 0.0)
    assert recorded.duration_s == 9.0


def test_calls_of_branches_may_come_in_another_order(tmp_path: Path) -> None:
    async def forwards(session: GatewaySession) -> None:
        for text in ("one", "two", "three"):
            await post(session, "openai", ask("openai", text))

    async def backwards(session: GatewaySession) -> list[str]:
        calls = [post(session, "openai", ask("openai", each)) for each in ("three", "two", "one")]
        return [text for _, text in await asyncio.gather(*calls)]

    answers, _, _ = replay(record(tmp_path / "calls.jsonl", forwards), backwards)

    assert all(word in text for word, text in zip(("THREE", "TWO", "ONE"), answers, strict=True))


def test_equal_requests_get_their_answers_in_order(tmp_path: Path) -> None:
    def number(answer: int) -> Callable[[web.Request, dict[str, Any]], Awaitable[web.Response]]:
        async def behave(request: web.Request, body: dict[str, Any]) -> web.Response:
            message = {"role": "assistant", "content": f"answer {answer}"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return web.json_response({"id": "c", "model": "m", "choices": [choice]})

        return behave

    async def work(session: GatewaySession) -> list[str]:
        body = ask("openai", "one")
        return [(await post(session, "openai", body))[1] for _ in range(2)]

    recording = record(
        tmp_path / "calls.jsonl", work, prepare=lambda api: api.behave(number(1), number(2))
    )
    answers, _, _ = replay(recording, work)

    assert ["answer 1" in answers[0], "answer 2" in answers[1]] == [True, True]


def test_the_first_difference_is_shown_and_the_agent_is_told_not_to_try_again(
    tmp_path: Path,
) -> None:
    async def work(session: GatewaySession) -> None:
        await post(session, "openai", ask("openai", "one"))
        await post(session, "openai", ask("openai", "one", "Count.\nBe brief."))

    async def changed(session: GatewaySession) -> list[tuple[int, str]]:
        first = await post(session, "openai", ask("openai", "one"))
        return [first, await post(session, "openai", ask("openai", "one", "Count.\nBe long."))]

    answers, trajectory, recorded = replay(record(tmp_path / "calls.jsonl", work), changed)

    assert [status for status, _ in answers] == [200, 400]
    assert "replay_difference" in answers[1][1]
    assert isinstance(recorded.difference, ReplayDifference)
    assert recorded.difference.message.splitlines() == [
        "call 2 differs from call 2 of the recording of run run-1 in messages[2] (user).content",
        *("--- recorded", "+++ now", "@@ -1,2 +1,2 @@", " Count.", "-Be brief.", "+Be long."),
    ]
    assert trajectory.calls[1].latency_s is None
    assert recorded.duration_s is None


def test_one_more_call_than_recorded_is_a_difference(tmp_path: Path) -> None:
    async def work(session: GatewaySession) -> tuple[int, str]:
        return await post(session, "openai", ask("openai", "one"))

    async def twice(session: GatewaySession) -> list[int]:
        return [(await work(session))[0] for _ in range(2)]

    statuses, _, recorded = replay(record(tmp_path / "calls.jsonl", work), twice)

    assert statuses == [200, 400]
    assert "call 2 is not in the recording" in str(recorded.difference)


def test_a_sample_without_recorded_calls_differs_at_once(tmp_path: Path) -> None:
    async def work(session: GatewaySession) -> tuple[int, str]:
        return await post(session, "openai", ask("openai", "one"))

    other = Replay(record(tmp_path / "calls.jsonl", work)).open("s1", 1)

    with pytest.raises(ReplayDifference, match="has no calls of this sample"):
        other.find("openai_chat", "messages", ask("openai", "one"))


def test_an_error_that_the_agent_tried_again_after_is_not_replayed(tmp_path: Path) -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "slow down"}}, status=429)

    async def work(session: GatewaySession) -> list[int]:
        body = ask("openai", "one")
        return [(await post(session, "openai", body))[0] for _ in range(2)]

    recording = record(tmp_path / "calls.jsonl", work, prepare=lambda api: api.behave(refuse))
    statuses, _, _ = replay(recording, work)

    assert statuses == [200, 400]  # the answer at once, and no second one


def test_an_error_that_ended_the_conversation_is_replayed(tmp_path: Path) -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "context too long"}}, status=413)

    async def work(session: GatewaySession) -> tuple[int, str]:
        return await post(session, "openai", ask("openai", "one"))

    recording = record(tmp_path / "calls.jsonl", work, prepare=lambda api: api.behave(refuse))
    (status, text), _, recorded = replay(recording, work)

    assert status == 413
    assert "context too long" in text
    assert recorded.difference is None


def test_an_error_is_replayed_to_each_attempt_of_a_client(tmp_path: Path) -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": {"message": "overloaded"}}, status=529)

    async def work(session: GatewaySession) -> list[int]:
        body = ask("openai", "one")
        return [
            (await post(session, "openai", body, **{"x-stainless-retry-count": str(n)}))[0]
            for n in range(3)
        ]

    recording = record(
        tmp_path / "calls.jsonl", work, prepare=lambda api: api.behave(*[refuse] * 3)
    )
    statuses, _, recorded = replay(recording, work)

    assert statuses == [529, 529, 529]
    assert recorded.difference is None
    assert recorded.duration_s == 9.0


def test_a_stream_that_broke_is_replayed_as_an_error(tmp_path: Path) -> None:
    async def break_off(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"id": "c", "choices": []}\n\n')
        return response

    async def work(session: GatewaySession) -> int:
        try:
            return (await post(session, "openai", ask("openai", "one", stream=True)))[0]
        except ClientError:
            return 0

    recording = record(tmp_path / "calls.jsonl", work, prepare=lambda api: api.behave(break_off))
    status, _, recorded = replay(recording, work)

    assert status == 502
    assert recorded.difference is None


def test_a_marked_retry_gets_the_answer_of_its_first_attempt_again(tmp_path: Path) -> None:
    async def work(session: GatewaySession) -> list[int]:
        body = ask("openai", "one")
        first = await post(session, "openai", body)
        retry = await post(session, "openai", body, **{"x-stainless-retry-count": "1"})
        return [first[0], retry[0]]

    recording = record(tmp_path / "calls.jsonl", work)
    statuses, trajectory, _ = replay(recording, work)

    assert recording.header.calls == 1
    assert statuses == [200, 200]
    assert [call.purpose for call in trajectory.calls] == ["turn", "retry"]


def test_counted_tokens_are_replayed(tmp_path: Path) -> None:
    async def work(session: GatewaySession) -> str:
        url = f"{session.root_url}/v1/messages/count_tokens"
        headers = {"x-api-key": session.key}
        body = ask("anthropic", "one")
        async with ClientSession() as http, http.post(url, json=body, headers=headers) as response:
            return await response.text()

    recording = record(tmp_path / "calls.jsonl", work, provider="anthropic")
    text, _, _ = replay(recording, work)

    assert text == '{"input_tokens":77}'


def test_an_answer_in_another_api_is_not_taken_for_the_same(tmp_path: Path) -> None:
    async def work(session: GatewaySession) -> tuple[int, str]:
        return await post(session, "openai", ask("openai", "one"))

    async def other(session: GatewaySession) -> tuple[int, str]:
        return await post(session, "openai-responses", ask("openai-responses", "one"))

    (status, _), _, recorded = replay(record(tmp_path / "calls.jsonl", work), other)

    assert status == 400
    assert "of this API" in str(recorded.difference)


def test_all_calls_of_a_recording_answer_one_session(tmp_path: Path) -> None:
    async def work(session: GatewaySession) -> None:
        await post(session, "openai", ask("openai", "one"))
        await post(session, "openai", ask("openai", "two"))

    recorded = Replay(record(tmp_path / "calls.jsonl", work)).open_all()

    found = recorded.find("openai_chat", "messages", ask("openai", "two"))
    assert found is not None
    assert found.call == 1
    with pytest.raises(ReplayDifference, match="differs from call 1"):
        recorded.find("openai_chat", "messages", ask("openai", "three"))


def record_turns(path: Path, turns: int) -> tuple[Recording, list[dict[str, Any]]]:
    """Record one conversation without a server; return also its requests."""
    calls, bodies = RecordedCalls(), []
    messages: list[dict[str, Any]] = []
    for turn in range(turns):
        messages = [*messages, user(f"question {turn} " + "of some words " * 20)]
        calls.ask(messages, f"answer {turn}")
        bodies.append({"model": "m", "messages": messages})
        messages = [*messages, agent(f"answer {turn}")]
    sample = Sample(id="s1", trajectory=calls.session.build_trajectory())
    write_recording(path, [(sample, 0)], run="run-1", endpoint={})
    return Recording.open(path), bodies


def test_each_part_of_a_long_conversation_is_normalized_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 400
    recording, bodies = record_turns(tmp_path / "calls.jsonl", turns)
    normalized: list[bytes] = []
    normalize = request_normalization._normalize_written

    def count(part: bytes) -> str:
        normalized.append(part)
        return normalize(part)

    monkeypatch.setattr(request_normalization, "_normalize_written", count)

    recorded = Replay(recording).open("s1", 0)
    found = [recorded.find("openai_chat", "messages", body) for body in bodies]

    assert [each.call for each in found if each is not None] == list(range(turns))
    # The model's name, and each message of the conversation.
    assert len(normalized) == 1 + 2 * turns - 1


def test_a_difference_in_a_long_conversation_names_the_nearest_call(tmp_path: Path) -> None:
    recording, bodies = record_turns(tmp_path / "calls.jsonl", 100)
    recorded = Replay(recording).open("s1", 0)
    changed = {"model": "m", "messages": [*bodies[70]["messages"][:-1], user("another question")]}

    with pytest.raises(ReplayDifference, match=r"differs from call 71 .* in messages\[140\]"):
        recorded.find("openai_chat", "messages", changed)


def test_the_calls_of_one_session_are_read_from_the_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording, bodies = record_turns(tmp_path / "calls.jsonl", 30)
    recorded = Replay(recording).open_all()
    loads: list[str] = []
    load = recording.load

    def count(sample: str, repeat: int) -> Any:
        loads.append(sample)
        return load(sample, repeat)

    monkeypatch.setattr(recording, "load", count)
    for body in bodies[:-1]:
        recorded.find("openai_chat", "messages", body)
    with pytest.raises(ReplayDifference, match="differs from call 30"):
        recorded.find("openai_chat", "messages", {"model": "other", "messages": []})

    assert loads == ["s1"]
