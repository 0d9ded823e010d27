"""Models as one word."""

import asyncio

import pytest

from assay.errors import ConfigError
from assay.providers import check_endpoint, connect, parse_model, to_endpoint
from assay.types import Endpoint


@pytest.mark.parametrize(
    ("text", "provider", "model", "api_base"),
    [
        ("openai:gpt-5", "openai", "gpt-5", None),
        ("anthropic:claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5", None),
        ("mock:echo", "mock", "echo", None),
        ("local:models/my-model", "local", "models/my-model", None),
        ("local:smollm2-135m", "local", "smollm2-135m", None),
        ("ollama:llama3:8b", "ollama", "llama3:8b", None),
        ("openai:m@http://127.0.0.1:8000/v1", "openai", "m", "http://127.0.0.1:8000/v1"),
        ("vllm:org/m@rev@https://host/v1", "vllm", "org/m@rev", "https://host/v1"),
        (" openai:gpt-5 ", "openai", "gpt-5", None),
    ],
)
def test_a_model_string_names_an_endpoint(
    text: str, provider: str, model: str, api_base: str | None
) -> None:
    endpoint = parse_model(text)

    assert (endpoint.provider, endpoint.model, endpoint.api_base) == (provider, model, api_base)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpt-5", "has the form `provider:model`"),
        ("", "has the form `provider:model`"),
        (":gpt-5", "has the form `provider:model`"),
        ("openai:", "has the form `provider:model`"),
        ("opnai:gpt-5", "'opnai' is not a provider; choose one of openai, anthropic"),
        ("openai:@http://h/v1", "the model name after 'openai:' is missing"),
        ("openai:m@http://", "not an http or https address"),
        ("openai-compatible:m", "needs an `api_base`"),
        ("mock:echo@http://h/v1", "a mock model has no address"),
        ("local:m@http://h/v1", "a local model has no address"),
    ],
)
def test_any_other_string_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_model(text)


@pytest.mark.parametrize(
    "text",
    [
        "vllm:m@user:canary@host/v1",
        "vllm:m@https:/user:canary@host/v1",
        "vllm:m@HTTPS://user:canary@host/v1",
        "vllm:m@ftp://canary/v1",
        "vllm:m@http:\\\\user:canary@host/v1",
    ],
)
def test_a_mistyped_address_does_not_become_part_of_the_name(text: str) -> None:
    with pytest.raises(ConfigError, match="the part after @ is not an address") as caught:
        parse_model(text)

    assert "canary" not in str(caught.value)


def test_the_path_of_a_local_model_may_hold_anything() -> None:
    assert parse_model("local:/a@b/c@d").model == "/a@b/c@d"


def test_a_variable_for_the_key_may_follow() -> None:
    endpoint = parse_model("openai-compatible:m#1@https://host/v1#key_env=MY_KEY")

    assert (endpoint.model, endpoint.api_base) == ("m#1", "https://host/v1")
    assert endpoint.key_env == "MY_KEY"
    assert parse_model("openai:gpt-5#key_env=OTHER").key_env == "OTHER"
    assert parse_model("openai:gpt-5").key_env is None


def test_a_model_in_this_process_needs_no_key() -> None:
    with pytest.raises(ConfigError, match="a mock model needs no key"):
        parse_model("mock:echo#key_env=MY_KEY")


@pytest.mark.parametrize(
    "text",
    [
        "openai-compatible:m@https://host/v1#key-env=MY_KEY",
        "openai-compatible:m@https://host/v1#key_env=MY-KEY",
        "openai-compatible:m@https://host/v1#api_key=canary",
        "openai-compatible:m@https://host/v1#key_env=A#key_env=B",
        "openai-compatible:m@https://host/v1#",
        "openai:gpt-5#keyenv=canary",
    ],
)
def test_a_misspelt_setting_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigError, match="the part after # is not a setting") as refusal:
        parse_model(text)

    assert "canary" not in str(refusal.value)


def test_a_setting_holds_an_endpoint_or_a_model_string() -> None:
    endpoint = Endpoint(provider="mock", model="echo")

    assert to_endpoint("mock:echo", where="here") == endpoint
    assert to_endpoint(endpoint, where="here") is endpoint
    assert connect("mock:echo").endpoint == endpoint
    assert asyncio.run(check_endpoint("mock:echo")).verdict == "answers"
    assert asyncio.run(check_endpoint("moc:echo")).verdict == "misconfigured"


def test_a_setting_of_another_type_is_refused_without_its_value() -> None:
    with pytest.raises(ConfigError, match=r"here: `judge` cannot be of type `list`") as refused:
        to_endpoint(["canary"], where="here", name="judge")  # type: ignore[arg-type]  # refused

    assert "canary" not in str(refused.value)
