"""Azure OpenAI: both forms of its address, its settings in the environment, and its errors."""

import asyncio
from typing import Any

import pytest

from assay.errors import AccessDenied, ConfigError, EndpointError
from assay.providers import ClientSettings, Reply, check_endpoint, connect, parse_model
from assay.providers.attempt_errors import is_context_length_error
from assay.providers.azure_address import build_azure_path
from assay.providers.prices import find_price
from assay.types import Endpoint
from assay.types.endpoint import describe_endpoint
from model_server import ASK, Asked, Behaviour, ModelServer, ToldTime, answers, said

VARIABLES = (
    "AZURE_OPENAI_ENDPOINT",
    "AZURE_OPENAI_API_KEY",
    "AZURE_OPENAI_API_VERSION",
    "OPENAI_API_VERSION",
)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def exchange(
    *behaviours: Behaviour, model: str = "azure:gpt-4o", time: ToldTime | None = None, **fields: Any
) -> tuple[Asked, Reply]:
    async def scenario() -> tuple[Asked, Reply]:
        async with ModelServer(*(behaviours or (answers(said()),))) as server:
            base = server.url.removesuffix("/v1") + fields.pop("path", "")
            endpoint = parse_model(f"{model}@{base}").model_copy(
                update={"api_key": "k-azure", **fields}
            )
            settings = ClientSettings(max_retries=1)
            timing = (time or ToldTime()).timing
            async with connect(endpoint, settings, timing=timing) as client:
                reply = await client.complete(ASK)
            return server.asked[0], reply

    return asyncio.run(scenario())


def test_a_version_by_date_addresses_the_deployment() -> None:
    asked, reply = exchange(api_version="2024-10-21")

    assert asked.path == "/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21"
    assert asked.headers["api-key"] == "k-azure"
    assert "authorization" not in asked.headers
    assert reply.message.text == "Hello."


@pytest.mark.parametrize("path", ["", "/", "/openai/v1", "/openai/v1/"])
def test_without_a_version_the_deployment_is_the_model_of_the_current_api(path: str) -> None:
    asked, _ = exchange(path=path)

    assert asked.path == "/openai/v1/chat/completions"
    assert asked.json["model"] == "gpt-4o"


def test_the_preview_of_the_current_api_is_named_in_the_query() -> None:
    asked, _ = exchange(api_version="preview")

    assert asked.path == "/openai/v1/chat/completions?api-version=preview"


def test_the_version_may_be_in_the_query_of_the_address() -> None:
    asked, _ = exchange(path="?api-version=2024-10-21")

    assert asked.path == "/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21"


def test_the_variables_become_settings_of_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://mine.openai.azure.com/")
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-06-01")
    endpoint = parse_model("azure:gpt-4o")

    assert endpoint.api_base == "https://mine.openai.azure.com/"
    assert endpoint.api_version == "2024-06-01"
    described = describe_endpoint(endpoint)
    assert described["api_base"] == "https://mine.openai.azure.com/"
    assert described["api_version"] == "2024-06-01"

    monkeypatch.setenv("AZURE_OPENAI_API_VERSION", "2024-10-21")
    assert parse_model("azure:gpt-4o").api_version == "2024-10-21"
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://mine.openai.azure.com/openai/v1/")
    assert parse_model("azure:gpt-4o").api_version is None


def test_a_variable_that_is_no_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21&x=y\r\nHost: elsewhere")

    with pytest.raises(ConfigError, match="OPENAI_API_VERSION is not an API version"):
        parse_model("azure:gpt-4o@https://mine.openai.azure.com")


def test_an_endpoint_in_code_reads_the_same_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://mine.openai.azure.com")

    client = connect(Endpoint(provider="azure", model="gpt-4o", api_key="k-azure"))

    assert client.endpoint.api_base == "https://mine.openai.azure.com"


def test_a_missing_address_is_refused_before_the_first_call() -> None:
    with pytest.raises(ConfigError, match="the provider 'azure' needs an `api_base`") as no:
        parse_model("azure:gpt-4o")

    assert no.value.hint == "set AZURE_OPENAI_ENDPOINT, or pass Endpoint(api_base=...)"


def test_a_missing_key_is_refused_before_the_first_call() -> None:
    with pytest.raises(ConfigError, match="the API key for azure is missing") as no:
        connect("azure:gpt-4o@https://mine.openai.azure.com")

    assert no.value.hint == "set AZURE_OPENAI_API_KEY, or pass Endpoint(api_key=...)"


def test_a_token_of_entra_is_sent_instead_of_a_key() -> None:
    asked, _ = exchange(api_key="", oauth_token="entra-token")

    assert asked.headers["authorization"] == "Bearer entra-token"
    assert "api-key" not in asked.headers


def test_the_key_is_not_sent_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k-azure")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "http://mine.openai.azure.com")

    with pytest.raises(ConfigError, match="AZURE_OPENAI_API_KEY is not sent to"):
        connect("azure:gpt-4o")


@pytest.mark.parametrize(
    ("base", "version", "match"),
    [
        ("https://h/openai/v1", "2024-10-21", "does not belong to an address"),
        ("https://h/openai/deployments/gpt-4o/chat/completions", None, "not the address of an"),
    ],
)
def test_an_address_of_another_form_is_refused(base: str, version: str | None, match: str) -> None:
    endpoint = Endpoint(provider="azure", model="m", api_base=base, api_version=version)

    with pytest.raises(ConfigError, match=match):
        build_azure_path(endpoint, "/chat/completions")


def test_other_providers_have_no_version() -> None:
    endpoint = Endpoint(provider="openai", model="m", api_key="k", api_version="2024-10-21")

    with pytest.raises(ConfigError, match="`api_version` is a setting of the provider 'azure'"):
        connect(endpoint)


def test_reasoning_deployments_get_the_limit_they_accept() -> None:
    asked, _ = exchange(model="azure:gpt-5-mini", max_tokens=9)

    assert asked.json["max_completion_tokens"] == 9


def test_the_content_filter_is_a_refusal_that_names_its_categories() -> None:
    error = {
        "message": "The response was filtered due to the prompt.",
        "code": "content_filter",
        "param": "prompt",
        "status": 400,
        "innererror": {
            "code": "ResponsibleAIPolicyViolation",
            "content_filter_result": {"violence": {"filtered": True, "severity": "high"}},
        },
    }
    with pytest.raises(EndpointError, match=r"content_filter: .* \(filtered: violence\)") as no:
        exchange(answers({"error": error}, 400))

    assert not no.value.retryable
    assert no.value.hint == "the provider's content filter blocked this conversation"


def test_a_filtered_answer_says_so() -> None:
    filtered = {"hate": {"filtered": True, "severity": "high"}}
    choice = {"finish_reason": "content_filter", "content_filter_results": filtered}

    _, reply = exchange(answers(said("", choice=choice, prompt_filter_results=[])))

    assert (reply.message.text, reply.call.finish_reason) == ("", "content_filter")


def test_a_rate_limit_waits_as_long_as_azure_asks() -> None:
    time = ToldTime()
    error = {"code": "429", "message": "Requests have exceeded the token rate limit."}
    limit = answers({"error": error}, 429, retry_after="7", retry_after_ms="6500")

    _, reply = exchange(limit, answers(said()), time=time)

    assert reply.call.attempts == 2
    assert 6.5 <= time.slept[0] < 7


def test_a_refused_key_is_access_denied() -> None:
    error = {"code": "401", "message": "Access denied due to invalid subscription key."}

    with pytest.raises(AccessDenied, match="HTTP 401: Access denied due to invalid"):
        exchange(answers({"error": error}, 401))


def test_a_missing_deployment_has_a_hint_for_azure() -> None:
    error = {"code": "DeploymentNotFound", "message": "The API deployment does not exist."}

    with pytest.raises(EndpointError, match="DeploymentNotFound") as no:
        exchange(answers({"error": error}, 404))

    assert "the name of the deployment" in (no.value.hint or "")


def test_a_conversation_that_is_too_long_is_recognised() -> None:
    message = "This model's maximum context length is 128000 tokens."
    error = {"code": "context_length_exceeded", "message": message}

    with pytest.raises(EndpointError) as no:
        exchange(answers({"error": error}, 400))

    assert is_context_length_error(no.value)


@pytest.mark.parametrize(
    ("version", "path"),
    [(None, "/openai/v1/models"), ("2024-10-21", "/openai/models?api-version=2024-10-21")],
)
def test_the_list_of_models_does_not_prove_that_a_deployment_is_missing(
    version: str | None, path: str
) -> None:
    async def scenario() -> Any:
        async with ModelServer(answers({"data": [{"id": "gpt-4o-2024-08-06"}]})) as server:
            base = server.url.removesuffix("/v1")
            fields = {"provider": "azure", "api_base": base, "api_version": version}
            found = await check_endpoint(server.endpoint(**fields))
            assert server.asked[0].path == path
            return found

    found = asyncio.run(scenario())

    assert (found.verdict, found.has_model, found.hint) == ("answers", None, None)


def test_the_price_of_a_deployment_is_unknown() -> None:
    endpoint = Endpoint(provider="azure", model="gpt-4o", api_base="https://h", api_key="k")

    assert find_price(endpoint) is None
