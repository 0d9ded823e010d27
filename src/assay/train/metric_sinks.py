"""Trackers that get the metrics of a training: on this machine only, whatever is configured.

The file and the store of a training have all of its metrics. So a tracker that fails is dropped
with a warning, and the training continues.
"""

import io
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from assay.errors import ConfigError, MissingExtra, TrainingError
from assay.registry import find_plugin, list_names

from .output_folder import OutputFolder, TrainingStep, replace_text

MetricKind = Literal["train", "eval"]


@runtime_checkable
class MetricSink(Protocol):
    """Gets the metrics of a training, in the order of steps."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record metrics such as `train/reward`. Unknown ones are absent."""

    def close(self) -> None:
        """Write everything. Nothing is logged afterwards."""


@dataclass(frozen=True)
class TrackedTraining:
    """A training, as a tracker knows it."""

    id: str
    """The same after a resume."""

    project: str
    folder: Path
    """The output folder of the training."""

    settings: Mapping[str, Any]
    """Plain values without secrets."""


SinkFactory = Callable[[TrackedTraining], MetricSink]


class MetricSinkFailed(UserWarning):
    """A tracker failed, and gets no further metrics."""


class _TensorboardSink:
    def __init__(self, training: TrackedTraining) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(training.folder / "tensorboard"))
        self._writer.add_text("settings", f"```\n{json.dumps(training.settings, indent=2)}\n```")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _WandbSink:
    def __init__(self, training: TrackedTraining) -> None:
        with _set_variables(WANDB_ERROR_REPORTING="false"):
            import wandb

            settings = wandb.Settings(
                mode="offline",
                console="off",
                silent=True,
                # The command line, the environment and the code may contain secrets.
                disable_code=True,
                disable_git=True,
                disable_job_creation=True,
                x_disable_meta=True,
                x_disable_stats=True,
            )
            self._run = wandb.init(
                project=training.project,
                name=training.id,
                id=training.id,
                dir=str(training.folder),
                config=dict(training.settings),
                settings=settings,
            )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class _MlflowSink:
    def __init__(self, training: TrackedTraining) -> None:
        with _set_variables(MLFLOW_DISABLE_TELEMETRY="true"), warnings.catch_warnings():
            # SQLAlchemy deprecates what MLflow still uses.
            warnings.simplefilter("ignore")
            from mlflow import MlflowClient
            from mlflow.entities import Param

            folder = training.folder.absolute()
            self._client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
            experiment = self._client.get_experiment_by_name(training.project)
            number = (
                self._client.create_experiment(
                    training.project, artifact_location=(folder / "mlflow").as_uri()
                )
                if experiment is None
                else experiment.experiment_id
            )
            found = self._client.search_runs([number], f"tags.`assay.run` = '{training.id}'")
            if found:
                self._run = found[0].info.run_id
                self._client.update_run(self._run, status="RUNNING")
                return
            tags = {"assay.run": training.id}
            run = self._client.create_run(number, run_name=training.id, tags=tags)
            self._run = run.info.run_id
            params = [Param(name, str(value)[:500]) for name, value in training.settings.items()]
            self._client.log_batch(self._run, params=params[:100])

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        entries = [Metric(name, value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self._run, metrics=entries)

    def close(self) -> None:
        self._client.set_terminated(self._run)


class _TrackioSink:
    def __init__(self, training: TrackedTraining) -> None:
        # Both would send the metrics to a server.
        with (
            _set_variables(TRACKIO_SPACE_ID=None, TRACKIO_SERVER_URL=None),
            redirect_stdout(io.StringIO()),
        ):
            import trackio

            self._run = trackio.init(
                project=training.project,
                name=training.id,
                config=dict(training.settings),
                resume="allow",
                embed=False,
                auto_log_cpu=False,
                auto_log_gpu=False,
            )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        with redirect_stdout(io.StringIO()):
            self._run.finish()


METRIC_SINKS: dict[str, SinkFactory] = {
    "mlflow": _MlflowSink,
    "tensorboard": _TensorboardSink,
    "trackio": _TrackioSink,
    "wandb": _WandbSink,
}
"""The trackers by name. Each is an extra."""

# Modules that a tracker needs, besides the one of its own name.
_NEEDED_MODULES = {"mlflow": ("mlflow", "sqlalchemy", "alembic")}


def find_metric_sink(name: str) -> SinkFactory:
    """Return the tracker of this name, which may be a plug-in's.

    Raises `ConfigError` for an unknown name, and `MissingExtra` if its package is not installed.
    """
    if name in METRIC_SINKS:
        for module in _NEEDED_MODULES.get(name, (name,)):
            if find_spec(module) is None:
                raise MissingExtra.build(name, by=f"report_to={name!r}", package=module)
        return METRIC_SINKS[name]
    plugin = find_plugin("assay.metric_sinks", name)
    if plugin is None:
        known = ", ".join(list_names("assay.metric_sinks", METRIC_SINKS))
        raise ConfigError(f"report_to: unknown tracker {name!r}", hint=f"the trackers are {known}")
    if not callable(plugin.value):
        raise plugin.build_error(f"the tracker is of type `{type(plugin.value).__name__}`")
    factory: SinkFactory = plugin.value
    return factory


def check_report_to(value: Any) -> tuple[Any, ...]:
    """Return names and sinks as a tuple. Raises `ValueError` for anything else."""
    given = (value,) if isinstance(value, str | MetricSink) else tuple(value)
    for each in given:
        if not isinstance(each, str | MetricSink):
            raise ValueError(
                f"a tracker is a name or an object with `log` and `close`, not a "
                f"{type(each).__name__}"
            )
    return given


def check_metric_sinks(report_to: Iterable[str | MetricSink]) -> None:
    """Raise `ConfigError` for a tracker that cannot be used. Opens none."""
    for each in report_to:
        if isinstance(each, str):
            find_metric_sink(each)


class MetricReport:
    """Passes the metrics of a training on, each once: also after a resume.

    A file in the output folder has the last step that each tracker got. It is written after the
    tracker: a process that is killed between the two repeats a step instead of losing it. A tracker
    that was added on a resume gets the earlier steps as well.
    """

    def __init__(
        self,
        report_to: Sequence[str | MetricSink],
        training: TrackedTraining,
        output: OutputFolder,
    ) -> None:
        self._path = output.reported
        self._reported: dict[str, dict[str, int]] = _read_reported(self._path)
        self._sinks: dict[str, MetricSink] = {}
        for each in report_to:
            name = each if isinstance(each, str) else type(each).__name__
            try:
                sink = find_metric_sink(each)(training) if isinstance(each, str) else each
            except ConfigError:
                raise
            except Exception as error:
                raise TrainingError(
                    f"the tracker {name!r} cannot be opened: {type(error).__name__}: {error}",
                    where="report_to",
                    hint="fix the cause and resume, or resume without it",
                ) from error
            if same := sum(other.partition(" ")[0] == name for other in self._sinks):
                name = f"{name} {same + 1}"
            self._sinks[name] = sink

    def catch_up(self, steps: Iterable[TrainingStep], evaluations: Iterable[TrainingStep]) -> None:
        """Pass on the steps of an earlier process that a tracker did not get."""
        kinds: list[tuple[MetricKind, TrainingStep]] = [
            *(("train", each) for each in steps),
            *(("eval", each) for each in evaluations),
        ]
        # A tracker takes steps in order; the evaluation after a step follows it.
        for kind, each in sorted(kinds, key=lambda pair: (pair[1].step, pair[0] == "eval")):
            self.report(kind, each)

    def report(self, kind: MetricKind, metrics: TrainingStep) -> None:
        """Pass metrics on to the trackers that do not have them."""
        if not self._sinks:
            return
        for name, sink in list(self._sinks.items()):
            last = self._reported.setdefault(name, {})
            if metrics.step <= last.get(kind, -1):
                continue
            try:
                sink.log(metrics.step, flatten_metrics(kind, metrics))
            except Exception as error:
                del self._sinks[name]
                _warn_of_failure(name, error)
                continue
            last[kind] = metrics.step
        # A full disk is reported by the writes that matter.
        with suppress(OSError):
            replace_text(self._path, json.dumps(self._reported))

    def close(self) -> None:
        """Close all trackers."""
        while self._sinks:
            name, sink = self._sinks.popitem()
            try:
                sink.close()
            except Exception as error:
                _warn_of_failure(name, error)


def flatten_metrics(kind: MetricKind, metrics: TrainingStep) -> dict[str, float]:
    """Return the numbers of a step by name, such as `train/reward`. Unknown ones are left out."""
    flat: dict[str, float] = {}
    # Each step has other versions: with a name for each, trackers would have a metric a step.
    for name, value in metrics.model_dump(exclude={"step", "weight_versions"}).items():
        inner = value if isinstance(value, dict) else {"": value}
        for key, number in inner.items():
            if isinstance(number, int | float) and isfinite(number):
                flat[f"{kind}/{name}" + (f"/{key}" if key else "")] = float(number)
    return flat


def _warn_of_failure(name: str, error: Exception) -> None:
    warnings.warn(
        f"the tracker {name!r} gets no further metrics: {type(error).__name__}: {error}",
        MetricSinkFailed,
        stacklevel=3,
    )


def _read_reported(path: Path) -> dict[str, dict[str, int]]:
    try:
        found: dict[str, dict[str, int]] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found


@contextmanager
def _set_variables(**values: str | None) -> Iterator[None]:
    """Set environment variables while a tracker is opened; None removes one."""
    before = {name: os.environ.get(name) for name in values}

    def assign(variables: Mapping[str, str | None]) -> None:
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    assign(values)
    try:
        yield
    finally:
        assign(before)
