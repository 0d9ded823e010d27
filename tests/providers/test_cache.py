"""Replies from disk: for the very same request only, whole or not at all."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError, EndpointError, WireError
from assay.providers import ClientSettings, Reply, connect
from assay.providers.cache import ResponseCache
from assay.types import Endpoint, Message, ModelCall, ToolCall, ToolSpec, Usage
from model_server import ASK, OK, ModelServer, ToldTime, answers

ENDPOINT = Endpoint(provider="openai", model="m", api_key="k-1")
REPLY = Reply(
    Message(
        role="assistant",
        content="Hello.",
        tool_calls=(ToolCall(id="a", name="add", arguments={}, raw_arguments="{"),),
    ),
    ModelCall(
        model="m",
        latency_s=2.5,
        completion_ids=(1, 2),
        logprobs=(-0.5, -0.25),
        usage=Usage(input_tokens=3, output_tokens=2, cost_usd=0.25),
    ),
)


def key(folder: Path, **fields: Any) -> str:
    seed, tools = fields.pop("call_seed", None), fields.pop("tools", [])
    messages = fields.pop("messages", ASK)
    return ResponseCache(folder, ENDPOINT.model_copy(update=fields)).key(messages, tools, seed)


@pytest.mark.parametrize(
    "change",
    [
        {"provider": "vllm"},
        {"model": "n"},
        {"api_base": "http://127.0.0.1:1/v1"},
        {"api_version": "2024-10-21"},
        {"temperature": 0.0},
        {"top_p": 1.0},
        {"max_tokens": 5},
        {"stop": ("x",)},
        {"thinking": {"type": "enabled"}},
        {"reasoning_effort": "low"},
        {"extra_params": {"top_k": 1}},
        {"extra_params": {"unheard_of": 1}},
        {"headers": {"openai-beta": "x"}},
        {"headers": {"X-Route-Model": "a"}},
        {"headers": {"X-Route-Model": "b"}},
        {"api_base": "https://api.openai.com/v1?deployment=a"},
        {"api_base": "https://api.openai.com/m@2/v1"},
        {"call_seed": 0},
        {"call_seed": 1},
        {"messages": [Message(role="user", content="Say hello!")]},
        {"messages": [Message(role="system", content="Say hello.")]},
        {"messages": [*ASK, *ASK]},
        {"tools": [ToolSpec(name="add")]},
    ],
)
def test_every_part_of_a_request_makes_another_key(change: dict[str, Any], tmp_path: Path) -> None:
    assert key(tmp_path, **change) != key(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"api_key": "k-2"},
        {"timeout_s": 5.0},
        {"api_base": "https://api.openai.com/v1/"},
        {"api_base": "https://me:pass@api.openai.com/v1?key=k&sig=s"},
        {"headers": {"Authorization": "Bearer k", "api-key": "k", "Cookie": "session=a"}},
        {},
    ],
)
def test_who_asks_and_how_patiently_makes_no_other_key(
    change: dict[str, Any], tmp_path: Path
) -> None:
    assert key(tmp_path, **change) == key(tmp_path)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"headers": {"X-Route-Model": "a"}}, {"headers": {"X-Route-Model": "b"}}),
        ({"api_base": "http://h/v1?deployment=a"}, {"api_base": "http://h/v1?deployment=b"}),
    ],
)
def test_models_that_a_header_or_the_query_chooses_are_not_mixed(
    one: dict[str, Any], other: dict[str, Any], tmp_path: Path
) -> None:
    assert key(tmp_path, **one) != key(tmp_path, **other)


def test_what_is_not_sent_makes_no_other_key(tmp_path: Path) -> None:
    stamped = [ASK[0].model_copy(update={"timestamp": "2030-01-01", "metadata": {"a": "b"}})]

    assert key(tmp_path, messages=stamped) == key(tmp_path)


def test_a_request_that_json_cannot_hold_has_no_key(tmp_path: Path) -> None:
    for value in (float("nan"), object()):
        with pytest.raises(WireError, match="cannot be encoded as JSON"):
            key(tmp_path, extra_params={"x": value})


def test_a_reply_comes_back_whole_marked_and_without_latency(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path, ENDPOINT)
    cache.keep("ab" * 32, REPLY)

    found = cache.find("ab" * 32)

    assert found is not None
    assert found.message == REPLY.message
    assert found.call.model_extra == {"cached": True}
    assert found.call.latency_s is None
    assert found.call.usage == Usage(input_tokens=3, output_tokens=2, cost_usd=0.0)
    assert (found.call.completion_ids, found.call.logprobs) == ((1, 2), (-0.5, -0.25))


@pytest.mark.parametrize("usage", [None, Usage(input_tokens=3)])
def test_a_cached_reply_costs_nothing_even_where_the_price_is_not_known(
    usage: Usage | None, tmp_path: Path
) -> None:
    cache = ResponseCache(tmp_path, ENDPOINT)
    cache.keep("ab" * 32, Reply(REPLY.message, REPLY.call.model_copy(update={"usage": usage})))

    found = cache.find("ab" * 32)

    assert found is not None
    assert found.call.usage is not None
    assert found.call.usage.cost_usd == 0.0
    assert found.call.usage.input_tokens == (None if usage is None else 3)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"version": 1}', "\x00\xff"])
def test_a_broken_entry_is_a_miss_and_counted(damage: str, tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path, ENDPOINT)
    cache.keep("ab" * 32, REPLY)
    (path,) = tmp_path.rglob("*.json")
    path.write_text(damage)

    assert cache.find("ab" * 32) is None
    assert (cache.hits, cache.misses, cache.broken) == (0, 1, 1)
    cache.keep("ab" * 32, REPLY)
    assert cache.find("ab" * 32) is not None


def test_an_entry_under_a_wrong_name_or_of_another_version_is_a_miss(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path, ENDPOINT)
    cache.keep("ab" * 32, REPLY)
    (path,) = tmp_path.rglob("*.json")
    entry = json.loads(path.read_text())
    (path.parent / f"ab{'cd' * 31}.json").write_text(json.dumps(entry))
    path.write_text(json.dumps({**entry, "version": 0}))

    assert cache.find("ab" + "cd" * 31) is None
    assert cache.find("ab" * 32) is None
    assert cache.broken == 2


def test_a_write_that_fails_loses_no_reply_and_leaves_no_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ResponseCache(tmp_path, ENDPOINT)

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    cache.keep("ab" * 32, REPLY)

    assert cache.unwritten == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match="the cache folder cannot be created"):
        ResponseCache(tmp_path / "file" / "cache", ENDPOINT)


def test_a_second_call_is_not_sent_and_another_seed_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            ModelServer(OK) as server,
            connect(server.endpoint(), ClientSettings(cache=tmp_path)) as client,
        ):
            first = await client.complete(ASK, seed=1)
            again = await client.complete(ASK, seed=1)
            other = await client.complete(ASK, seed=2)
            assert len(server.asked) == 2
            assert first.message == again.message
            extras = [reply.call.model_extra for reply in (first, again, other)]
            assert extras == [{}, {"cached": True}, {}]
            assert client.cache is not None
            assert (client.cache.hits, client.cache.misses) == (1, 2)

    asyncio.run(scenario())


def test_failures_are_never_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with ModelServer(answers({}, 400), OK) as server:
            settings = ClientSettings(cache=tmp_path)
            async with connect(server.endpoint(), settings, timing=ToldTime().timing) as client:
                with pytest.raises(EndpointError):
                    await client.complete(ASK)
                assert (await client.complete(ASK)).call.model_extra == {}

    asyncio.run(scenario())


def test_two_clients_share_a_folder_without_mixing_models(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with ModelServer(OK) as server:
            settings = ClientSettings(cache=tmp_path)
            for model, requests in (("m", 1), ("n", 2), ("m", 2)):
                async with connect(server.endpoint(model=model), settings) as client:
                    await client.complete(ASK)
                assert len(server.asked) == requests

    asyncio.run(scenario())
