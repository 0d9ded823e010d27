"""Models in manifests: whose they are, and that an address does not belong there."""

import pytest

from assay.certify.asked_models import resolve_manifest_endpoint, strip_provider
from assay.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("gpt-4-turbo", "openai", "gpt-4-turbo"),
        ("o3-mini", "openai", "o3-mini"),
        ("claude-3-opus", "anthropic", "claude-3-opus"),
        ("vllm:my-model", "vllm", "my-model"),
        ("mock:echo", "mock", "echo"),
        ("openrouter:meta/llama:free", "openrouter", "meta/llama:free"),
    ],
)
def test_a_model_is_found_by_its_provider_or_its_plain_name(
    name: str, provider: str, model: str
) -> None:
    endpoint = resolve_manifest_endpoint(name, where="agent.yaml", option="--judge")

    assert (endpoint.provider, endpoint.model) == (provider, model)
    assert strip_provider(name) == model


def test_a_model_that_nobody_is_known_to_serve_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"the provider of the model 'my-model' is unknown[\s\S]*--judge"
    ):
        resolve_manifest_endpoint("my-model", where="agent.yaml", option="--judge")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_manifest_cannot_send_keys_to_an_address(scheme: str) -> None:
    with pytest.raises(
        ConfigError, match="the model must not have an address in a manifest"
    ) as caught:
        resolve_manifest_endpoint(f"openai:gpt-4@{scheme}://evil/v1", where="a", option="--runner")

    assert "evil" not in str(caught.value)
