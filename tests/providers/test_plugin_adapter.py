"""The clients of provider plug-ins: called through `connect`, and refused when they are none."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError, EndpointError
from assay.providers import ClientSettings, check_endpoint, connect, parse_model
from assay.types import Endpoint, Message
from plugin_package import install_package

QUESTION = [Message(role="user", content="Hello")]
CODE = """
from assay.providers import Provider, Reply
from assay.types import Message, ModelCall, Usage

calls = []

class Loud:
    def __init__(self, endpoint, settings):
        self.endpoint, self.closed = endpoint, False

    async def complete(self, messages, *, tools=(), seed=None):
        calls.append((messages[-1].text, seed))
        text = messages[-1].text.upper()
        usage = Usage(input_tokens=1_000_000, output_tokens=1_000_000)
        return Reply(Message(role="assistant", content=text), ModelCall(usage=usage))

    async def close(self):
        calls.append("closed")

class Silent(Loud):
    async def complete(self, messages, *, tools=(), seed=None):
        return "a text"

class Refusing:
    def __init__(self, endpoint, settings):
        raise OSError("no license")

class Incomplete:
    def __init__(self, endpoint, settings):
        pass

server = Provider("openai", "http://127.0.0.1:9/v1", "ACME_KEY")
empty = Provider("plugin")
number = 7
"""
NAMES = ("Loud", "Silent", "Refusing", "Incomplete", "server", "empty", "number")


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {f"providers.{name.lower()}": f"acme_assay:{name}" for name in NAMES}
    install_package(tmp_path, monkeypatch, entries, code=CODE)


def recorded_calls() -> list[Any]:
    import acme_assay  # type: ignore[import-not-found]  # written by the test

    calls: list[Any] = acme_assay.calls
    return calls


def test_a_model_string_names_the_provider_of_a_plugin() -> None:
    async def ask() -> Any:
        async with connect("loud:one") as client:
            return await client.complete(QUESTION, seed=3)

    reply = asyncio.run(ask())

    assert reply.message.text == "HELLO"
    assert reply.call.message_index == 1
    assert reply.call.latency_s >= 0
    assert recorded_calls() == [("Hello", 3), "closed"]


def test_calls_are_limited_cached_and_priced_like_those_of_other_providers(tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text('{"models": {"loud:one": {"input": 1, "output": 2}}}')
    settings = ClientSettings(concurrency=2, cache=tmp_path / "cache", prices=prices)

    async def ask() -> Any:
        async with connect("loud:one", settings) as client:
            first = await client.complete(QUESTION)
            assert client.limiter.limit == 2
            return first, await client.complete(QUESTION)

    first, second = asyncio.run(ask())

    assert first.call.usage.cost_usd == 3.0
    assert second.message == first.message
    assert recorded_calls() == [("Hello", None), "closed"]


def test_an_address_and_a_key_variable_are_the_plugins_to_use() -> None:
    endpoint = parse_model("loud:one@https://models.example/v2#key_env=ACME_KEY")

    assert endpoint == Endpoint(
        provider="loud", model="one", api_base="https://models.example/v2", key_env="ACME_KEY"
    )
    with pytest.raises(ConfigError, match="`api_base` is not an http or https address"):
        parse_model("loud:one@http://")


def test_a_provider_object_sets_the_address_and_the_key_of_a_known_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ACME_KEY", raising=False)

    with pytest.raises(ConfigError) as refused:
        connect("server:one")

    assert refused.value.hint is not None
    assert "set ACME_KEY" in refused.value.hint


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("refusing", "the plug-in cannot build a client: OSError: no license"),
        ("incomplete", "returned a `Incomplete`, which has no method `complete`"),
        ("empty", "has the protocol 'plugin', but no `connect`"),
        (
            "number",
            "is of type `int`, not a Provider or a function; it is registered by acme-assay",
        ),
    ],
)
def test_what_gives_no_client_is_refused_before_a_call(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        connect(Endpoint(provider=name, model="one"))

    assert message in refused.value.message


def test_an_answer_that_is_not_a_reply_is_an_error_of_the_endpoint() -> None:
    async def ask() -> None:
        async with connect("silent:one") as client:
            await client.complete(QUESTION)

    with pytest.raises(EndpointError, match="the plug-in returned a `str`, not a Reply"):
        asyncio.run(ask())


def test_a_check_builds_the_client_and_does_not_call_it() -> None:
    found = asyncio.run(check_endpoint("loud:one"))
    broken = asyncio.run(check_endpoint("refusing:one"))

    assert (found.verdict, found.models) == ("answers", None)
    assert broken.verdict == "misconfigured"
    assert recorded_calls() == ["closed"]


def test_the_names_of_plugins_are_listed_where_one_is_unknown() -> None:
    with pytest.raises(ConfigError, match=r"choose one of openai, .*, mock, loud, silent"):
        parse_model("lowd:one")
