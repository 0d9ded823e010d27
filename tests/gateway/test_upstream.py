"""The model behind the gateway: settings of agents in its API, and which of them win."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from aiohttp import web

from assay.errors import WireError
from assay.formats import ModelRequest
from assay.gateway import upstream as upstream_module
from assay.gateway.dialects import OPENAI_CHAT, OPENAI_RESPONSES
from assay.gateway.upstream import Upstream, write_protocol_settings
from assay.providers import Client, connect
from assay.types import Endpoint, Message, redact
from gateway_servers import HELLO, post, serve
from model_apis import ModelApi, answer_messages
from scripted import Scripted

SCHEMA = {"name": "answer", "schema": {"type": "object"}}
ANY_JSON: dict[str, Any] = {"name": "answer", "schema": {}}
ASK = [Message(role="user", content="hi")]


@pytest.mark.parametrize(
    ("protocol", "given", "written"),
    [
        ("openai", {"tool_choice": "required"}, {"tool_choice": "required"}),
        (
            "openai",
            {"tool_choice": {"name": "f"}},
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        (
            "openai",
            {"response_schema": SCHEMA, "parallel_tool_calls": False},
            {
                "response_format": {"type": "json_schema", "json_schema": SCHEMA},
                "parallel_tool_calls": False,
            },
        ),
        ("openai", {"response_schema": ANY_JSON}, {"response_format": {"type": "json_object"}}),
        (
            "openai-responses",
            {"tool_choice": {"name": "f"}},
            {"tool_choice": {"type": "function", "name": "f"}},
        ),
        (
            "openai-responses",
            {"response_schema": SCHEMA},
            {"text": {"format": {"type": "json_schema", **SCHEMA}}},
        ),
        ("anthropic", {"tool_choice": "required"}, {"tool_choice": {"type": "any"}}),
        ("anthropic", {"tool_choice": "none"}, {"tool_choice": {"type": "none"}}),
        (
            "anthropic",
            {"tool_choice": {"name": "f"}, "parallel_tool_calls": False},
            {"tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True}},
        ),
        ("anthropic", {"top_k": 5}, {"top_k": 5}),
        (
            "anthropic",
            {"response_schema": SCHEMA},
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA["schema"]}}},
        ),
        (
            "gemini",
            {"tool_choice": {"name": "f"}, "response_schema": SCHEMA, "top_k": 5},
            {
                "generationConfig": {
                    "topK": 5,
                    "responseMimeType": "application/json",
                    "responseJsonSchema": SCHEMA["schema"],
                },
                "toolConfig": {
                    "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}
                },
            },
        ),
        (
            "gemini",
            {"tool_choice": "none"},
            {"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}},
        ),
        ("local", {"tool_choice": "auto", "parallel_tool_calls": True}, {}),
    ],
)
def test_settings_are_written_in_the_models_api(
    protocol: str, given: dict[str, Any], written: dict[str, Any]
) -> None:
    assert write_protocol_settings(protocol, given) == written


@pytest.mark.parametrize(
    ("protocol", "given"),
    [
        ("openai", {"top_k": 5}),
        ("anthropic", {"response_schema": ANY_JSON}),
        ("local", {"tool_choice": "required"}),
        ("local", {"response_schema": SCHEMA}),
    ],
)
def test_settings_without_an_equivalent_are_refused(protocol: str, given: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        write_protocol_settings(protocol, given)


def open_upstream(**fields: Any) -> Upstream:
    given = {"provider": "openai", "model": "m", "api_key": "sk-0123456789"}
    return Upstream(connect(Endpoint(**{**given, **fields})))


def test_settings_of_the_endpoint_win_over_those_of_the_request() -> None:
    upstream = open_upstream(temperature=0.0)
    settings = {"temperature": 0.9, "top_p": 0.5, "thinking": {"type": "adaptive"}}

    client, used = upstream.choose_client(ModelRequest(ASK, settings=settings))

    assert client.endpoint.temperature == 0.0
    assert client.endpoint.top_p == 0.5
    assert used == {"top_p": 0.5}
    assert client.endpoint.api_key == "sk-0123456789"


def test_clients_of_equal_settings_are_shared_with_one_limit() -> None:
    upstream = open_upstream()
    request = ModelRequest(ASK, settings={"top_p": 0.5})

    first, _ = upstream.choose_client(request)
    second, _ = upstream.choose_client(request)
    other, _ = upstream.choose_client(ModelRequest(ASK, settings={"top_p": 0.6}))

    assert first is second
    assert first is not other
    assert isinstance(other, Client)
    assert isinstance(upstream.client, Client)
    assert other.limiter is upstream.client.limiter


class ClientLedger:
    """Counts how often each client for a combination of settings is closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.closed: Counter[float | None] = Counter()
        self.connected: list[float | None] = []

        def connect_counted(endpoint: Endpoint, *settings: Any) -> Client:
            client = connect(endpoint, *settings)
            self.connected.append(endpoint.temperature)
            close = client.close

            async def close_counted() -> None:
                self.closed[endpoint.temperature] += 1
                await close()

            client.close = close_counted  # type: ignore[method-assign]  # to count
            return client

        monkeypatch.setattr(upstream_module, "connect", connect_counted)

    @property
    def open(self) -> set[float | None]:
        return {each for each in self.connected if not self.closed[each]}


def test_clients_of_many_combinations_of_settings_are_closed_exactly_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = ClientLedger(monkeypatch)
    temperatures = [number / 100 for number in range(40)]
    most = 0

    async def scenario() -> None:
        nonlocal most
        async with serve(ModelApi("anthropic")) as (_, _, session):
            url = f"{session.base_url}/chat/completions"
            for temperature in temperatures:
                body = {"model": "x", "messages": HELLO, "temperature": temperature}
                assert (await post(url, body, key=session.key))[0] == 200
                most = max(most, len(ledger.open))
            # The last used ones are kept.
            assert (await post(url, body, key=session.key))[0] == 200
            assert ledger.open == set(temperatures[-32:])

    asyncio.run(scenario())

    assert most == 32
    assert ledger.connected == temperatures
    assert ledger.closed == Counter(temperatures)


def test_a_client_is_not_closed_while_its_model_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = ClientLedger(monkeypatch)

    async def scenario() -> int:
        asked, answered = asyncio.Event(), asyncio.Event()

        async def wait(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            asked.set()
            await answered.wait()
            return web.json_response(answer_messages(body))

        async with serve(ModelApi("anthropic")) as (model, _, session):
            url = f"{session.base_url}/chat/completions"

            async def call(temperature: float) -> int:
                body = {"model": "x", "messages": HELLO, "temperature": temperature}
                return (await post(url, body, key=session.key))[0]

            model.behave(wait)
            slow = asyncio.create_task(call(0.99))
            await asked.wait()
            for number in range(40):
                await call(number / 100)
            assert 0.99 in ledger.open
            answered.set()
            return await slow

    assert asyncio.run(scenario()) == 200
    assert ledger.closed == Counter(ledger.connected)


def test_a_client_that_fails_to_close_leaves_no_other_one_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = ClientLedger(monkeypatch)

    async def scenario() -> None:
        upstream = open_upstream()
        for number in range(3):
            settings = {"temperature": number / 10}
            client, _ = upstream.choose_client(ModelRequest(ASK, settings=settings))
            if number == 1:
                monkeypatch.setattr(client, "close", Failing.close)
        with pytest.raises(OSError, match="cannot be closed"):
            await upstream.close()
        await upstream.close()

    class Failing:
        @staticmethod
        async def close() -> None:
            raise OSError("cannot be closed")

    asyncio.run(scenario())

    assert ledger.closed == Counter([0.0, 0.2])


def test_a_setting_that_the_adapter_refuses_is_a_wire_error() -> None:
    upstream = open_upstream(provider="openai-responses")

    with pytest.raises(WireError, match="no setting `stop`"):
        upstream.choose_client(ModelRequest(ASK, settings={"stop": ("END",)}))


def test_a_client_that_is_not_ours_is_only_called() -> None:
    own = Scripted()
    upstream = Upstream(own)

    client, used = upstream.choose_client(ModelRequest(ASK, settings={"temperature": 0.5}))

    assert client is own
    assert used == {}
    assert not upstream.speaks(OPENAI_CHAT)
    assert upstream.secrets == []
    with pytest.raises(WireError, match="tool_choice"):
        upstream.choose_client(ModelRequest(ASK, settings={"tool_choice": "required"}))


def test_only_a_model_with_the_same_api_is_spoken_to_directly() -> None:
    upstream = open_upstream()

    assert upstream.speaks(OPENAI_CHAT)
    assert not upstream.speaks(OPENAI_RESPONSES)
    assert "sk-0123456789" in upstream.secrets


def test_keys_in_headers_of_any_name_are_secrets() -> None:
    headers = {
        "X-Corp-Gate": "Gate 7f3a-hunter2",
        "cookie": "session=0123abcd; theme=dark",
        "x-title": "the-search-team",
        "X-Team": "search",
    }

    secrets = open_upstream(headers=headers).secrets

    assert {"sk-0123456789", "7f3a-hunter2", "0123abcd"} <= set(secrets)
    # Words of conversations stay: short values, and headers that are written with the endpoint.
    assert not {"search", "dark", "Gate", "the-search-team"} & set(secrets)


@pytest.mark.parametrize("provider", ["azure", "gemini"])
def test_keys_of_apis_that_agents_do_not_use_are_secrets(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORP_KEY", "key-0123456789")
    fields = {"api_key": "", "key_env": "CORP_KEY", "api_base": "https://corp.example.com"}

    assert open_upstream(provider=provider, **fields).secrets == ["key-0123456789"]


def test_a_wish_without_an_equivalent_is_not_used() -> None:
    upstream = open_upstream(provider="gemini")
    settings = {"parallel_tool_calls": False, "temperature": 0.5}

    _, used = upstream.choose_client(ModelRequest(ASK, settings=settings))

    assert used == {"temperature": 0.5}


def test_a_seed_is_that_of_the_request_the_session_or_the_endpoint() -> None:
    upstream = open_upstream(seed=7)
    asked, plain = ModelRequest(ASK, settings={"seed": 3}), ModelRequest(ASK)

    assert upstream.choose_seed(asked, 5) == 3
    assert upstream.choose_seed(plain, 5) == 5
    assert upstream.choose_seed(plain, None) == 7


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic", "gemini"])
def test_words_of_an_agents_schema_are_no_secrets(provider: str) -> None:
    upstream = open_upstream(provider=provider)
    schema = {"type": "object", "properties": {"city": {"enum": ["Hamburg", "Munich"]}}}
    settings = {"response_schema": {"name": "weather", "schema": schema}}

    client, _ = upstream.choose_client(ModelRequest(ASK, settings=settings))

    assert "Hamburg" in str(client.endpoint.extra_params)
    text = "the object of the weather: json_schema of Hamburg or Munich"
    assert redact(text) == text


def test_the_endpoints_effort_replaces_reasoning_of_another_shape() -> None:
    upstream = open_upstream(provider="openai-responses", reasoning_effort="low")

    for given in ("high", 5, ["high"], None):
        found = upstream.list_overrides(OPENAI_RESPONSES, {"reasoning": given})
        assert found["reasoning"] == {"effort": "low"}
