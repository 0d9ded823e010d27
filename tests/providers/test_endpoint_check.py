"""Whether an endpoint answers."""

import asyncio
from typing import Any

import pytest

from assay.providers import EndpointCheck, check_endpoint
from assay.types import Endpoint
from model_server import Behaviour, ModelServer, answers, hangs

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
