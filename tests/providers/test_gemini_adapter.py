"""Gemini's own API: the requests, the messages that are read from its answers, and its errors."""

import asyncio
import json
from typing import Any

import pytest
from google.genai import types

from assay.errors import AccessDenied, ConfigError, EndpointError
from assay.providers import ClientSettings, Reply, check_endpoint, connect, parse_model
from assay.providers.attempt_errors import is_context_length_error
from assay.types import DataBlock, Endpoint, Message, TextBlock, ToolSpec
from model_server import ASK, Asked, ModelServer, ToldTime, answers

THOUGHT = {"text": "Add them.", "thought": True}
CALL = {
    "functionCall": {"name": "add", "args": {"a": 1, "b": 2}, "id": "fc-1"},
    "thoughtSignature": "c2lnbmF0dXJl",
}
TOOL = ToolSpec(
    name="add",
    description="Adds.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": False,
    },
)


def generate(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    content = {"role": "model", "parts": list(parts) or [{"text": "Hello."}]}
    candidate = {"content": content, "finishReason": "STOP", "index": 0, **more.pop("with_", {})}
    usage = {
        "promptTokenCount": 10,
        "candidatesTokenCount": 4,
        "totalTokenCount": 16,
        "cachedContentTokenCount": 3,
        "thoughtsTokenCount": 2,
    }
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": "gemini-x-001",
        "responseId": "r1",
        **more,
    }


def exchange(
    answer: Any = None, *, status: int = 200, call: Any = None, **fields: Any
) -> tuple[Asked, Reply]:
    async def scenario() -> tuple[Asked, Reply]:
        body = generate() if answer is None else answer
        async with ModelServer(answers(body, status)) as server:
            endpoint = server.endpoint(**{"provider": "gemini", **fields})
            settings = ClientSettings(max_retries=1)
            async with connect(endpoint, settings, timing=ToldTime().timing) as client:
                reply = await client.complete(**(call or {"messages": ASK}))
            return server.asked[0], reply

    return asyncio.run(scenario())


def check_request(asked: Asked) -> None:
    """Check a request against the types of Google's own package."""
    body = asked.json
    for content in [*body["contents"], *filter(None, [body.get("systemInstruction")])]:
        types.Content.model_validate(content)
    for tool in body.get("tools", []):
        types.Tool.model_validate(tool)
    types.GenerationConfig.model_validate(body.get("generationConfig", {}))


def test_a_request_sends_the_key_as_a_header_and_only_what_is_set() -> None:
    asked, reply = exchange()

    assert asked.path == "/v1/models/m:generateContent"
    assert asked.headers["x-goog-api-key"] == "k-1234"
    assert "authorization" not in asked.headers
    assert asked.json == {"contents": [{"role": "user", "parts": [{"text": "Say hello."}]}]}
    assert reply.message.text == "Hello."
    assert (reply.call.model, reply.call.finish_reason) == ("gemini-x-001", "stop")


def test_thoughts_are_output_and_what_was_cached_is_input() -> None:
    answer = generate()
    types.GenerateContentResponse.model_validate(answer)

    usage = exchange(answer)[1].call.usage

    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (10, 6)
    assert (usage.cached_tokens, usage.reasoning_tokens) == (3, 2)
    assert usage.cost_usd is None  # another address than Google's


def test_settings_and_tools_are_sent_under_the_names_of_the_api() -> None:
    asked, reply = exchange(
        call={
            "messages": [Message(role="system", content="Be brief."), *ASK],
            "tools": [TOOL],
            "seed": 2**31 + 5,
        },
        temperature=0.5,
        top_p=0.9,
        max_tokens=64,
        stop=("END",),
        thinking={"includeThoughts": True},
        reasoning_effort="low",
        extra_params={
            "generationConfig": {"topK": 20, "responseLogprobs": True},
            "tools": [{"googleSearch": {}}],
            "safetySettings": [],
        },
    )

    check_request(asked)
    assert asked.json == {
        "safetySettings": [],
        "contents": [{"role": "user", "parts": [{"text": "Say hello."}]}],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "generationConfig": {
            "temperature": 0.5,
            "topP": 0.9,
            "maxOutputTokens": 64,
            "stopSequences": ["END"],
            "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"},
            "topK": 20,
            "responseLogprobs": True,
            "seed": 5,
        },
        "tools": [
            {"googleSearch": {}},
            {
                "functionDeclarations": [
                    {
                        "name": "add",
                        "description": "Adds.",
                        "parametersJsonSchema": TOOL.parameters,
                    }
                ]
            },
        ],
    }
    assert reply.call.sampling["seed"] == 2**31 + 5


def test_a_tool_without_parameters_has_no_schema() -> None:
    tool = ToolSpec(name="now", description="", parameters={"type": "object", "properties": {}})

    asked, _ = exchange(call={"messages": ASK, "tools": [tool]})

    declared = asked.json["tools"][0]["functionDeclarations"]
    assert declared == [{"name": "now", "description": ""}]


def test_thoughts_and_their_signatures_are_sent_back_with_the_results_of_tools() -> None:
    answer = generate(THOUGHT, {"text": "I add."}, CALL, with_={"finishReason": "STOP"})
    types.GenerateContentResponse.model_validate(answer)
    _, reply = exchange(answer)

    assert reply.message.reasoning == "Add them."
    assert reply.message.text == "I add."
    assert [(each.id, each.name, each.arguments) for each in reply.message.tool_calls] == [
        ("fc-1", "add", {"a": 1, "b": 2})
    ]
    assert reply.call.finish_reason == "tool_calls"
    stored = Message.from_json(reply.message.to_json())
    result = Message(role="tool", content="3", tool_call_id="fc-1", name="add")
    asked, second = exchange(call={"messages": [*ASK, stored, result], "tools": [TOOL]})
    check_request(asked)
    assert asked.json["contents"][1:] == [
        {"role": "model", "parts": [THOUGHT, {"text": "I add."}, CALL]},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "add", "response": {"output": "3"}, "id": "fc-1"}}
            ],
        },
    ]
    assert (second.call.model_extra or {}).get("lost") is None


def test_calls_without_an_id_are_answered_by_name() -> None:
    part = {"functionCall": {"name": "add", "args": {}}}
    _, reply = exchange(generate(part, part))
    results = [Message(role="tool", content=text, name="add") for text in ("1", "2")]

    asked, _ = exchange(call={"messages": [*ASK, reply.message, *results]})

    responses = [part["functionResponse"] for part in asked.json["contents"][2]["parts"]]
    assert responses == [
        {"name": "add", "response": {"output": "1"}},
        {"name": "add", "response": {"output": "2"}},
    ]


def test_an_image_is_sent_as_data() -> None:
    url = "data:image/png;base64,iVBORw0KGgo="
    image = DataBlock.model_validate({"type": "image_url", "image_url": {"url": url}})
    message = Message(role="user", content=(TextBlock(text="What is it?"), image))

    asked, _ = exchange(call={"messages": [message]})

    check_request(asked)
    assert asked.json["contents"][0]["parts"] == [
        {"text": "What is it?"},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
    ]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "malformed_function_call"),
        (None, None),
    ],
)
def test_a_candidate_without_content_is_an_empty_message(
    reason: str | None, finish: str | None
) -> None:
    candidate = {"finishReason": reason, "index": 0, "finishMessage": "why"}
    _, reply = exchange({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 9}})

    assert (reply.message.text, reply.message.tool_calls) == ("", ())
    assert reply.call.finish_reason == finish
    assert (reply.call.model_extra or {})["finish_message"] == "why"
    assert reply.call.usage is not None
    assert reply.call.usage.output_tokens == 0


def test_an_empty_message_is_not_sent_back() -> None:
    messages = [*ASK, Message(role="assistant"), *ASK]

    asked, reply = exchange(call={"messages": messages})

    assert [content["role"] for content in asked.json["contents"]] == ["user", "user"]
    assert (reply.call.model_extra or {})["lost"] == {"an empty message; left out": 1}


def test_a_blocked_prompt_is_refused_with_its_reason() -> None:
    answer = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {}}
    types.GenerateContentResponse.model_validate(answer)

    with pytest.raises(EndpointError, match="the prompt was blocked: PROHIBITED_CONTENT") as no:
        exchange(answer)

    assert not no.value.retryable
    assert "safetySettings" in (no.value.hint or "")


def test_logprobs_are_read_with_the_ids_of_their_tokens() -> None:
    chosen = [
        {"token": "Hello", "tokenId": 17, "logProbability": -0.25},
        {"token": ".", "tokenId": 4, "logProbability": -0.5},
    ]
    answer = generate(with_={"logprobsResult": {"chosenCandidates": chosen}, "avgLogprobs": -0.3})
    types.GenerateContentResponse.model_validate(answer)

    _, reply = exchange(answer)

    assert reply.call.completion_ids == (17, 4)
    assert reply.call.logprobs == (-0.25, -0.5)


def test_logprobs_that_are_incomplete_are_left_out_with_a_reason() -> None:
    chosen = [{"token": "Hello", "tokenId": 17}, {"token": "."}]
    _, reply = exchange(generate(with_={"logprobsResult": {"chosenCandidates": chosen}}))

    assert (reply.call.completion_ids, reply.call.logprobs) == (None, None)
    assert "finite" in (reply.call.model_extra or {})["logprobs_left_out"]


def test_arguments_with_an_infinite_number_are_kept_as_text() -> None:
    text = json.dumps(generate({"functionCall": {"name": "add", "args": {"a": 7777}}}))

    _, reply = exchange(text.replace("7777", "1e999").encode())

    [call] = reply.message.tool_calls
    assert (call.arguments, call.malformed) == ({}, True)


def test_a_full_quota_is_retried_after_the_wait_in_the_body() -> None:
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota.", "details": [detail]}

    async def scenario() -> tuple[list[float], Reply]:
        time = ToldTime()
        script = (answers({"error": error}, 429), answers(generate()))
        async with ModelServer(*script) as server:
            endpoint = server.endpoint(provider="gemini")
            async with connect(endpoint, timing=time.timing) as client:
                return time.slept, await client.complete(ASK)

    slept, reply = asyncio.run(scenario())

    assert len(slept) == 1
    assert slept[0] >= 34
    assert reply.call.attempts == 2


def test_a_wrong_key_is_denied_although_its_status_is_400() -> None:
    error = {
        "code": 400,
        "message": "API key not valid. Please pass a valid API key.",
        "status": "INVALID_ARGUMENT",
        "details": [{"reason": "API_KEY_INVALID", "domain": "googleapis.com"}],
    }
    with pytest.raises(AccessDenied, match="HTTP 400: INVALID_ARGUMENT: API key not valid") as no:
        exchange({"error": error}, status=400)

    assert "the key of this Endpoint is not accepted" in (no.value.hint or "")


def test_a_conversation_that_is_too_long_is_recognised() -> None:
    message = (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    )
    error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}

    with pytest.raises(EndpointError) as no:
        exchange({"error": error}, status=400)

    assert is_context_length_error(no.value)


def test_an_unknown_model_has_a_hint_for_this_api() -> None:
    error = {"code": 404, "message": "models/m is not found for API version v1beta"}

    with pytest.raises(EndpointError, match="models/m is not found") as no:
        exchange({"error": error}, status=404)

    assert "assay doctor --model gemini:NAME" in (no.value.hint or "")


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>no JSON</html>",
        [],
        {},
        {"candidates": {}},
        {"candidates": [3]},
        {"candidates": [{"content": "text"}]},
        {"candidates": [{"content": {"parts": "text"}}]},
        {"candidates": [{"content": {"parts": [{"text": 3}]}}]},
        {"candidates": [{"content": {"parts": [{"functionCall": {"args": {}}}]}}]},
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "a", "args": 3}}]}}]},
        {"candidates": [{"content": {"parts": [None]}}]},
        generate(usageMetadata={"promptTokenCount": "ten"}),
        generate(usageMetadata={"promptTokenCount": 1, "candidatesTokenCount": None}),
        generate(modelVersion=3),
        {"promptFeedback": {"blockReason": 3}},
        {"promptFeedback": 3},
        {"error": "overloaded"},
    ],
)
def test_an_answer_of_another_shape_is_a_clear_error(answer: Any) -> None:
    with pytest.raises(EndpointError, match=r"the answer is|the server returned an error"):
        exchange(answer)


def test_half_an_emoji_is_replaced() -> None:
    _, reply = exchange(json.dumps(generate({"text": "hi \ud83d"})).encode())

    assert reply.message.text == "hi \ufffd"


@pytest.mark.parametrize(
    ("extra", "match"),
    [
        ({"contents": []}, "`contents` cannot be set"),
        ({"generation_config": {}}, "`generation_config` cannot be set"),
        ({"generationConfig": 3}, "is not an object"),
        ({"generationConfig": {"candidateCount": 2}}, "a reply is one message"),
    ],
)
def test_parameters_that_change_the_answer_are_refused(extra: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        connect(Endpoint(provider="gemini", model="m", api_key="k", extra_params=extra))


def test_the_key_is_looked_up_in_both_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ConfigError, match="the API key for gemini is missing") as no:
        connect("gemini:gemini-2.5-pro")
    assert no.value.hint is not None
    assert no.value.hint.startswith("set GEMINI_API_KEY or GOOGLE_API_KEY")

    monkeypatch.setenv("GOOGLE_API_KEY", "AIza-general")
    asked, _ = exchange(api_key="")
    assert asked.headers["x-goog-api-key"] == "AIza-general"
    monkeypatch.setenv("GEMINI_API_KEY", "AIza-special")
    asked, _ = exchange(api_key="")
    assert asked.headers["x-goog-api-key"] == "AIza-special"


@pytest.mark.parametrize("model", ["tunedModels/mine", "models/gemini-2.5-pro"])
def test_a_model_may_have_a_folder(model: str) -> None:
    asked, _ = exchange(model=model)

    assert asked.path == f"/v1/{model}:generateContent"


def test_a_model_name_cannot_leave_its_path() -> None:
    asked, _ = exchange(model="m?key=x#y")

    assert asked.path == "/v1/models/m%3Fkey%3Dx%23y:generateContent"


def test_the_offered_models_are_listed() -> None:
    async def scenario(model: str, **more: Any) -> Any:
        listed = {"models": [{"name": "models/gemini-2.5-pro"}], **more}
        async with ModelServer(answers(listed)) as server:
            found = await check_endpoint(server.endpoint(provider="gemini", model=model))
            assert server.asked[0].path == "/v1/models?pageSize=1000"
            return found

    found = asyncio.run(scenario("gemini-2.5-pro"))
    assert (found.verdict, found.has_model, found.models) == ("answers", True, ("gemini-2.5-pro",))
    assert asyncio.run(scenario("ghost")).has_model is False
    assert asyncio.run(scenario("ghost", nextPageToken="t")).has_model is None


def test_the_model_string_needs_no_address() -> None:
    endpoint = parse_model("gemini:gemini-2.5-flash#key_env=MY_KEY")

    assert (endpoint.provider, endpoint.model) == ("gemini", "gemini-2.5-flash")
    assert (endpoint.api_base, endpoint.key_env) == (None, "MY_KEY")
