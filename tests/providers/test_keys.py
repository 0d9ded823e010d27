"""Where a key comes from."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.providers.keys import build_credential_headers, build_key_hint
from assay.providers.provider_table import PROVIDERS
from assay.types import Endpoint
from assay.types.endpoint import describe_endpoint


def endpoint(provider: str = "openai", **fields: Any) -> Endpoint:
    return Endpoint(provider=provider, model="m", **fields)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in PROVIDERS.values():
        for name in provider.key_variables:
            monkeypatch.delenv(name, raising=False)


def test_the_endpoints_key_comes_before_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")

    assert build_credential_headers(endpoint()) == {"Authorization": "Bearer from-environment"}
    assert build_credential_headers(endpoint(api_key="own")) == {"Authorization": "Bearer own"}


def test_each_provider_has_its_own_header_and_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", " a-key\n")
    monkeypatch.setenv("OPENAI_API_KEY", "other")

    assert build_credential_headers(endpoint("anthropic")) == {"x-api-key": "a-key"}


@pytest.mark.parametrize(
    ("provider", "variable", "header"),
    [
        ("gemini", "GEMINI_API_KEY", "x-goog-api-key"),
        ("gemini", "GOOGLE_API_KEY", "x-goog-api-key"),
        ("azure", "AZURE_OPENAI_API_KEY", "api-key"),
    ],
)
def test_keys_that_are_no_bearer_tokens_have_a_header_of_their_own(
    provider: str, variable: str, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = {"api_base": "https://h"}
    monkeypatch.setenv(variable, "k-own")
    assert build_credential_headers(endpoint(provider, **where)) == {header: "k-own"}

    monkeypatch.setenv("OTHER", "k-other")
    named = endpoint(provider, **where, key_env="OTHER")
    assert build_credential_headers(named) == {header: "k-other"}

    monkeypatch.delenv(variable)
    assert build_credential_headers(endpoint(provider, **where, headers={header: "k"})) == {}
    assert variable in build_key_hint(endpoint(provider, **where)) or variable == "GOOGLE_API_KEY"


def test_a_key_of_bedrock_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_credential_headers(endpoint("bedrock")) == {}

    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "k-own")
    assert build_credential_headers(endpoint("bedrock")) == {"Authorization": "Bearer k-own"}


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_key_is_told_before_the_first_call(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv("OPENAI_API_KEY", value)

    with pytest.raises(ConfigError, match="the API key for openai is missing") as caught:
        build_credential_headers(endpoint())

    assert caught.value.hint == "set OPENAI_API_KEY, or pass Endpoint(api_key=...)"


def test_a_server_of_ones_own_may_need_no_key() -> None:
    assert build_credential_headers(endpoint(api_base="http://127.0.0.1:8000/v1")) == {}
    assert build_credential_headers(endpoint("vllm")) == {}


def test_local_servers_are_not_sent_the_keys_of_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")

    assert build_credential_headers(endpoint("vllm")) == {}
    assert build_credential_headers(endpoint("openai-compatible", api_base="http://h/v1")) == {}


@pytest.mark.parametrize(
    "host", ["gpu-box", "10.0.0.7:8000", "[2001:db8::1]:8000", "127.0.0.1.nip.io", "localhost.evil"]
)
def test_a_key_from_the_environment_is_not_sent_unencrypted(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    base = f"http://{host}/v1"

    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not sent to") as no:
        build_credential_headers(endpoint(api_base=base))

    assert host.partition("]")[0].strip("[").partition(":8")[0] in no.value.message
    assert "from-environment" not in str(no.value)
    allowed = endpoint(api_base=base, allow_plain_http=True)
    assert build_credential_headers(allowed) == {"Authorization": "Bearer from-environment"}
    assert build_credential_headers(endpoint(api_base=base, api_key="k")) == {
        "Authorization": "Bearer k"
    }


@pytest.mark.parametrize(
    "base",
    [
        "https://gpu-box/v1",
        "http://127.0.0.1:8000/v1",
        "http://127.8.9.1/v1",
        "http://[::1]:8000/v1",
        "http://localhost:8000/v1",
        "http://LOCALHOST./v1",
    ],
)
def test_a_key_from_the_environment_is_sent_where_nobody_can_read_it(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")

    assert build_credential_headers(endpoint(api_base=base)) == {"Authorization": "Bearer key"}


def test_a_key_in_a_named_variable_is_not_sent_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "from-environment")
    named = endpoint("openai-compatible", api_base="http://gpu-box/v1", key_env="MY_KEY")

    with pytest.raises(ConfigError, match="MY_KEY is not sent to 'gpu-box'"):
        build_credential_headers(named)

    allowed = named.model_copy(update={"allow_plain_http": True})
    assert build_credential_headers(allowed) == {"Authorization": "Bearer from-environment"}


def test_the_permission_for_plain_http_does_not_change_a_fingerprint() -> None:
    plain = endpoint(api_base="http://h/v1")

    assert describe_endpoint(plain) == describe_endpoint(
        plain.model_copy(update={"allow_plain_http": True})
    )


def test_a_header_that_carries_the_key_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")

    assert build_credential_headers(endpoint(headers={"api-key": "azure"})) == {}


def test_a_user_in_the_address_becomes_a_header() -> None:
    found = build_credential_headers(endpoint(api_base="https://me:p%40ss@host/v1"))

    assert found == {"Authorization": "Basic bWU6cEBzcw=="}


def test_two_credentials_are_refused() -> None:
    for fields in (
        {"api_key": "a", "oauth_token": "b"},
        {"api_key": "a", "api_base": "https://me:pass@host/v1"},
    ):
        with pytest.raises(ConfigError, match="more than one") as caught:
            build_credential_headers(endpoint(**fields))
        assert "pass@" not in str(caught.value)


@pytest.mark.parametrize("key", ["a\nb", "smart“quote”", "a\x00b"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ConfigError, match="characters that are invalid in a key") as caught:
        build_credential_headers(endpoint(api_key=key))

    assert key not in str(caught.value)


def test_the_hint_says_which_key_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_key_hint(endpoint()).startswith("OPENAI_API_KEY is not set")
    assert build_key_hint(endpoint("vllm")) == "pass Endpoint(api_key=...)"
    assert "the key of this Endpoint" in build_key_hint(endpoint("vllm", api_key="k"))
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert build_key_hint(endpoint()).startswith("OPENAI_API_KEY is not accepted here")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"headers": {"api-key": "k-9"}}, "the header 'api-key' of this Endpoint"),
        ({"headers": {"Authorization": "k-9"}, "api_key": "k"}, "the header 'Authorization'"),
        ({"api_base": "http://me:k-9@host/v1"}, "the user and password in `api_base`"),
        ({"oauth_token": "k-9", "headers": {"x-api-key": "k"}}, "the key of this Endpoint"),
    ],
)
@pytest.mark.parametrize("provider", ["openai", "vllm"])
def test_the_hint_is_about_the_credential_that_was_sent(
    fields: dict[str, Any], words: str, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")

    hint = build_key_hint(endpoint(provider, **fields))

    assert hint.startswith(words)
    assert "k-9" not in hint


def test_a_key_comes_from_the_variable_that_the_endpoint_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-usual")
    monkeypatch.setenv("MY_KEY", "k-mine")
    named = Endpoint(
        provider="openai-compatible", model="m", api_base="https://host/v1", key_env="MY_KEY"
    )

    assert build_credential_headers(named) == {"Authorization": "Bearer k-mine"}
    assert build_key_hint(named).startswith("MY_KEY is not accepted here")
    assert "k-mine" not in str(named.to_dict())
    assert named.to_dict()["key_env"] == "MY_KEY"


def test_a_named_variable_that_is_not_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "k-usual")

    with pytest.raises(ConfigError, match="names MY_KEY, but this environment variable is not set"):
        build_credential_headers(Endpoint(provider="openai", model="m", key_env="MY_KEY"))


def test_a_key_and_a_variable_are_refused_together() -> None:
    with pytest.raises(ConfigError, match="more than one of"):
        build_credential_headers(
            Endpoint(provider="openai", model="m", api_key="k", key_env="MY_KEY")
        )
