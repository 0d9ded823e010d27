"""What may be fetched: the settings that make no sense are refused."""

from typing import Any

import pytest

from assay.datasets import FetchRules
from assay.errors import ConfigError


def test_nothing_beyond_the_folder_and_the_public_network_is_allowed_by_default() -> None:
    rules = FetchRules()

    assert (rules.allow_outside, rules.allow_private, rules.allow_memory) == (False, False, False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_bytes": 0},
        {"max_bytes": True},
        {"max_bytes": 1.5},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
    ],
)
def test_a_bound_that_bounds_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"FetchRules: {next(iter(wrong))}="):
        FetchRules(**wrong)
