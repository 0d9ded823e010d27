"""Half precision where a processor announces instructions that end the process."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from assay.providers import in_process_bfloat16
from assay.providers.in_process_bfloat16 import prepare_half_precision

CPU = torch.device("cpu")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Exit statuses of the processes that try half precision; the first is the next one."""
    statuses: list[int] = []

    def run(command: Any, **_: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(command, statuses.pop(0))

    in_process_bfloat16._avoid_broken_amx.cache_clear()
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "set_flags", lambda **flags: statuses.append(99))
    yield statuses
    in_process_bfloat16._avoid_broken_amx.cache_clear()


def test_a_processor_that_ends_the_process_is_asked_without_onednn(tried: list[int]) -> None:
    tried.append(-4)

    prepare_half_precision(torch.bfloat16, CPU)
    prepare_half_precision(torch.bfloat16, CPU)  # tried once

    assert tried == [99]


def test_a_processor_that_can_do_it_is_left_as_it_is(tried: list[int]) -> None:
    tried.append(0)

    prepare_half_precision(torch.bfloat16, CPU)

    assert tried == []


def test_full_precision_tries_nothing(tried: list[int]) -> None:
    prepare_half_precision(torch.float32, CPU)

    assert tried == []
