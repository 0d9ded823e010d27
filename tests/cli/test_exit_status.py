"""Which error comes to which exit status."""

import pytest

from assay.cli.exit_status import InconclusiveError, choose_exit_status
from assay.errors import (
    AccessDenied,
    AssayError,
    ConfigError,
    DatasetError,
    DatasetOutOfReach,
    EndpointError,
    MissingExtra,
    StoreError,
)


@pytest.mark.parametrize("kind", [ConfigError, MissingExtra, DatasetError, AssayError])
def test_a_wrong_request_is_2(kind: type[AssayError]) -> None:
    assert choose_exit_status(kind("no")) == 2


@pytest.mark.parametrize(
    "kind", [InconclusiveError, DatasetOutOfReach, EndpointError, AccessDenied, StoreError]
)
def test_what_is_out_of_reach_is_3(kind: type[AssayError]) -> None:
    assert choose_exit_status(kind("no")) == 3
