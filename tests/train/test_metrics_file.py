"""Metrics of a training, kept over a kill and a resume: in a file, and in the store as well."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from assay.errors import StoreError, TrainingError
from assay.store import Run, RunSpec, Store
from assay.train.metrics_file import MetricsFile, RecordedMetrics


class Numbers(BaseModel):
    step: int
    loss: float | None = None


@pytest.fixture
def file(tmp_path: Path) -> MetricsFile[Numbers]:
    return MetricsFile(tmp_path / "metrics.jsonl", Numbers)


def test_lines_come_back_as_they_were(file: MetricsFile[Numbers]) -> None:
    assert file.read() == []

    file.append(Numbers(step=1, loss=0.1))
    file.append(Numbers(step=2))

    assert file.read() == [Numbers(step=1, loss=0.1), Numbers(step=2)]


def test_steps_that_are_done_again_are_forgotten_and_a_half_written_line_too(
    file: MetricsFile[Numbers],
) -> None:
    for step in (1, 2, 3):
        file.append(Numbers(step=step))
    with file.path.open("a") as half:
        half.write('{"step": 4, "lo')

    assert [each.step for each in file.keep_until(2)] == [1, 2]

    file.append(Numbers(step=3))
    assert [each.step for each in file.read()] == [1, 2, 3]
    assert [path.name for path in file.path.parent.iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize("line", ["no json", '{"loss": 1}'])
def test_a_line_that_is_no_step_is_named(line: str, file: MetricsFile[Numbers]) -> None:
    file.append(Numbers(step=1))
    with file.path.open("a") as more:
        more.write(f"{line}\n")

    with pytest.raises(
        TrainingError, match=r"metrics\.jsonl:2: the line is not the metrics of a step"
    ):
        file.read()


def test_a_file_that_cannot_be_written_is_told(file: MetricsFile[Numbers]) -> None:
    file.path.mkdir()

    with pytest.raises(
        TrainingError, match=r"metrics\.jsonl: the file cannot be written: .*\n.*and resume"
    ):
        file.append(Numbers(step=1))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    spec = RunSpec(id="t", name="t", config={}, config_fingerprint="f", dataset="d")
    with Store.open(tmp_path / "s.db") as store:
        yield store.start_run(spec)


def both(file: MetricsFile[Numbers], run: Run) -> list[dict[str, object]]:
    """What the file and the store say, which is the same."""
    lines = [json.loads(line) for line in file.path.read_text().splitlines()]
    assert [row.metrics for row in run.steps()] == lines
    assert [row.step for row in run.steps()] == [line["step"] for line in lines]
    return lines


def test_a_step_is_in_the_file_and_in_the_store(file: MetricsFile[Numbers], run: Run) -> None:
    metrics = RecordedMetrics(file, run)

    metrics.append(Numbers(step=1, loss=0.1 + 0.2))
    metrics.append(Numbers(step=2))
    metrics.append(Numbers(step=3, loss=math.nan))

    losses = [line["loss"] for line in both(file, run)]
    assert losses == [0.1 + 0.2, None, None]


def test_the_file_does_not_tell_of_a_step_that_the_store_refused(
    file: MetricsFile[Numbers], run: Run
) -> None:
    metrics = RecordedMetrics(file, run)
    metrics.append(Numbers(step=1))
    run.finish("failed")

    with pytest.raises(StoreError, match="the run was finished"):
        metrics.append(Numbers(step=2))

    assert [line["step"] for line in both(file, run)] == [1]


def test_steps_that_are_done_again_are_forgotten_in_both(
    file: MetricsFile[Numbers], run: Run
) -> None:
    metrics = RecordedMetrics(file, run)
    for step in (1, 2, 3):
        metrics.append(Numbers(step=step, loss=1.0))
    before = run.steps()

    assert metrics.keep_until(2) == [Numbers(step=1, loss=1.0), Numbers(step=2, loss=1.0)]
    assert run.steps() == before[:2]
    metrics.append(Numbers(step=3, loss=2.0))

    assert [line["loss"] for line in both(file, run)] == [1.0, 1.0, 2.0]


def test_what_one_of_the_two_does_not_have_comes_from_the_other(
    file: MetricsFile[Numbers], run: Run
) -> None:
    file.append(Numbers(step=1, loss=1.0))
    run.record_step(1, {"step": 1, "loss": 5.0})
    file.append(Numbers(step=2, loss=2.0))
    run.record_step(3, {"step": 3, "loss": 3.0})
    run.record_step(4, {"step": 4, "loss": 4.0})

    kept = RecordedMetrics(file, run).keep_until(3)

    assert [each.loss for each in kept] == [1.0, 2.0, 3.0]
    assert [line["loss"] for line in both(file, run)] == [1.0, 2.0, 3.0]


def test_a_recorded_step_that_is_none_is_named_and_nothing_forgotten(
    file: MetricsFile[Numbers], run: Run
) -> None:
    file.append(Numbers(step=2))
    run.record_step(1, {"loss": 1.0})
    run.record_step(2, {"step": 2, "loss": None})

    with pytest.raises(
        TrainingError, match="run 't', step 1: the line is not the metrics of a step"
    ):
        RecordedMetrics(file, run).keep_until(1)

    assert len(run.steps()) == 2
    assert [each.step for each in file.read()] == [2]
