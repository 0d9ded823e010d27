"""What a call records of its settings."""

from assay.providers.sampling_settings import collect_sampling
from assay.types import Endpoint


def test_settings_in_force_are_recorded_without_secrets() -> None:
    endpoint = Endpoint(
        provider="vllm",
        model="m",
        temperature=0.0,
        stop=("a",),
        extra_params={"top_k": 5, "gateway_token": "canary"},
        thinking={"type": "enabled", "token": "canary"},
    )

    assert collect_sampling(endpoint) == {
        "temperature": 0.0,
        "stop": ["a"],
        "thinking": {"type": "enabled"},
        "top_k": 5,
    }


def test_nothing_set_is_nothing_recorded() -> None:
    assert collect_sampling(Endpoint(provider="vllm", model="m", timeout_s=3)) == {}
