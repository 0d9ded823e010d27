"""Endpoints from the parameters that eval-protocol passes to LiteLLM."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.pytest_plugin.eval_protocol.completion_params import (
    _ADDRESS_VARIABLES,
    describe_params,
    parse_completion_params,
)
from assay.types import Endpoint

LOCAL = "http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "EP_LLM_API_BASE",
        "EP_LLM_BASE_URL",
        *(n for names in _ADDRESS_VARIABLES.values() for n in names),
    ):
        monkeypatch.delenv(name, raising=False)


def read(model: str, **params: Any) -> Endpoint:
    return parse_completion_params({"model": model, **params})


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        ("openai/gpt-5", "openai", "gpt-5"),
        ("gpt-5-mini", "openai", "gpt-5-mini"),
        ("o3", "openai", "o3"),
        ("anthropic/claude-x", "anthropic", "claude-x"),
        ("claude-x", "anthropic", "claude-x"),
        ("openrouter/org/model:free", "openrouter", "org/model:free"),
        ("hosted_vllm/org/model", "vllm", "org/model"),
        ("ollama/llama3", "ollama", "llama3"),
        ("mock:fixed", "mock", "fixed"),
    ],
)
def test_names_of_models_name_their_provider(model: str, provider: str, name: str) -> None:
    endpoint = read(model)

    assert (endpoint.provider, endpoint.model, endpoint.api_base) == (provider, name, None)


@pytest.mark.parametrize("prefix", ["", "fireworks_ai/"])
def test_models_of_fireworks_are_asked_there_with_its_key(prefix: str) -> None:
    endpoint = read(f"{prefix}accounts/fireworks/models/m")

    assert endpoint.model == "accounts/fireworks/models/m"
    assert endpoint.api_base == "https://api.fireworks.ai/inference/v1"
    assert endpoint.key_env == "FIREWORKS_API_KEY"
    assert read("fireworks_ai/m", api_key="k").key_env is None


@pytest.mark.parametrize("name", ["api_base", "base_url"])
def test_an_address_takes_the_place_of_the_providers(name: str) -> None:
    endpoint = read("fireworks_ai/accounts/fireworks/models/m", **{name: LOCAL})

    assert (endpoint.api_base, endpoint.key_env) == (LOCAL, None)
    assert read("unknown/m", **{name: LOCAL}).model == "unknown/m"


@pytest.mark.parametrize("variable", ["EP_LLM_API_BASE", "EP_LLM_BASE_URL"])
def test_an_address_is_read_from_the_environment(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, LOCAL)

    assert read("openai/m").api_base == LOCAL
    assert read("openai/m", api_base="http://127.0.0.1:8/v1").api_base == "http://127.0.0.1:8/v1"


@pytest.mark.parametrize(
    ("variable", "model"),
    [
        ("OPENAI_BASE_URL", "gpt-5"),
        ("OPENAI_API_BASE", "openai/gpt-5"),
        ("ANTHROPIC_API_BASE", "claude-x"),
        ("FIREWORKS_API_BASE", "fireworks_ai/m"),
        ("HOSTED_VLLM_API_BASE", "hosted_vllm/m"),
    ],
)
def test_the_address_of_a_provider_is_read_from_the_environment(
    variable: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, LOCAL)

    assert read(model).api_base == LOCAL
    assert read("openrouter/m").api_base is None


def test_the_key_of_fireworks_is_sent_to_fireworks_only() -> None:
    theirs = read("fireworks_ai/m", api_base="https://gateway.fireworks.ai/v1")

    assert theirs.key_env == "FIREWORKS_API_KEY"
    assert read("fireworks_ai/m", api_base="https://evil-fireworks.ai/v1").key_env is None


def test_sampling_settings_keep_their_meaning() -> None:
    endpoint = read(
        "gpt-5",
        temperature=0.5,
        max_tokens=7,
        stop="END",
        timeout=3,
        stream=True,
        top_k=4,
        extra_body={"reasoning_effort": "low", "min_p": 0.1},
    )

    assert (endpoint.temperature, endpoint.max_tokens, endpoint.timeout_s) == (0.5, 7, 3)
    assert (endpoint.stop, endpoint.reasoning_effort) == (("END",), "low")
    assert endpoint.extra_params == {"top_k": 4, "min_p": 0.1}


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"temperature": 0.0}, "has no `model`"),
        ({"model": "gpt-5", "max_tokens": 0}, "max_tokens"),
        ({"model": "gpt-5", "extra_body": [1]}, "`extra_body` is not a dictionary"),
    ],
)
def test_unusable_values_are_refused(params: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_completion_params(params)


def test_rows_record_what_was_asked_for_without_secrets() -> None:
    given = {
        "model": "openai/gpt-5",
        "temperature": 0.5,
        "base_url": "http://user:hunter2hunter2@127.0.0.1:1/v1?token=hunter2hunter2",
        "api_key": "hunter2hunter2",
        "extra_headers": {"Authorization": "hunter2hunter2"},
        "session_token": "hunter2hunter2",
        "extra_body": {"min_p": 0.1, "api_token": "hunter2hunter2"},
    }

    written = describe_params(given)

    assert "hunter2" not in str(written)
    assert {name: written[name] for name in ("model", "temperature", "extra_body")} == {
        "model": "openai/gpt-5",
        "temperature": 0.5,
        "extra_body": {"min_p": 0.1},
    }
    assert describe_params(None) == {}
