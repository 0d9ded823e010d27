"""A place for a run, a server to call, and processes that end with their test."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from misbehaving import MisbehavingServer
from processes import Evaluation


@pytest.fixture
def server() -> Iterator[MisbehavingServer]:
    """A server that answers with what it was asked, until its `react` is set."""
    with MisbehavingServer() as serving:
        yield serving


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Evaluation]]:
    """Start a command in the test's folder."""
    started: list[Evaluation] = []

    def begin(command: Sequence[str], **environment: str) -> Evaluation:
        started.append(Evaluation(command, tmp_path, **environment))
        return started[-1]

    yield begin
    for evaluation in started:
        evaluation.close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "assay.db"
