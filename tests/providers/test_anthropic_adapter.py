"""Anthropic's messages: what is sent, and what is made of the answer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assay.errors import AccessDenied, ConfigError, EndpointError
from assay.providers import ClientSettings, Reply, connect
from assay.types import Endpoint, Message, ToolCall, ToolSpec
from model_server import ASK, Asked, ModelServer, ToldTime, answers


def spoke(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(blocks) or [{"type": "text", "text": "Hello.", "citations": None}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 4},
        **more,
    }


def exchange(
    answer: Any = None, *, call: Any = None, prices: Path | None = None, **fields: Any
) -> tuple[Asked, Reply]:
    async def scenario() -> tuple[Asked, Reply]:
        async with ModelServer(answers(spoke() if answer is None else answer)) as server:
            base = server.url.removesuffix("/v1")
            endpoint = server.endpoint(**{"provider": "anthropic", "api_base": base, **fields})
            settings = ClientSettings(prices=prices)
            async with connect(endpoint, settings, timing=ToldTime().timing) as client:
                reply = await client.complete(**(call or {"messages": ASK}))
            return server.asked[0], reply

    return asyncio.run(scenario())


def test_the_key_the_version_and_a_length_limit_are_sent() -> None:
    asked, reply = exchange()

    assert asked.path == "/v1/messages"
    assert asked.headers["x-api-key"] == "k-1234"
    assert asked.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in asked.headers
    assert asked.json == {
        "model": "m",
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": "Say hello."}],
    }
    assert reply.call.sampling == {"max_tokens": 4096}


def test_settings_system_prompt_and_tools_are_sent_under_anthropics_names() -> None:
    tool = ToolSpec(name="add", description="Adds.", parameters={"type": "object"})
    messages = [Message(role="system", content="Be brief."), *ASK]

    asked, _ = exchange(
        call={"messages": messages, "tools": [tool], "seed": 5},
        stop=("END",),
        temperature=1.0,
        max_tokens=2048,
        thinking={"type": "enabled", "budget_tokens": 1024},
        extra_params={"top_k": 5},
    )

    assert asked.json == {
        "model": "m",
        "max_tokens": 2048,
        "temperature": 1.0,
        "stop_sequences": ["END"],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "top_k": 5,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "Say hello."}],
        "tools": [{"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}],
    }


def test_a_token_is_sent_as_a_bearer_and_headers_can_be_set() -> None:
    asked, _ = exchange(
        api_key="", oauth_token="t-9876", headers={"Anthropic-Version": "2099", "X-Team": "a"}
    )

    assert asked.headers["authorization"] == "Bearer t-9876"
    assert asked.headers["anthropic-version"] == "2099"
    assert asked.headers["x-team"] == "a"
    assert "x-api-key" not in asked.headers


def test_text_is_read_as_a_string() -> None:
    _, reply = exchange()

    assert reply.message == Message(role="assistant", content="Hello.")
    assert (reply.call.model, reply.call.finish_reason) == ("claude-x", "end_turn")


def test_thinking_and_tool_calls_are_read_and_can_be_sent_back() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "Add them.", "signature": "sig"},
        {"type": "text", "text": "Adding."},
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
    ]
    _, reply = exchange(spoke(*blocks, stop_reason="tool_use"))

    assert reply.message.reasoning == "Add them."
    assert reply.message.text == "Adding."
    assert reply.message.tool_calls == (ToolCall(id="t1", name="add", arguments={"a": 1}),)
    assert reply.call.finish_reason == "tool_use"
    result = Message(role="tool", content="2", tool_call_id="t1")
    asked, _ = exchange(call={"messages": [*ASK, reply.message, result]})
    assert asked.json["messages"][1] == {"role": "assistant", "content": blocks}


@pytest.mark.parametrize("number", [b"1e999", b"NaN"])
def test_input_that_cannot_be_written_is_the_models_mistake(number: bytes) -> None:
    body = (
        b'{"content": [{"type": "text", "text": "Both."},'
        b' {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": [1, %s]}},'
        b' {"type": "tool_use", "id": "t2", "name": "add", "input": {"a": "NaN Infinity"}}]}'
    )

    _, reply = exchange(body % number)

    broken, good = reply.message.tool_calls
    assert (broken.id, broken.arguments, broken.malformed) == ("t1", {}, True)
    assert good == ToolCall(id="t2", name="add", arguments={"a": "NaN Infinity"})
    assert Message.from_json(reply.message.to_json()) == reply.message
    result = Message(role="tool", content="not a number", tool_call_id="t1")
    asked, _ = exchange(call={"messages": [*ASK, reply.message, result]})
    assert asked.json["messages"][1]["content"][1]["input"] == {}


@pytest.mark.parametrize("absurd", [-1, 2**63])
@pytest.mark.parametrize(
    "name", ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]
)
def test_a_count_that_cannot_be_is_unknown_and_so_is_the_cost(
    name: str, absurd: int, tmp_path: Path
) -> None:
    table = tmp_path / "prices.json"
    table.write_text(
        '{"models": {"anthropic:m": '
        '{"input": 1, "output": 10, "cached_input": 0.1, "cache_write": 2}}}'
    )

    _, reply = exchange(
        spoke(usage={"input_tokens": 5, "output_tokens": 4, name: absurd}), prices=table
    )

    usage = reply.call.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (None, 4)
    assert (usage.cached_tokens, usage.cost_usd) == (None, None)


def test_input_counts_what_was_cached_too(tmp_path: Path) -> None:
    table = tmp_path / "prices.json"
    table.write_text(
        '{"models": {"anthropic:m": '
        '{"input": 1, "output": 10, "cached_input": 0.1, "cache_write": 2}}}'
    )
    usage = {
        "input_tokens": 100,
        "output_tokens": 10,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 50,
    }

    _, reply = exchange(spoke(usage=usage), prices=table)

    counted = reply.call.usage
    assert counted is not None
    assert (counted.input_tokens, counted.cached_tokens) == (1150, 1000)
    assert counted.model_extra == {"cache_write_tokens": 50}
    assert counted.cost_usd == pytest.approx((100 + 10 * 10 + 1000 * 0.1 + 50 * 2) / 1e6)


def test_input_cached_for_an_hour_has_no_known_price(tmp_path: Path) -> None:
    table = tmp_path / "prices.json"
    table.write_text('{"models": {"anthropic:m": {"input": 1, "output": 1, "cache_write": 1}}}')
    usage = {
        "input_tokens": 1,
        "output_tokens": 1,
        "cache_creation_input_tokens": 5,
        "cache_creation": {"ephemeral_1h_input_tokens": 5},
    }

    _, reply = exchange(spoke(usage=usage), prices=table)

    assert reply.call.usage is not None
    assert reply.call.usage.cost_usd is None


def test_missing_usage_is_unknown() -> None:
    _, reply = exchange(spoke(usage=None))

    assert reply.call.usage is None


def test_openais_effort_is_refused() -> None:
    with pytest.raises(ConfigError, match="Anthropic takes `thinking`"):
        connect(Endpoint(provider="anthropic", model="m", api_key="k", reasoning_effort="low"))


def test_errors_are_told_in_anthropics_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k-from-environment")
    body = {"type": "error", "error": {"type": "authentication_error", "message": "invalid"}}

    async def scenario() -> None:
        async with ModelServer(answers(body, 401)) as server:
            base = server.url.removesuffix("/v1")
            async with connect(Endpoint(provider="anthropic", model="m", api_base=base)) as client:
                with pytest.raises(AccessDenied) as caught:
                    await client.complete(ASK)
        assert caught.value.message == "HTTP 401: authentication_error: invalid"
        assert caught.value.hint is not None
        assert caught.value.hint.startswith("ANTHROPIC_API_KEY is not accepted here")
        assert server.asked[0].headers["x-api-key"] == "k-from-environment"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"content": "x"},
        {"content": [5]},
        {"content": [{}]},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "tool_use", "id": "a", "name": "b", "input": "c"}]},
        spoke(usage={"input_tokens": "many"}),
        spoke(stop_reason=5),
        {"error": {"message": "oh"}},
    ],
)
def test_an_answer_that_is_no_message_is_an_error_not_a_crash(answer: Any) -> None:
    with pytest.raises(EndpointError, match=r"answer.*gave up after 2 attempts"):
        exchange(answer)
