"""From an endpoint to a client: what is checked before anything is sent."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.providers import ClientSettings, EndpointCheck, check_endpoint, connect
from assay.types import Endpoint
from model_server import ASK, OK, Behaviour, ModelServer, answers, hangs


def test_an_unknown_provider_is_refused_and_the_known_are_listed() -> None:
    with pytest.raises(
        ConfigError, match="'acme' is not a provider; choose one of openai, anthropic"
    ):
        connect(Endpoint(provider="acme", model="m"))


@pytest.mark.parametrize(
    "headers", [{"X Bad": "v"}, {"": "v"}, {"X:": "v"}, {"X-Key": "canary\nX-Other: 1"}]
)
def test_headers_that_cannot_be_sent_are_refused_without_their_value(
    headers: dict[str, str],
) -> None:
    with pytest.raises(ConfigError, match="is invalid") as caught:
        connect(Endpoint(provider="vllm", model="m", headers=headers))

    assert "canary" not in str(caught.value)


def test_an_address_that_no_request_can_be_made_of_is_refused() -> None:
    with pytest.raises(ConfigError, match="`api_base`"):
        connect(Endpoint(provider="vllm", model="m", api_base="http://[abc]/v1"))


def test_own_headers_replace_ours_whatever_their_case() -> None:
    async def scenario() -> None:
        async with ModelServer(OK) as server:
            endpoint = server.endpoint(headers={"user-agent": "mine", "AUTHORIZATION": "Key z"})
            async with connect(endpoint.model_copy(update={"api_key": ""})) as client:
                await client.complete(ASK)
            headers = server.asked[0].headers
            assert (headers["user-agent"], headers["authorization"]) == ("mine", "Key z")

    asyncio.run(scenario())


def test_a_query_in_the_address_travels_with_each_request() -> None:
    async def scenario() -> str:
        async with ModelServer(OK) as server:
            endpoint = server.endpoint(api_base=f"{server.url}?api-version=2024-10")
            async with connect(endpoint) as client:
                await client.complete(ASK)
            return server.asked[0].path

    assert asyncio.run(scenario()) == "/v1/chat/completions?api-version=2024-10"


def test_a_bad_price_table_is_told_before_the_first_call() -> None:
    with pytest.raises(ConfigError, match="price table"):
        connect(
            Endpoint(provider="mock", model="echo"), ClientSettings(prices=Path("no-such-file"))
        )


def test_a_model_in_this_process_says_itself_how_many_calls_it_bears(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    endpoint = Endpoint(provider="local", model=str(file), extra_params={"slots": 3})

    assert connect(endpoint).limiter.limit == 3
    assert connect(endpoint, ClientSettings(concurrency=2)).limiter.limit == 2


MODELS = {"data": [{"id": "m"}, {"id": "n"}]}


def check(behaviour: Behaviour, **fields: Any) -> tuple[EndpointCheck, ModelServer]:
    async def scenario() -> tuple[EndpointCheck, ModelServer]:
        async with ModelServer(behaviour) as server:
            timeout_s = 0.05 if behaviour is hangs else 10
            return await check_endpoint(server.endpoint(**fields), timeout_s=timeout_s), server

    return asyncio.run(scenario())


def test_a_server_that_answers_tells_its_models() -> None:
    found, server = check(answers(MODELS))

    assert (found.verdict, found.models, found.has_model) == ("answers", ("m", "n"), True)
    assert found.latency_s is not None
    assert [(asked.method, asked.path) for asked in server.asked] == [("GET", "/v1/models")]


def test_one_model_is_not_several() -> None:
    found, _ = check(answers({"data": MODELS["data"][:1]}))

    assert found.detail == "1 model"


def test_a_missing_model_is_told() -> None:
    found, _ = check(answers(MODELS), model="o")

    assert (found.verdict, found.has_model) == ("answers", False)
    assert found.hint == "the server does not offer the model 'o'"


def test_a_list_that_is_cut_short_proves_nothing() -> None:
    found, _ = check(answers({**MODELS, "has_more": True}), model="o")

    assert found.has_model is None
    assert found.detail == "2 models, the list is truncated"


@pytest.mark.parametrize(
    ("behaviour", "verdict"),
    [
        (answers({}, 401), "unauthorised"),
        (answers({}, 403), "unauthorised"),
        (answers({}, 404), "refused"),
        (answers({}, 500), "refused"),
        (answers(b"<html>"), "refused"),
        (answers({"models": []}), "refused"),
        (answers([1]), "refused"),
        (hangs, "unreachable"),
    ],
)
def test_every_other_outcome_has_a_verdict(behaviour: Behaviour, verdict: str) -> None:
    found, _ = check(behaviour)

    assert found.verdict == verdict
    assert found.detail


def test_nobody_listening_is_unreachable() -> None:
    endpoint = Endpoint(provider="vllm", model="m", api_base="http://127.0.0.1:1/v1")

    found = asyncio.run(check_endpoint(endpoint))

    assert found.verdict == "unreachable"
    assert found.hint is not None


def test_a_missing_key_is_told_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    found = asyncio.run(check_endpoint(Endpoint(provider="openai", model="m")))

    assert (found.verdict, found.detail) == ("misconfigured", "the API key for openai is missing")
    assert found.hint is not None
    assert "OPENAI_API_KEY" in found.hint


def test_anthropic_is_asked_at_its_own_path() -> None:
    async def scenario() -> str:
        async with ModelServer(answers(MODELS)) as server:
            base = server.url.removesuffix("/v1")
            await check_endpoint(server.endpoint(provider="anthropic", api_base=base))
            return server.asked[0].path

    assert asyncio.run(scenario()) == "/v1/models"


def test_a_mock_always_answers() -> None:
    found = asyncio.run(check_endpoint(Endpoint(provider="mock", model="echo")))

    assert found.verdict == "answers"
