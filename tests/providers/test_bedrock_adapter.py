"""Bedrock's Converse API: real boto3 against a server on loopback."""

import asyncio
import json
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from assay.errors import AccessDenied, ConfigError, EndpointError, MissingExtra, WireError
from assay.providers import ClientSettings, Reply, check_endpoint, connect
from assay.providers.attempt_errors import fills_context, is_context_length_error
from assay.types import DataBlock, Endpoint, Message, TextBlock, ToolSpec
from aws_settings import hide_aws_settings, set_aws_credentials
from forward_proxy import ForwardProxy
from model_server import ASK, Asked, Behaviour, ModelServer, ToldTime, answers

MODEL = "anthropic.claude-sonnet-4-5-20250929-v1:0"
REDACTED = b64encode(b"\x00\xff opaque").decode()
THOUGHT = {"reasoningContent": {"reasoningText": {"text": "Add them.", "signature": "sig"}}}
HIDDEN = {"reasoningContent": {"redactedContent": REDACTED}}
USE = {"toolUse": {"toolUseId": "tu-1", "name": "add", "input": {"a": 1, "b": 2}}}
TOOL = ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {}})


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_aws_credentials(monkeypatch, tmp_path)


def converse(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    content = list(blocks) or [{"text": "Hello."}]
    usage = {
        "inputTokens": 10,
        "outputTokens": 4,
        "totalTokens": 24,
        "cacheReadInputTokens": 7,
        "cacheWriteInputTokens": 3,
    }
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "end_turn",
        "usage": usage,
        "metrics": {"latencyMs": 5},
        **more,
    }


def refuses(status: int, kind: str, message: str, *, retry_after: str = "") -> Behaviour:
    body = {"message": message}
    return answers(body, status, x_amzn_errortype=kind, retry_after=retry_after)


def exchange(
    *behaviours: Behaviour, call: Any = None, time: ToldTime | None = None, **fields: Any
) -> tuple[Asked, Reply]:
    async def scenario() -> tuple[Asked, Reply]:
        async with ModelServer(*(behaviours or (answers(converse()),))) as server:
            base = server.url.removesuffix("/v1")
            given = {"provider": "bedrock", "model": MODEL, "api_base": base, **fields}
            settings = ClientSettings(max_retries=1, concurrency=4)
            timing = (time or ToldTime()).timing
            async with connect(Endpoint(**given), settings, timing=timing) as client:
                reply = await client.complete(**(call or {"messages": ASK}))
            return server.asked[0], reply

    return asyncio.run(scenario())


def test_a_request_is_signed_and_has_only_what_is_set() -> None:
    asked, reply = exchange()

    assert asked.path == "/model/anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse"
    authorization = asked.headers["authorization"]
    assert authorization.startswith("AWS4-HMAC-SHA256 Credential=AKIACANARY0000000001/")
    assert "/us-east-1/bedrock/aws4_request" in authorization
    assert asked.json == {"messages": [{"role": "user", "content": [{"text": "Say hello."}]}]}
    assert reply.message.text == "Hello."
    assert (reply.call.model, reply.call.finish_reason) == (MODEL, "stop")


def test_input_includes_what_was_cached() -> None:
    usage = exchange()[1].call.usage

    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (20, 4, 7)
    assert (usage.model_extra or {})["cache_write_tokens"] == 3
    assert usage.cost_usd is None


def test_settings_and_tools_are_sent_under_the_names_of_the_api() -> None:
    asked, _ = exchange(
        call={
            "messages": [Message(role="system", content="Be brief."), *ASK],
            "tools": [TOOL, ToolSpec(name="now", description="", parameters={})],
            "seed": 5,
        },
        temperature=0.5,
        top_p=0.9,
        max_tokens=64,
        stop=("END",),
        thinking={"type": "enabled", "budget_tokens": 1024},
        extra_params={
            "additionalModelRequestFields": {"top_k": 20},
            "toolConfig": {"toolChoice": {"any": {}}},
            "requestMetadata": {"team": "evals"},
        },
    )

    empty = {"type": "object", "properties": {}}
    described = {"name": "add", "description": "Adds.", "inputSchema": {"json": empty}}
    assert asked.json == {
        "messages": [{"role": "user", "content": [{"text": "Say hello."}]}],
        "system": [{"text": "Be brief."}],
        "inferenceConfig": {
            "temperature": 0.5,
            "topP": 0.9,
            "maxTokens": 64,
            "stopSequences": ["END"],
        },
        "additionalModelRequestFields": {
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "top_k": 20,
        },
        "toolConfig": {
            "toolChoice": {"any": {}},
            "tools": [
                {"toolSpec": described},
                {"toolSpec": {"name": "now", "inputSchema": {"json": empty}}},
            ],
        },
        "requestMetadata": {"team": "evals"},
    }


def test_reasoning_and_its_signatures_are_sent_back_with_the_results_of_tools() -> None:
    blocks = (THOUGHT, HIDDEN, {"text": "I add."}, USE)
    _, reply = exchange(answers(converse(*blocks, stopReason="tool_use")))

    assert reply.message.reasoning == "Add them."
    assert reply.message.text == "I add."
    assert [(each.id, each.name, each.arguments) for each in reply.message.tool_calls] == [
        ("tu-1", "add", {"a": 1, "b": 2})
    ]
    assert reply.call.finish_reason == "tool_calls"
    stored = Message.from_json(reply.message.to_json())
    result = Message(role="tool", content="3", tool_call_id="tu-1", name="add")
    asked, second = exchange(call={"messages": [*ASK, stored, result], "tools": [TOOL]})
    assert asked.json["messages"][1:] == [
        {"role": "assistant", "content": list(blocks)},
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "tu-1", "content": [{"text": "3"}]}}],
        },
    ]
    assert (second.call.model_extra or {}).get("lost") is None


def test_an_image_is_sent_as_data() -> None:
    url = "data:image/png;base64,iVBORw0KGgo="
    image = DataBlock.model_validate({"type": "image_url", "image_url": {"url": url}})
    message = Message(role="user", content=(TextBlock(text="What is it?"), image))

    asked, _ = exchange(call={"messages": [message]})

    assert asked.json["messages"][0]["content"] == [
        {"text": "What is it?"},
        {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}},
    ]


def test_an_image_that_is_not_base64_is_refused_before_the_call() -> None:
    url = "data:image/png;base64,not base64!"
    image = DataBlock.model_validate({"type": "image_url", "image_url": {"url": url}})

    with pytest.raises(WireError, match="not base64"):
        exchange(call={"messages": [Message(role="user", content=(image,))]})


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("max_tokens", "length"),
        ("guardrail_intervened", "content_filter"),
        ("malformed_tool_use", "malformed_tool_use"),
    ],
)
def test_finish_reasons_have_the_names_of_other_providers(reason: str, finish: str) -> None:
    _, reply = exchange(answers(converse(stopReason=reason)))

    assert reply.call.finish_reason == finish


def test_a_full_context_is_recognised_in_answers_and_errors() -> None:
    _, reply = exchange(answers(converse(stopReason="model_context_window_exceeded")))
    assert fills_context(reply.call)

    for message in (
        "Input is too long for requested model.",
        "Input Tokens Exceeded: Number of input tokens exceeds maximum length.",
    ):
        with pytest.raises(EndpointError, match="Input") as no:
            exchange(refuses(400, "ValidationException", message))
        assert is_context_length_error(no.value)


def test_throttling_is_retried_by_this_client_alone() -> None:
    time = ToldTime()
    slow = refuses(429, "ThrottlingException", "Too many tokens.", retry_after="9")

    _, reply = exchange(slow, answers(converse()), time=time)

    assert reply.call.attempts == 2
    assert 9 <= time.slept[0] < 10


def test_an_attempt_is_one_request() -> None:
    async def scenario() -> int:
        async with ModelServer(refuses(503, "ServiceUnavailableException", "Busy.")) as server:
            base = server.url.removesuffix("/v1")
            endpoint = Endpoint(provider="bedrock", model=MODEL, api_base=base)
            async with connect(endpoint, ClientSettings(max_retries=0)) as client:
                with pytest.raises(EndpointError, match="HTTP 503: Busy"):
                    await client.complete(ASK)
            return len(server.asked)

    assert asyncio.run(scenario()) == 1


def test_refused_credentials_are_access_denied_and_shown_nowhere() -> None:
    message = (
        "The security token included in the request is invalid: canary-session-token-000000000001"
    )

    with pytest.raises(AccessDenied, match="HTTP 403: The security token") as no:
        exchange(refuses(403, "UnrecognizedClientException", message))

    assert "canary-session" not in str(no.value)
    assert "AWS_PROFILE" in (no.value.hint or "")


def test_an_unknown_model_has_a_hint_for_aws() -> None:
    with pytest.raises(EndpointError, match="HTTP 404") as no:
        exchange(refuses(404, "ResourceNotFoundException", "Could not resolve the model."))

    assert "region" in (no.value.hint or "")


def test_the_signing_secrets_are_in_no_error() -> None:
    async def quotes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        text = "canary/secret+key/0000000000000000000001 AKIACANARY0000000001"
        await refuses(400, "ValidationException", f"you sent {text}")(reader, writer)

    with pytest.raises(EndpointError, match="you sent") as no:
        exchange(quotes)

    assert "canary/secret" not in str(no.value)
    assert "AKIACANARY" not in str(no.value)


def test_secrets_of_a_profile_are_in_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hide_aws_settings(monkeypatch, tmp_path)
    (tmp_path / "aws-credentials").write_text(
        "[mine]\naws_access_key_id = profile-canary-id\naws_secret_access_key = profile-canary\n"
    )
    (tmp_path / "aws-config").write_text("[profile mine]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    asked, _ = exchange()
    assert "Credential=profile-canary-id/" in asked.headers["authorization"]
    assert "/eu-west-1/bedrock/" in asked.headers["authorization"]

    with pytest.raises(EndpointError, match="signed with") as no:
        exchange(refuses(400, "ValidationException", "signed with profile-canary by that-id"))

    assert "profile-canary" not in str(no.value)


def test_a_key_of_bedrock_is_sent_instead_of_a_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = exchange(api_key="bedrock-key-1")
    assert asked.headers["authorization"] == "Bearer bedrock-key-1"

    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-key-2")
    asked, _ = exchange()
    assert asked.headers["authorization"] == "Bearer bedrock-key-2"

    monkeypatch.setenv("MY_KEY", "bedrock-key-3")
    asked, _ = exchange(key_env="MY_KEY", headers={"X-Team": "evals"})
    assert asked.headers["authorization"] == "Bearer bedrock-key-3"
    assert asked.headers["x-team"] == "evals"


def test_many_calls_run_at_once_without_stopping_the_event_loop() -> None:
    async def scenario() -> tuple[int, int]:
        async with ModelServer(answers(converse(), delay_s=0.2)) as server:
            base = server.url.removesuffix("/v1")
            endpoint = Endpoint(provider="bedrock", model=MODEL, api_base=base)
            async with connect(endpoint, ClientSettings(concurrency=4)) as client:
                # The server answers from this loop: a blocked loop would never end.
                await asyncio.gather(*(client.complete(ASK) for _ in range(12)))
            return server.most_at_once, len(server.asked)

    most, asked = asyncio.run(scenario())

    assert asked == 12
    assert 2 <= most <= 4


def test_a_server_that_never_answers_is_a_timeout() -> None:
    async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def scenario() -> None:
        async with ModelServer(hangs) as server:
            base = server.url.removesuffix("/v1")
            endpoint = Endpoint(provider="bedrock", model=MODEL, api_base=base, timeout_s=0.3)
            async with connect(endpoint, ClientSettings(max_retries=0)) as client:
                await client.complete(ASK)

    with pytest.raises(EndpointError, match=r"timed out after 0\.3 s") as no:
        asyncio.run(scenario())

    assert no.value.retryable


def test_a_refused_connection_names_the_reason_and_no_address() -> None:
    endpoint = Endpoint(provider="bedrock", model=MODEL, api_base="http://127.0.0.1:1")

    async def scenario() -> None:
        settings = ClientSettings(max_retries=0)
        async with connect(endpoint, settings) as client:
            await client.complete(ASK)

    with pytest.raises(EndpointError, match="the connection failed") as no:
        asyncio.run(scenario())

    assert "127.0.0.1:1/" not in no.value.message


def test_a_proxy_is_used_with_its_password_and_shows_neither(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(password: str) -> tuple[ForwardProxy, Reply]:
        demands = f"Basic {b64encode(b'me:canary-proxy').decode()}"
        async with (
            ForwardProxy(demands=demands) as proxy,
            ModelServer(answers(converse())) as server,
        ):
            monkeypatch.setenv("http_proxy", f"http://me:{password}@{proxy.host}")
            monkeypatch.setenv("no_proxy", "")
            base = server.url.removesuffix("/v1")
            endpoint = Endpoint(provider="bedrock", model="m", api_base=base)
            async with connect(endpoint, ClientSettings(max_retries=0)) as client:
                reply = await client.complete(ASK)
            assert proxy.asked == [f"POST {base}/model/m/converse"]
            return proxy, reply

    assert asyncio.run(scenario("canary-proxy"))[1].message.text == "Hello."
    with pytest.raises(EndpointError, match="407") as no:
        asyncio.run(scenario("wrong-canary"))
    assert "canary" not in str(no.value)


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>no JSON</html>",
        b"",
        b"[]",
        {},
        {"output": 3},
        {"output": {"message": {"role": "assistant", "content": "text"}}},
        {"output": {"message": {"role": "assistant", "content": [3]}}},
        {"output": {"message": {"role": "assistant", "content": [{"text": 3}]}}},
        converse({"toolUse": {"name": "add", "input": {}}}),
        converse({"toolUse": {"toolUseId": "t", "name": "add", "input": 3}}),
        converse(usage={"inputTokens": "ten"}),
        converse(usage=3),
        converse({"reasoningContent": {"redactedContent": "not base64!"}}),
    ],
)
def test_an_answer_of_another_shape_is_a_clear_error(answer: Any) -> None:
    with pytest.raises(EndpointError, match="the answer is"):
        exchange(answers(answer))


@pytest.mark.parametrize("depth", [250, 600, 5000])
def test_a_deeply_nested_answer_is_a_clear_error(depth: int) -> None:
    text = json.dumps(converse(USE)).replace('"a": 1', f'"a": {"[" * depth}{"]" * depth}')

    with pytest.raises(EndpointError, match="the answer is"):
        exchange(answers(text.encode()))


def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.providers.bedrock_client.MAX_RESPONSE_BYTES", 1000)

    with pytest.raises(EndpointError, match="the answer is longer than 1000 bytes"):
        exchange(answers(converse({"text": "x" * 200_000})))


def test_a_long_error_page_is_not_read_to_its_end() -> None:
    page = b"<html>" + b"x" * 200_000 + b"</html>"

    with pytest.raises(EndpointError, match="HTTP 400: xxx") as no:
        exchange(answers(page, 400))

    assert len(no.value.message) < 400


def test_a_header_that_cannot_be_sent_is_refused_without_its_value() -> None:
    endpoint = Endpoint(provider="bedrock", model=MODEL, headers={"X-Key": "canary\nline"})

    with pytest.raises(ConfigError, match="the header 'X-Key' is invalid") as no:
        connect(endpoint)

    assert "canary" not in str(no.value)


def test_half_an_emoji_and_an_infinite_number_are_survived() -> None:
    text = json.dumps(converse({"text": "hi \ud83d"}, USE)).replace('"a": 1', '"a": 1e999')

    _, reply = exchange(answers(text.encode()))

    assert reply.message.text == "hi \ufffd"
    assert reply.message.tool_calls[0].malformed


@pytest.mark.parametrize(
    ("extra", "match"),
    [
        ({"top_k": 20}, 'Unknown parameter in input: "top_k"'),
        ({"inferenceConfig": {"maxTokens": "many"}}, "Invalid type for parameter"),
        ({"inferenceConfig": 3}, "is not an object"),
        ({"toolConfig": 3}, "is not an object"),
        ({"system": []}, "`system` cannot be set"),
        ({"stream": True}, "`stream` cannot be set"),
    ],
)
def test_parameters_are_checked_before_the_first_call(extra: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        connect(Endpoint(provider="bedrock", model=MODEL, extra_params=extra))


def test_missing_credentials_and_a_missing_region_are_refused_before_the_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(ConfigError, match="the region of AWS is missing") as no:
        connect(f"bedrock:{MODEL}")
    assert "AWS_REGION" in (no.value.hint or "")

    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    connect(f"bedrock:{MODEL}")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ConfigError, match="the credentials of AWS are missing") as no:
        connect(f"bedrock:{MODEL}")
    assert "AWS_PROFILE" in (no.value.hint or "")


def test_a_profile_that_does_not_exist_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "ghost")

    with pytest.raises(ConfigError, match=r"the settings of AWS are invalid: .*ghost"):
        connect(f"bedrock:{MODEL}")


def test_without_boto3_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)

    with pytest.raises(
        MissingExtra, match="the provider 'bedrock' needs the package `boto3`"
    ) as no:
        connect(f"bedrock:{MODEL}")

    assert no.value.hint == "pip install 'assay-eval[bedrock]'"


def test_a_client_belongs_to_one_event_loop_until_it_is_closed() -> None:
    client = connect(
        Endpoint(provider="bedrock", model=MODEL, api_base="http://127.0.0.1:1"),
        ClientSettings(max_retries=0),
    )
    with pytest.raises(EndpointError, match="the connection failed"):
        asyncio.run(client.complete(ASK))

    with pytest.raises(ConfigError, match="another event loop"):
        asyncio.run(client.complete(ASK))
    asyncio.run(client.close())
    with pytest.raises(EndpointError, match="the client is closed"):
        asyncio.run(client.complete(ASK))


def test_the_check_does_not_call_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asyncio.run(check_endpoint(f"bedrock:{MODEL}"))
    assert (found.verdict, found.models) == ("answers", None)

    monkeypatch.delenv("AWS_REGION")
    assert asyncio.run(check_endpoint(f"bedrock:{MODEL}")).verdict == "misconfigured"
