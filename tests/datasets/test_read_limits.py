"""`ReadLimits`: what it refuses to be."""

from typing import Any

import pytest

from assay.datasets import ReadLimits
from assay.errors import ConfigError


@pytest.mark.parametrize(
    "limits",
    [
        {"max_row_bytes": 0},
        {"max_depth": -1},
        {"max_depth": 201},
        {"max_expansion": 1.5},
        {"max_expanded_bytes": True},
        {"max_problems": -1},
    ],
)
def test_a_limit_that_is_no_sensible_number_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"ReadLimits: {next(iter(limits))}="):
        ReadLimits(**limits)


def test_no_problem_need_be_described() -> None:
    assert ReadLimits(max_problems=0).max_problems == 0
