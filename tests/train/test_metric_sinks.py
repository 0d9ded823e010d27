"""Trackers: which metrics they get, that nothing leaves the machine, and what a failure costs."""

import json
import os
import socket
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from assay.errors import ConfigError, MissingExtra, TrainingError
from assay.train.metric_sinks import (
    METRIC_SINKS,
    MetricReport,
    MetricSink,
    MetricSinkFailed,
    TrackedTraining,
    check_metric_sinks,
    find_metric_sink,
    flatten_metrics,
)
from assay.train.output_folder import OutputFolder, TrainingStep
from assay.train.sft import sft_train
from assay.train.sft_config import SFTConfig
from assay.train.training_session import TrainingSession
from lamps import lamp_config, trained
from plugin_package import install_package
from tiny_models import tiny_local

ROOT = Path(__file__).parents[2]
TRACKERS = ROOT / ".venv-trackers"
KEY = "kept-out-of-every-file-4711"


class Recorder:
    """A tracker that remembers everything."""

    def __init__(self, *, broken_at: int | None = None) -> None:
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.closed = 0
        self._broken_at = broken_at

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if step == self._broken_at:
            raise OSError("the disk is full")
        self.logged.append((step, dict(metrics)))

    def close(self) -> None:
        self.closed += 1

    @property
    def steps(self) -> list[int]:
        return [step for step, _ in self.logged]


class Late(Recorder):
    """Another one, with a name of its own."""


class Numbers(TrainingStep):
    reward: float | None = 0.5
    updated: bool = True
    failed: dict[str, int] = Field(default_factory=dict)
    note: str = "text"
    weight_versions: dict[str, int] | None = None


def test_a_training_reports_each_step_once_also_after_a_resume(tmp_path: Path) -> None:
    first, second, late = Recorder(), Recorder(), Late()
    trained(tmp_path, num_steps=2, report_to=(first,))
    session = TrainingSession(store=tmp_path / "store.db", resume=True)

    result = trained(tmp_path, num_steps=3, report_to=(second, late), session=session)

    assert (first.steps, second.steps, late.steps) == ([1, 2], [3], [1, 2, 3])
    assert first.closed == second.closed == late.closed == 1
    logged = late.logged[0][1]
    assert logged["train/reward"] == result.steps[0].reward
    assert logged["train/loss"] == result.steps[0].loss
    assert "train/kl" not in logged


def test_a_fine_tuning_reports_its_steps(tmp_path: Path) -> None:
    recorder = Recorder()
    rows = [
        {"messages": [{"role": "user", "content": f"{n}"}, {"role": "assistant", "content": "8"}]}
        for n in range(4)
    ]
    config = SFTConfig(model_name="tiny", output=tmp_path, num_steps=3, report_to=(recorder,))

    result = sft_train(config, rows, model=tiny_local())

    assert recorder.steps == [1, 2, 3]
    assert recorder.logged[0][1]["train/loss"] == result.steps[0].loss
    assert recorder.closed == 1


def test_a_tracker_that_fails_is_dropped_and_the_training_continues(tmp_path: Path) -> None:
    broken, other = Recorder(broken_at=1), Late()

    with pytest.warns(MetricSinkFailed, match="'Recorder' gets no further metrics: OSError: the"):
        result = trained(tmp_path, num_steps=2, report_to=(broken, other))

    assert not result.interrupted
    assert (broken.steps, other.steps) == ([], [1, 2])


def test_two_trackers_of_one_class_both_get_all_steps(tmp_path: Path) -> None:
    one, other = Recorder(), Recorder()
    training = TrackedTraining("run", "lamps", tmp_path, {})

    report = MetricReport([one, other], training, OutputFolder(tmp_path))
    report.catch_up([Numbers(step=1), Numbers(step=2)], [])
    report.close()

    assert (one.steps, other.steps) == ([1, 2], [1, 2])
    assert (one.closed, other.closed) == (1, 1)


def test_evaluations_follow_the_steps_they_come_after(tmp_path: Path) -> None:
    recorder = Recorder()
    training = TrackedTraining("run", "lamps", tmp_path, {})
    report = MetricReport([recorder], training, OutputFolder(tmp_path))

    steps, evaluations = [Numbers(step=each) for each in (1, 2, 3)], [0, 2]
    report.catch_up(steps, [Numbers(step=each) for each in evaluations])

    names = [(step, next(iter(logged))) for step, logged in recorder.logged]
    train, evaluation = "train/reward", "eval/reward"
    assert names == [(0, evaluation), (1, train), (2, train), (2, evaluation), (3, train)]


def test_only_numbers_that_are_known_are_reported() -> None:
    # A name for each version would be a new metric in each step.
    versions = {"step-0": 32}
    metrics = Numbers(step=1, reward=float("nan"), failed={"agent": 2}, weight_versions=versions)

    assert flatten_metrics("train", metrics) == {"train/updated": 1.0, "train/failed/agent": 2.0}


def test_a_tracker_that_cannot_be_opened_ends_the_training_before_its_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(training: TrackedTraining) -> MetricSink:
        raise RuntimeError("no space")

    monkeypatch.setitem(METRIC_SINKS, "tensorboard", broken)

    with pytest.raises(TrainingError, match="'tensorboard' cannot be opened: RuntimeError: no"):
        trained(tmp_path, report_to="tensorboard")
    assert not (tmp_path / "out" / "metrics.jsonl").read_text()


@pytest.mark.parametrize("name", sorted(METRIC_SINKS))
def test_a_missing_package_is_named_before_the_training(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.train.metric_sinks.find_spec", lambda module: None)

    with pytest.raises(MissingExtra) as caught:
        trained(tmp_path, report_to=[name])

    assert f"report_to={name!r} needs the package" in str(caught.value)
    assert f"assay-eval[{name}]" in str(caught.value)
    assert not (tmp_path / "out").exists()


PLUGINS = """
logged = []


class Sink:
    def __init__(self, training):
        self.training = training

    def log(self, step, metrics):
        logged.append((self.training.project, step))

    def close(self):
        pass


number = 4
"""


def test_a_plugin_is_a_tracker_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"metric_sinks.acme": "acme_assay:Sink", "metric_sinks.wrong": "acme_assay:number"}
    install_package(tmp_path, monkeypatch, entries, code=PLUGINS)

    trained(tmp_path, num_steps=1, report_to="acme")

    import acme_assay  # type: ignore[import-not-found]  # the package of this test

    assert acme_assay.logged == [("grpo", 1)]
    with pytest.raises(ConfigError, match="the tracker is of type `int`"):
        find_metric_sink("wrong")


def test_an_unknown_tracker_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown tracker 'nobody'"):
        check_metric_sinks(["nobody"])


@pytest.mark.parametrize("wrong", [3, [3], [object()]])
def test_a_tracker_is_a_name_or_has_log_and_close(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises((ValueError, TypeError)):
        lamp_config(tmp_path, report_to=wrong)


def read_events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return {
        name: [(event.step, event.value) for event in found.Scalars(name)]
        for name in found.Tags()["scalars"]
    }


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
@pytest.mark.filterwarnings("ignore")
def test_tensorboard_reads_what_a_training_wrote(tmp_path: Path) -> None:
    result = trained(tmp_path, num_steps=2, report_to="tensorboard")

    events = read_events(tmp_path / "out" / "tensorboard")
    assert dict(events["train/reward"]) == pytest.approx(
        {step.step: step.reward for step in result.steps}
    )


@pytest.mark.slow
@pytest.mark.skipif(
    not (TRACKERS / ".installed").exists(), reason="run `make .venv-trackers/.installed`"
)
@pytest.mark.parametrize("tracker", ["mlflow", "trackio", "wandb"])
def test_a_tracker_gets_each_step_once_and_sends_nothing(tracker: str, tmp_path: Path) -> None:
    # Whatever leaves the machine goes through a proxy, at which nothing must arrive.
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        done = subprocess.run(
            [
                TRACKERS / "bin" / "python",
                ROOT / "tests" / "support" / "tracked_metrics.py",
                tracker,
                tmp_path,
            ],
            env={
                **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
                "PYTHONPATH": str(ROOT / "src"),
                "HOME": str(tmp_path / "home"),
                "TRACKIO_DIR": str(tmp_path / "trackio"),
                "HTTP_PROXY": address,
                "HTTPS_PROXY": address,
                # Settings that would send the metrics to a server.
                "WANDB_MODE": "online",
                "WANDB_API_KEY": KEY,
                "MLFLOW_TRACKING_URI": address,
                "TRACKIO_SERVER_URL": f"{address}/?write_token={KEY}",
                "TRACKIO_SPACE_ID": "somebody/somewhere",
            },
            capture_output=True,
            text=True,
            timeout=300,
        )
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()

    assert done.returncode == 0, done.stderr
    # trackio prints another line when its process ends.
    assert json.loads(done.stdout.splitlines()[0]) == sorted(
        [
            *([step, "train/reward", step / 4] for step in (1, 2, 3)),
            *([step, "train/failed/agent", float(step)] for step in (1, 2, 3)),
            *([step, "eval/reward", 1.0] for step in (2, 3)),
        ]
    )
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert [path for path in written if KEY.encode() in path.read_bytes()] == []
