"""Settings: numbers that make no sense are refused before anything else."""

from typing import Any

import pytest

from assay.certify import CertifySettings
from assay.errors import ConfigError


@pytest.mark.parametrize(
    "fields",
    [
        {"max_samples": 0},
        {"concurrency": 0},
        {"latency_concurrency": True},
        {"warmup": -1},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
    ],
)
def test_a_number_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(fields))):
        CertifySettings(**fields)
