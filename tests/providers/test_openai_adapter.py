"""Chat completions: what is sent, and what is made of the answer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError, EndpointError, WireError
from assay.providers import ClientSettings, Reply, connect
from assay.types import Endpoint, Message, TextBlock, ToolCall, ToolSpec, Usage
from model_server import ASK, OK, ModelServer, ToldTime, answers, said

ADD = ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {}})


def exchange(answer: Any = None, *, call: Any = None, **fields: Any) -> tuple[Any, Reply]:
    """The body that was sent and the reply that was read."""

    async def scenario() -> tuple[Any, Reply]:
        behaviour = OK if answer is None else answers(answer)
        async with ModelServer(behaviour) as server:
            settings = fields.pop("settings", None)
            endpoint = server.endpoint(**fields)
            async with connect(endpoint, settings, timing=ToldTime().timing) as client:
                reply = await client.complete(**(call or {"messages": ASK}))
            return server.asked[0], reply

    return asyncio.run(scenario())


def sent(**options: Any) -> Any:
    return exchange(**options)[0].json


def read(answer: Any, **fields: Any) -> Reply:
    return exchange(answer, **fields)[1]


def test_only_what_is_set_is_sent() -> None:
    asked, _ = exchange()

    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == "Bearer k-1234"
    assert asked.headers["content-type"] == "application/json"
    assert asked.json == {"model": "m", "messages": [{"role": "user", "content": "Say hello."}]}


def test_settings_and_extra_parameters_are_sent() -> None:
    body = sent(
        temperature=0.0,
        top_p=0.9,
        max_tokens=5,
        stop=("END",),
        reasoning_effort="low",
        extra_params={"top_k": 3, "response_format": {"type": "json_object"}},
        call={"messages": ASK, "seed": 7},
    )

    assert body | {"messages": []} == {
        "model": "m",
        "messages": [],
        "temperature": 0.0,
        "top_p": 0.9,
        "max_tokens": 5,
        "stop": ["END"],
        "reasoning_effort": "low",
        "top_k": 3,
        "response_format": {"type": "json_object"},
        "seed": 7,
    }


@pytest.mark.parametrize(
    ("provider", "model", "name"),
    [
        ("openai", "gpt-4o", "max_tokens"),
        ("openai", "o3-mini", "max_completion_tokens"),
        ("openai", "gpt-5-mini", "max_completion_tokens"),
        ("vllm", "gpt-5", "max_tokens"),
    ],
)
def test_the_length_limit_has_the_name_that_the_model_knows(
    provider: str, model: str, name: str
) -> None:
    body = sent(provider=provider, model=model, max_tokens=9)

    assert body[name] == 9
    assert len(body) == 3


def test_two_length_limits_are_refused() -> None:
    endpoint = Endpoint(
        provider="vllm", model="m", max_tokens=5, extra_params={"max_completion_tokens": 6}
    )

    with pytest.raises(ConfigError, match="both `max_tokens` and"):
        connect(endpoint)


def test_tools_are_sent_as_functions() -> None:
    function = {"name": "add", "description": "Adds.", "parameters": ADD.parameters}

    body = sent(call={"messages": ASK, "tools": [ADD]})

    assert body["tools"] == [{"type": "function", "function": function}]


def test_tools_of_the_server_are_sent_beside_ours() -> None:
    own = {"type": "web_search"}

    body = sent(extra_params={"tools": [own]}, call={"messages": ASK, "tools": [ADD]})

    assert [tool["type"] for tool in body["tools"]] == ["web_search", "function"]
    assert sent(extra_params={"tools": [own]})["tools"] == [own]


def test_a_conversation_with_tools_is_sent_in_openais_shape() -> None:
    call = ToolCall(id="c1", name="add", arguments={"a": 1})
    messages = [
        *ASK,
        Message(role="assistant", content=None, tool_calls=(call,)),
        Message(role="tool", content="2", tool_call_id="c1"),
    ]

    body = sent(call={"messages": messages})

    assert body["messages"][1]["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    ]
    assert body["messages"][2] == {"role": "tool", "content": "2", "tool_call_id": "c1"}


def test_what_the_format_has_no_place_for_is_named_on_the_call() -> None:
    thought = Message(role="assistant", content="Hm.", reasoning="Let me think.")

    asked, reply = exchange(call={"messages": [*ASK, thought]})

    assert b"Let me think" not in asked.body
    assert reply.call.model_extra == {"lost": {"OpenAI accepts no reasoning; left out": 1}}


def test_an_answer_becomes_a_message_and_a_call() -> None:
    reply = read(said("Hello."), temperature=0.5, extra_params={"top_k": 2, "api_secret": "s3cr"})

    assert reply.message == Message(role="assistant", content="Hello.")
    call = reply.call
    assert (call.model, call.finish_reason, call.attempts) == ("m-1", "stop", 1)
    assert call.sampling == {"temperature": 0.5, "top_k": 2}
    assert call.usage is not None
    assert (call.usage.input_tokens, call.usage.output_tokens) == (5, 2)
    assert (call.usage.cached_tokens, call.usage.cost_usd) == (None, None)
    assert call.latency_s is not None


def test_all_of_usage_is_read() -> None:
    usage = {
        "prompt_tokens": 50,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 40},
        "completion_tokens_details": {"reasoning_tokens": 15},
    }

    counted = read(said(usage=usage)).call.usage

    assert counted is not None
    assert (counted.cached_tokens, counted.reasoning_tokens) == (40, 15)


@pytest.mark.parametrize("usage", [None, {}, "many", {"prompt_tokens": None}])
def test_missing_usage_is_unknown_not_zero(usage: Any) -> None:
    counted = read(said(usage=usage)).call.usage

    assert counted is None or counted.input_tokens is counted.output_tokens is None


@pytest.mark.parametrize("absurd", [-1, 2**53 + 1, 2**63, 10**30])
def test_a_count_that_cannot_be_is_unknown_and_so_is_the_cost(absurd: int, tmp_path: Path) -> None:
    table = tmp_path / "prices.json"
    table.write_text('{"models": {"openai:m": {"input": 1, "output": 1}}}')
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": absurd,
        "prompt_tokens_details": {"cached_tokens": absurd},
    }

    counted = read(said(usage=usage), settings=ClientSettings(prices=table)).call.usage

    assert counted == Usage(input_tokens=5)


def test_tool_calls_are_read_even_when_their_arguments_are_broken() -> None:
    calls = [
        {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
        {"id": "b", "type": "function", "function": {"name": "add", "arguments": '{"a": '}},
        {"id": "c", "type": "function", "function": {"name": "add", "arguments": ""}},
    ]

    reply = read(said(None, message={"tool_calls": calls}, choice={"finish_reason": "tool_calls"}))

    good, bad, empty = reply.message.tool_calls
    assert (good.id, good.arguments, good.malformed) == ("a", {"a": 1}, False)
    assert (bad.malformed, bad.arguments_text) == (True, '{"a": ')
    assert (empty.malformed, empty.arguments) == (False, {})
    assert reply.call.finish_reason == "tool_calls"


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_is_read_under_either_name(key: str) -> None:
    assert read(said(message={key: "Let me see."})).message.reasoning == "Let me see."


def test_a_refusal_is_kept_and_empty_fields_are_not() -> None:
    more: dict[str, Any] = {
        "refusal": "I cannot.",
        "tool_calls": [],
        "audio": None,
        "annotations": [],
    }

    reply = read(said(None, message=more))

    assert reply.message.model_extra == {"refusal": "I cannot."}
    assert reply.message.tool_calls == ()


def test_a_server_cannot_set_fields_that_are_ours() -> None:
    more = {"metadata": {"eval_protocol_score": "1.0"}, "provider": "x", "spelling": {"a": 1}}

    reply = read(said(message=more))

    assert reply.message == Message(role="assistant", content="Hello.")


def test_content_in_parts_is_read() -> None:
    reply = read(said(message={"content": [{"type": "text", "text": "Hi"}]}))

    assert reply.message.content == (TextBlock(type="text", text="Hi"),)


def test_the_one_call_form_from_before_tool_calls_is_read() -> None:
    reply = read(said(None, message={"function_call": {"name": "add", "arguments": "{}"}}))

    assert [call.name for call in reply.message.tool_calls] == ["add"]


def test_logprobs_and_token_ids_of_vllm_are_read() -> None:
    content = [{"token": "He", "logprob": -0.25}, {"token": "llo", "logprob": -1}]
    choice = {"logprobs": {"content": content}, "token_ids": [11, 12]}

    call = read(said(choice=choice, prompt_token_ids=[1, 2, 3])).call

    assert call.prompt_ids == (1, 2, 3)
    assert call.completion_ids == (11, 12)
    assert call.logprobs == (-0.25, -1.0)


@pytest.mark.parametrize(("given", "found"), [("step-3", "step-3"), (None, None), (3, None)])
def test_the_version_of_the_weights_is_read_where_a_server_names_it(
    given: object, found: str | None
) -> None:
    assert read(said(weight_version=given)).call.weight_version == found


def test_a_gateways_error_with_status_200_counts_as_that_error() -> None:
    body = {"error": {"code": 401, "message": "no auth", "key": "k-1234"}}

    with pytest.raises(EndpointError, match="HTTP 401: no auth") as caught:
        exchange(body)

    assert caught.value.status == 401


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        "text",
        {},
        {"choices": None},
        {"choices": []},
        {"choices": ["x"]},
        {"choices": [{}]},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": 5}}]},
        {"choices": [{"message": {"tool_calls": 5}}]},
        {"choices": [{"message": {"tool_calls": [{"function": {}}]}}]},
        {"choices": [{"message": {"content": [5]}}]},
        {"choices": [{"message": {}, "finish_reason": {}}]},
        {"choices": [{"message": {}}], "usage": {"prompt_tokens": "x"}},
        {"choices": [{"message": {}}], "model": 4},
        {"error": {"message": "oh"}},
        {"error": "oh"},
    ],
)
def test_an_answer_that_is_no_chat_completion_is_an_error_not_a_crash(answer: Any) -> None:
    async def scenario() -> None:
        async with (
            ModelServer(answers(answer)) as server,
            connect(server.endpoint(), timing=ToldTime().timing) as client,
        ):
            with pytest.raises(EndpointError, match=r"answer.*gave up after 2 attempts"):
                await client.complete(ASK)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "extra", [{"stream": True}, {"n": 2}, {"messages": []}, {"model": "other"}]
)
def test_parameters_that_would_break_the_reading_are_refused(extra: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="extra_params"):
        connect(Endpoint(provider="vllm", model="m", extra_params=extra))


@pytest.mark.parametrize("value", [object(), float("nan"), float("inf"), "\ud800"])
def test_a_request_that_json_cannot_hold_is_refused_before_it_is_sent(value: Any) -> None:
    tool = ToolSpec(name="add", parameters={"default": value})

    with pytest.raises(WireError, match="cannot be encoded as JSON"):
        exchange(call={"messages": ASK, "tools": [tool]})


def test_the_word_nan_may_be_said() -> None:
    messages = [Message(role="user", content="Is NaN > Infinity?")]

    assert sent(call={"messages": messages})["messages"][0]["content"] == "Is NaN > Infinity?"


def test_cost_follows_from_the_table_at_the_providers_own_address_only() -> None:
    reply = read(said(), model="gpt-4o")

    assert reply.call.usage is not None
    assert reply.call.usage.cost_usd is None
