"""Losses on the way to a provider, counted."""

from assay.formats.conversion import Dropped
from assay.providers.adapter import collect_sampling, count_dropped_fields
from assay.types import Endpoint


def test_losses_are_counted_by_kind() -> None:
    lost = [Dropped(f"messages[{index}].reasoning", "left out") for index in range(3)]

    assert count_dropped_fields([*lost, Dropped("messages[4].name", "renamed")]) == {
        "left out": 3,
        "renamed": 1,
    }
    assert count_dropped_fields([]) is None


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
