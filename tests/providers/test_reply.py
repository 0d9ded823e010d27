"""Settings of a client that make no sense are refused."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.providers import ClientSettings


@pytest.mark.parametrize(
    "settings",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": 2.5},
        {"concurrency": "8"},
        {"max_retries": -1},
        {"max_retries": None},
        {"max_concurrency": 0},
        {"request_timeout_s": 0},
        {"request_timeout_s": float("inf")},
        {"request_timeout_s": float("nan")},
        {"max_wait_s": "1"},
        {"max_wait_s": True},
        {"cache": 5},
        {"prices": 5},
        {"prices": b"table"},
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(settings: dict[str, Any]) -> None:
    (name,) = settings

    with pytest.raises(ConfigError, match=f"ClientSettings: {name}="):
        ClientSettings(**settings)


def test_the_defaults_are_adaptive_patient_and_without_a_cache() -> None:
    settings = ClientSettings()

    assert (settings.concurrency, settings.max_retries, settings.cache) == (None, 5, None)
