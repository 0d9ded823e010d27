"""Settings of models in this process: defaults, and what is refused."""

import pytest

from assay.errors import ConfigError
from assay.providers.local_settings import (
    build_sampling,
    read_count_setting,
    refuse_unsupported_settings,
)
from assay.types import Endpoint


def endpoint(**fields: object) -> Endpoint:
    return Endpoint.model_validate({"provider": "local", "model": "x", **fields})


def test_nothing_said_is_plain_sampling_of_a_bounded_length() -> None:
    sampling = build_sampling(endpoint())

    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (1.0, 1.0, 0)
    assert sampling.max_tokens == 512


def test_what_is_said_is_taken_even_when_it_is_nothing() -> None:
    sampling = build_sampling(endpoint(temperature=0.0, top_p=0.5, max_tokens=3))

    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.0, 0.5, 3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"api_base": "http://h"}, "has no address"),
        ({"reasoning_effort": "low"}, "`reasoning_effort` is supported by hosted models only"),
        (
            {"extra_params": {"slotz": 1}},
            "'slotz', which this model does not support; supported: slots",
        ),
    ],
)
def test_settings_that_would_not_be_seen_are_refused(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        refuse_unsupported_settings(endpoint(**fields), known=("slots",))


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_a_count_is_a_whole_number_above_0(value: object) -> None:
    with pytest.raises(ConfigError, match="slots="):
        read_count_setting(endpoint(extra_params={"slots": value}), "slots")
    assert read_count_setting(endpoint(extra_params={"slots": 3}), "slots") == 3
    assert read_count_setting(endpoint(), "slots") is None
