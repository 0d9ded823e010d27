"""OpenAI's Responses API: the requests, and the messages that are read from its answers."""

import asyncio
from typing import Any

import pytest

from assay.errors import AccessDenied, ConfigError, EndpointError
from assay.providers import ClientSettings, Reply, check_endpoint, connect, parse_model
from assay.providers.attempt_errors import is_context_length_error
from assay.types import Endpoint, Message, ToolSpec
from model_server import ASK, Asked, ModelServer, ToldTime, answers

THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Add them."}],
    "encrypted_content": "opaque",
}
TEXT = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "add",
    "arguments": '{"a": 1}',
    "status": "completed",
}


def respond(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 10,
        "output_tokens": 4,
        "input_tokens_details": {"cached_tokens": 3},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    output = list(items) or [TEXT]
    response = {"model": "gpt-5-x", "status": "completed", "output": output, "usage": usage}
    return {**response, "error": None, **more}


def exchange(
    answer: Any = None, *, status: int = 200, call: Any = None, **fields: Any
) -> tuple[Asked, Reply]:
    async def scenario() -> tuple[Asked, Reply]:
        body = respond() if answer is None else answer
        async with ModelServer(answers(body, status)) as server:
            endpoint = server.endpoint(**{"provider": "openai-responses", **fields})
            settings = ClientSettings(max_retries=1)
            async with connect(endpoint, settings, timing=ToldTime().timing) as client:
                reply = await client.complete(**(call or {"messages": ASK}))
            return server.asked[0], reply

    return asyncio.run(scenario())


def test_a_request_stores_nothing_and_sends_the_key() -> None:
    asked, reply = exchange()

    assert asked.path == "/v1/responses"
    assert asked.headers["authorization"] == "Bearer k-1234"
    assert asked.json == {
        "model": "m",
        "store": False,
        "input": [{"role": "user", "content": "Say hello."}],
    }
    assert reply.message.text == "Hello."
    assert (reply.call.model, reply.call.finish_reason) == ("gpt-5-x", "stop")
    usage = reply.call.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (10, 4)
    assert (usage.cached_tokens, usage.reasoning_tokens) == (3, 2)


def test_settings_and_tools_are_sent_under_the_names_of_the_api() -> None:
    tool = ToolSpec(name="add", description="Adds.", parameters={"type": "object"})

    asked, _ = exchange(
        call={"messages": ASK, "tools": [tool], "seed": 5},
        model="gpt-5",
        temperature=1.0,
        max_tokens=64,
        reasoning_effort="low",
        extra_params={
            "reasoning": {"summary": "auto"},
            "include": ["more"],
        },
    )

    assert asked.json == {
        "model": "gpt-5",
        "store": False,
        "temperature": 1.0,
        "max_output_tokens": 64,
        "reasoning": {"summary": "auto", "effort": "low"},
        "include": ["more", "reasoning.encrypted_content"],
        "input": [{"role": "user", "content": "Say hello."}],
        "tools": [
            {
                "type": "function",
                "name": "add",
                "description": "Adds.",
                "parameters": {"type": "object"},
                "strict": False,
            }
        ],
    }


@pytest.mark.parametrize(("model", "asks"), [("gpt-5", True), ("gpt-5-chat-latest", False)])
def test_only_reasoning_models_are_asked_for_encrypted_reasoning(model: str, asks: bool) -> None:
    asked, _ = exchange(model=model)

    assert asked.json.get("include") == (["reasoning.encrypted_content"] if asks else None)


def test_the_items_of_an_answer_are_sent_back_in_order() -> None:
    _, reply = exchange(respond({**THOUGHT, "status": None}, TEXT, CALL))

    assert reply.message.reasoning == "Add them."
    assert reply.message.text == "Hello."
    assert [(each.id, each.name, each.arguments) for each in reply.message.tool_calls] == [
        ("call_1", "add", {"a": 1})
    ]
    assert reply.call.finish_reason == "tool_calls"
    stored = Message.from_json(reply.message.to_json())
    result = Message(role="tool", content="2", tool_call_id="call_1")
    asked, second = exchange(call={"messages": [*ASK, stored, result]})
    assert asked.json["input"][1:] == [
        THOUGHT,
        TEXT,
        CALL,
        {"type": "function_call_output", "call_id": "call_1", "output": "2"},
    ]
    assert (second.call.model_extra or {}).get("lost") is None


def test_an_edited_answer_is_sent_as_it_is_now() -> None:
    _, reply = exchange(respond(THOUGHT, TEXT))
    edited = reply.message.model_copy(update={"content": "Good bye."})

    asked, second = exchange(call={"messages": [*ASK, edited]})

    assert asked.json["input"][1:] == [{"role": "assistant", "content": "Good bye."}]
    assert (second.call.model_extra or {})["lost"] == {
        "no place for reasoning without its encrypted item; left out": 1
    }


def test_a_call_of_openais_own_tools_is_not_for_the_caller() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"q": "x"}}

    _, reply = exchange(respond(search, TEXT))

    assert reply.message.tool_calls == ()
    assert (reply.message.text, reply.call.finish_reason) == ("Hello.", "stop")


@pytest.mark.parametrize(
    ("reason", "finish"), [("max_output_tokens", "length"), ("content_filter", "content_filter")]
)
def test_an_incomplete_answer_has_the_finish_reason_of_chat(reason: str, finish: str) -> None:
    _, reply = exchange(respond(TEXT, status="incomplete", incomplete_details={"reason": reason}))

    assert reply.call.finish_reason == finish


def test_a_refusal_is_kept_as_in_chat() -> None:
    part = {"type": "refusal", "refusal": "I cannot."}

    _, reply = exchange(respond({**TEXT, "content": [part]}))

    assert (reply.message.model_extra or {})["refusal"] == "I cannot."


@pytest.mark.parametrize(
    "setting", [{"stop": ("END",)}, {"seed": 3}, {"thinking": {"type": "enabled"}}]
)
def test_settings_that_the_api_lacks_are_refused_by_name(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"no setting `{next(iter(setting))}`"):
        connect(Endpoint(provider="openai-responses", model="m", api_key="k", **setting))


@pytest.mark.parametrize("name", ["previous_response_id", "conversation", "input"])
def test_parameters_that_replace_the_conversation_are_refused(name: str) -> None:
    extra = {name: "resp_1"}
    with pytest.raises(ConfigError, match=f"`{name}` cannot be set"):
        connect(Endpoint(provider="openai-responses", model="m", api_key="k", extra_params=extra))


def test_a_conversation_that_is_too_long_is_recognised() -> None:
    error = {"code": "context_length_exceeded", "message": "exceeds the context window"}

    with pytest.raises(EndpointError) as caught:
        exchange({"error": error}, status=400)
    assert is_context_length_error(caught.value)
    with pytest.raises(EndpointError) as caught:
        exchange(respond(status="failed", error=error))
    assert is_context_length_error(caught.value)


def test_a_failure_of_the_server_is_retried() -> None:
    error = {"code": "server_error", "message": "oh"}

    with pytest.raises(EndpointError, match="gave up after 2 attempts") as caught:
        exchange(respond(status="failed", error=error))
    assert caught.value.retryable


@pytest.mark.parametrize(
    "answer",
    [[], {}, {"output": 5}, respond({**CALL, "name": 5}), respond(usage={"input_tokens": "many"})],
)
def test_an_answer_without_a_message_is_an_error_not_a_crash(answer: Any) -> None:
    with pytest.raises(EndpointError, match="answer"):
        exchange(answer)


def test_a_rejected_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-99")
    body = {"error": {"message": "bad key sk-secret-99"}}

    with pytest.raises(AccessDenied) as caught:
        exchange(body, status=401, api_key="", key_env="MY_KEY")

    assert "sk-secret-99" not in f"{caught.value!r} {caught.value}"
    assert (caught.value.hint or "").startswith("MY_KEY is not accepted here")


def test_the_endpoint_is_checked_by_listing_its_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "k-9")

    async def scenario() -> None:
        async with ModelServer(answers({"data": [{"id": "gpt-5"}]})) as server:
            found = await check_endpoint(
                parse_model(f"openai-responses:gpt-5@{server.url}#key_env=MY_KEY")
            )
        assert (found.verdict, found.has_model) == ("answers", True)
        assert server.asked[0].path == "/v1/models"
        assert server.asked[0].headers["authorization"] == "Bearer k-9"

    asyncio.run(scenario())
