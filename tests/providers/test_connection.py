"""From an endpoint to a client: what is checked before anything is sent."""

import asyncio
from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.providers import ClientSettings, connect
from assay.types import Endpoint
from model_server import ASK, OK, ModelServer


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
