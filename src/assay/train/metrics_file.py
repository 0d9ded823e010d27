"""The metrics of training steps: one line each in a file, and the same in the store."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from pydantic import ValidationError

from assay.errors import TrainingError
from assay.store import Run

from .output_folder import replace_text


class StepModel(Protocol):
    """The numbers of a step, as a pydantic model."""

    @property
    def step(self) -> int: ...

    def model_dump_json(self) -> str: ...

    @classmethod
    def model_validate(cls, obj: object) -> Self: ...


StepT = TypeVar("StepT", bound=StepModel)


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


def _to_plain_metrics(metrics: StepModel) -> dict[str, Any]:
    # By way of JSON, as in the file: there, values that are not finite become null.
    found: dict[str, Any] = json.loads(metrics.model_dump_json())
    return found
