"""The output folder: it belongs to one training."""

import errno
import fcntl
import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import BaseModel

from assay.errors import ConfigError, StoreError, TrainingError
from assay.store import Run, RunSpec, Store
from assay.train.output_folder import MetricsFile, OutputFolder, RecordedMetrics, TrainingStep


class Begun(BaseModel):
    run_id: str


@pytest.fixture
def output(tmp_path: Path) -> OutputFolder:
    return OutputFolder(tmp_path / "out")


def test_a_new_folder_can_begin_one_but_not_go_on(output: OutputFolder) -> None:
    output.check(resume=False)

    with pytest.raises(ConfigError, match="the folder does not contain a training to resume"):
        output.check(resume=True)


def test_a_folder_that_has_one_can_go_on_but_not_begin_another(output: OutputFolder) -> None:
    output.begin(Begun(run_id="a"))

    output.check(resume=True)
    with pytest.raises(ConfigError, match="the folder already contains a training"):
        output.check(resume=False)
    assert output.read_start(Begun).run_id == "a"


def test_checking_leaves_nothing_behind(output: OutputFolder) -> None:
    output.check(resume=False)

    assert not output.folder.exists()
    assert list(output.folder.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["file", "file/out"])
def test_a_place_where_nothing_can_be_written_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    output = OutputFolder(tmp_path / name)

    with pytest.raises(ConfigError, match="the folder cannot be written: Not a directory"):
        output.check(resume=False)
    with pytest.raises(ConfigError, match="the folder cannot be written"):
        output.begin(Begun(run_id="r"))


@pytest.mark.parametrize("name", ["model", "checkpoints", "metrics.jsonl", "reward.svg"])
def test_what_is_not_of_a_training_is_not_written_over(name: str, output: OutputFolder) -> None:
    (output.folder / name).mkdir(parents=True)

    with pytest.raises(ConfigError, match=f"{name}, not of a training"):
        output.check(resume=False)


def test_other_things_in_a_folder_are_not_in_the_way(output: OutputFolder) -> None:
    output.folder.mkdir()
    (output.folder / "notes.txt").write_text("")

    output.check(resume=False)

    assert [path.name for path in output.folder.iterdir()] == ["notes.txt"]


def test_a_folder_whose_training_cannot_be_read_says_so(output: OutputFolder) -> None:
    output.folder.mkdir()
    (output.folder / "training.json").write_text("{}")

    with pytest.raises(TrainingError, match=r"training\.json: the file cannot be read"):
        output.read_start(Begun)


def test_two_trainings_are_not_in_one_folder_at_once(output: OutputFolder) -> None:
    owner = f"process {os.getpid()} on {socket.gethostname()}"
    told = rf"out: {owner} is training in this folder\n  hint: wait"

    with output.claim(resume=False):
        output.begin(Begun(run_id="a"))
        for resume in (False, True):
            with pytest.raises(ConfigError, match=told), output.claim(resume=resume):
                pass

    with output.claim(resume=True):
        assert output.read_start(Begun).run_id == "a"


def test_a_training_that_began_since_the_check_is_noticed(output: OutputFolder) -> None:
    output.check(resume=False)
    with output.claim(resume=False):
        output.begin(Begun(run_id="a"))

    with (
        pytest.raises(ConfigError, match="the folder already contains a training"),
        output.claim(resume=False),
    ):
        pass


def test_only_what_is_gone_on_with_can_be_taken_over(output: OutputFolder) -> None:
    with output.claim(resume=False):
        with (
            pytest.raises(ConfigError, match="is training in this folder"),
            output.claim(resume=False, take_over=True),
        ):
            pass
        output.begin(Begun(run_id="a"))
        with output.claim(resume=True, take_over=True):
            pass
        with (
            pytest.raises(ConfigError, match="is training in this folder"),
            output.claim(resume=True),
        ):
            pass


def test_where_there_are_no_locks_a_folder_is_used_without(
    output: OutputFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", without)

    with output.claim(resume=False):
        output.begin(Begun(run_id="a"))

    assert output.read_start(Begun).run_id == "a"


CLAIMS = """
import os, pathlib, sys
from assay.train.output_folder import OutputFolder

with OutputFolder(pathlib.Path(sys.argv[1])).claim(resume=False):
    print("claimed", flush=True)
    if sys.argv[2] == "forks" and os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
    elif sys.argv[2] == "stays":
        sys.stdin.read()
print("ended", flush=True)
"""


@contextmanager
def claiming(folder: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has a folder, or had it and left another one behind."""
    command = [sys.executable, "-c", CLAIMS, str(folder), how]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "claimed\n"
        yield process


def test_a_killed_process_leaves_a_folder_that_can_be_used(output: OutputFolder) -> None:
    with claiming(output.folder, "stays") as process:
        with (
            pytest.raises(ConfigError, match=f"process {process.pid} on "),
            output.claim(resume=False),
        ):
            pass
        process.kill()

    with output.claim(resume=False):
        pass


def test_what_a_training_forked_does_not_keep_its_folder(output: OutputFolder) -> None:
    with claiming(output.folder, "forks") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ended\n"

        with output.claim(resume=False):
            pass


class Numbers(TrainingStep):
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
