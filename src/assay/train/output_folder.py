"""The output folder of a training: its owner, its files, and the metrics of its steps."""

import json
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from assay.errors import ConfigError, TrainingError
from assay.store import Run

StartT = TypeVar("StartT", bound=BaseModel)


class OutputFolder:
    """A folder that belongs to one training."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metrics = folder / "metrics.jsonl"
        self.checkpoints = folder / "checkpoints"
        self.model = folder / "model"
        self.curve = folder / "reward.svg"
        self.evaluations = folder / "evaluations.jsonl"
        self.best = folder / "best"
        self.reported = folder / "reported.json"
        self._begun = folder / "training.json"
        self._lock = folder / "training.lock"

    def check(self, *, resume: bool) -> None:
        """Raise `ConfigError` unless a training can start or resume here. Writes nothing."""
        where = str(self.folder)
        if resume and not self._begun.exists():
            raise ConfigError(
                "the folder does not contain a training to resume",
                where=where,
                hint="omit resume to start one",
            )
        if not resume and self._begun.exists():
            raise ConfigError(
                "the folder already contains a training",
                where=where,
                hint="resume it, or choose another output folder",
            )
        ours = (
            self.metrics,
            self.checkpoints,
            self.model,
            self.curve,
            self.evaluations,
            self.best,
        )
        in_the_way = [path.name for path in ours if path.exists()]
        if not resume and in_the_way:
            raise ConfigError(
                f"the folder contains {', '.join(in_the_way)}, not of a training: training would "
                "overwrite them",
                where=where,
                hint="choose another output folder",
            )
        _check_writable(self.folder)

    @contextmanager
    def claim(self, *, resume: bool, take_over: bool = False) -> Iterator[None]:
        """Lock the folder against other trainings, at most as long as this process lives.

        Raises `ConfigError` with the process that holds it, unless its training is to be taken
        over, and for the reasons of `check`.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = self._lock.open("ab+", buffering=0)
        except OSError as error:
            raise _make_write_error(self.folder, error) from None
        with lock as file:
            if _try_lock(file):
                # The owner is only for messages: a full disk is reported by the writes that matter.
                with suppress(OSError):
                    file.truncate(0)
                    file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
            elif not (resume and take_over):
                file.seek(0)
                owner = file.read(200).decode("utf-8", "replace") or "another process"
                raise ConfigError(
                    f"{owner} is training in this folder",
                    where=str(self.folder),
                    hint="wait for it or stop it, or choose another output folder",
                )
            try:
                # Another training may have started, and even ended, since the first check.
                self.check(resume=resume)
                yield
            finally:
                # Closing the file is not enough: a forked process would keep the lock.
                with suppress(ImportError, OSError):
                    import fcntl

                    fcntl.flock(file, fcntl.LOCK_UN)

    def begin(self, begun: BaseModel) -> None:
        """Record the start of a training, which owns the folder from now on."""
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _make_write_error(self.folder, error) from None
        replace_text(self._begun, begun.model_dump_json() + "\n")

    def read_start(self, kind: type[StartT]) -> StartT:
        """Read the record of the training's start."""
        try:
            return kind.model_validate(json.loads(self._begun.read_bytes()))
        except (OSError, ValueError, ValidationError) as error:
            raise TrainingError(
                f"the file cannot be read: {str(error).splitlines()[0]}", where=str(self._begun)
            ) from None


def replace_text(path: Path, text: str) -> None:
    """Replace a file atomically."""
    beside = path.with_suffix(".tmp")
    beside.write_text(text, "utf-8")
    os.replace(beside, path)


def _try_lock(file: FileIO) -> bool:
    # The system releases a lock when its process ends, also after a crash.
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass  # a system or file system without locks: train without one
    return True


def _check_writable(folder: Path) -> None:
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        # Permissions are not enough: a disk may be full or mounted read-only.
        with tempfile.TemporaryDirectory(dir=nearest):
            pass
    except OSError as error:
        raise _make_write_error(folder, error) from None


def _make_write_error(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the folder cannot be written: {error.strerror}", where=str(folder))


class TrainingStep(BaseModel):
    """The metrics of one step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int


StepT = TypeVar("StepT", bound=TrainingStep)


class MetricsFile(Generic[StepT]):
    """A JSON Lines file with one line for each step."""

    def __init__(self, path: Path, kind: type[StepT]) -> None:
        self.path = path
        self._kind = kind

    def append(self, metrics: StepT) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(metrics.model_dump_json() + "\n")
        except OSError as error:
            raise TrainingError(
                f"the file cannot be written: {error.strerror}",
                where=str(self.path),
                hint="make the folder writable or free disk space, and resume",
            ) from None

    def read(self) -> list[StepT]:
        """Read all steps. A partial last line, left by a killed process, is ignored."""
        if not self.path.exists():
            return []
        # Not `splitlines`: only a line that ends with a line break was written to its end.
        lines = self.path.read_text("utf-8").split("\n")[:-1]
        return [
            self.parse_metrics(line, where=f"{self.path}:{number}")
            for number, line in enumerate(lines, start=1)
        ]

    def keep_until(self, step: int) -> list[StepT]:
        """Drop the steps after `step`, which are about to be repeated."""
        kept = [metrics for metrics in self.read() if metrics.step <= step]
        self.replace(kept)
        return kept

    def replace(self, steps: Sequence[StepT]) -> None:
        """Overwrite the file with these steps."""
        replace_text(self.path, "".join(each.model_dump_json() + "\n" for each in steps))

    def parse_metrics(self, text: str, *, where: str) -> StepT:
        """Parse the metrics of a step. Raises `TrainingError` for any other text."""
        try:
            return self._kind.model_validate(json.loads(text))
        except (ValueError, ValidationError) as error:
            raise TrainingError(
                f"the line is not the metrics of a step: {str(error).splitlines()[0]}",
                where=where,
                hint="choose another output folder",
            ) from None


class RecordedMetrics(Generic[StepT]):
    """The steps of a training in its file and in its recorded run, kept in agreement."""

    def __init__(self, file: MetricsFile[StepT], run: Run) -> None:
        self._file = file
        self._run = run

    def append(self, metrics: StepT) -> None:
        # The store first: if it fails, the file must not contain a step that is not recorded.
        self._run.record_step(metrics.step, _to_plain_metrics(metrics))
        self._file.append(metrics)

    def keep_until(self, step: int) -> list[StepT]:
        """Drop the steps after `step`, and copy steps that only the file or the store has."""
        written = {each.step: each for each in self._file.read() if each.step <= step}
        recorded = {row.step: row.metrics for row in self._run.steps() if row.step <= step}
        lost = {
            number: self._file.parse_metrics(
                json.dumps(recorded[number]), where=f"run {self._run.id!r}, step {number}"
            )
            for number in recorded.keys() - written
        }
        self._run.forget_steps(after=step)
        for number, metrics in written.items():
            if recorded.get(number) != _to_plain_metrics(metrics):
                self._run.record_step(number, _to_plain_metrics(metrics))
        kept = [each for _, each in sorted((written | lost).items())]
        self._file.replace(kept)
        return kept


def _to_plain_metrics(metrics: TrainingStep) -> dict[str, Any]:
    # By way of JSON, as in the file: there, values that are not finite become null.
    found: dict[str, Any] = json.loads(metrics.model_dump_json())
    return found
