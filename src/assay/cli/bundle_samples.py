"""The samples of a bundle: results and dataset rows as JSON lines, with secrets redacted."""

import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from assay.datasets import DATASET_FILE, RESULTS
from assay.types import Sample, Status, open_private, redact

_CLEARED_OUTCOME: dict[str, Any] = {
    "score": None,
    "status": Status.PENDING,
    "failure": None,
    "group_index": None,
    "rollout_id": None,
}
_CLEARED_ROLLOUT: dict[str, Any] = {
    "trajectory": None,
    "tokens": [],
    "loss_mask": [],
    "rollout_log_probs": None,
}


class SampleFiles:
    """Writes `results.jsonl` and `dataset.jsonl` into a folder."""

    def __init__(self, folder: Path) -> None:
        self.redacted = 0
        """The number of lines in which a secret was redacted."""

        with ExitStack() as stack:
            self._results = stack.enter_context(open_private(folder / RESULTS))
            self._dataset = stack.enter_context(open_private(folder / DATASET_FILE))
            self._files = stack.pop_all()

    def add(self, samples: Iterable[Sample], *, rolled_out: bool) -> tuple[int, int]:
        """Write the samples of one run, repeats adjacent; return the numbers of results and rows.

        `rolled_out`: trajectories are results of the run rather than a part of its dataset.
        """
        results = rows = 0
        last: str | None = None
        for sample in samples:
            self._write(self._results, sample)
            results += 1
            if sample.id != last:
                self._write(self._dataset, restore_row(sample, rolled_out=rolled_out))
                rows += 1
            last = sample.id
        return results, rows

    def _write(self, file: Any, sample: Sample) -> None:
        line = sample.to_json()
        if redact(line) != line:
            self.redacted += 1
            # Redacted value by value: in the raw line a replacement could break the JSON.
            plain = redact_values(json.loads(line))
            line = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
        file.write(f"{line}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._files.close()


def restore_row(sample: Sample, *, rolled_out: bool) -> Sample:
    """Return the sample as it was before its evaluation."""
    return sample.model_copy(
        update={**_CLEARED_OUTCOME, **(_CLEARED_ROLLOUT if rolled_out else {})}
    )


def redact_values(value: Any) -> Any:
    """Redact every secret in the strings of plain values."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(key): redact_values(each) for key, each in value.items()}
    if isinstance(value, list):
        return [redact_values(each) for each in value]
    return value
