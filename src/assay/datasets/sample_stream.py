"""Convert rows to samples one at a time, and report the skipped rows."""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from assay.errors import BadRow
from assay.types import Sample, replace_lone_surrogates, set_unchecked

from .layouts import Layout, is_generated_id, read_row
from .prompt_template import PromptTemplate
from .read_limits import ReadLimits
from .row_ids import SeenIds
from .rows import RowOutcome, Rows, check_json_form, is_json_form, to_json_values

Adapter = Callable[[dict[str, Any]], Sample | dict[str, Any]]
"""Converts a row to a sample, or to a row of a known layout."""

OnBadRow = Literal["fail", "skip"]


@dataclass
class SkippedRows:
    """The rows that one pass skipped, and why."""

    read: int = 0
    """Rows read, valid and invalid."""

    count: int = 0
    problems: list[BadRow] = field(default_factory=list)
    """The first problems, up to `ReadLimits.max_problems`."""

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        total = f"{self.count} of {self.read} rows skipped"
        if not self.problems:
            return total
        texts = (f"{p.where}: {p.message}" if p.where else p.message for p in self.problems)
        shown = "; ".join(" ".join(text.split()) for text in texts)
        rest = self.count - len(self.problems)
        return f"{total}: {shown}" + (f"; and {rest} more" if rest else "")


@dataclass(frozen=True)
class StreamPlan:
    """The settings of a stream."""

    rows: Rows
    max_samples: int | None
    on_bad_row: OnBadRow
    adapter: Adapter | None
    limits: ReadLimits
    name: str
    repeats: bool = False
    """Whether samples may share an id, as several rollouts of one sample do."""

    metadata: Mapping[str, Any] | None = None
    """Metadata that is added to every sample."""

    fallback: Layout | None = None
    """Reads the rows in which no other layout finds a prompt."""


class SampleStream:
    """Samples of one source, read lazily.

    Each `for` loop starts a new pass from the beginning; `next(stream)` has a pass of its own.
    `read` and `skipped` describe the pass that was started last.
    """

    def __init__(self, plan: StreamPlan) -> None:
        self._plan = plan
        self.name = plan.name
        """The path or the name of the source, or the type of the rows in memory."""
        self._own_pass: Iterator[Sample] | None = None
        self.skipped = SkippedRows()

    def with_repeats(self) -> "SampleStream":
        """Return a stream of the same samples that allows repeated ids."""
        return SampleStream(replace(self._plan, repeats=True))

    def with_limit(self, max_samples: int) -> "SampleStream":
        """Return a stream of the first samples, which ends after `max_samples` at the latest."""
        own = self._plan.max_samples
        most = max_samples if own is None else min(own, max_samples)
        return SampleStream(replace(self._plan, max_samples=most))

    def with_prompt(self, prepare: Callable[..., Any] | None) -> "SampleStream":
        """Return a stream that also reads rows without a question which fill this prompt.

        Only a `PromptTemplate` names its fields; with any other function, this stream is returned.
        """
        if not isinstance(prepare, PromptTemplate):
            return self
        return SampleStream(replace(self._plan, name=self.name, fallback=prepare.layout))

    def with_metadata(self, metadata: Mapping[str, Any]) -> "SampleStream":
        """Return a stream of the same samples with `metadata` and `row_id` in their metadata.

        Values of the rows themselves take precedence. Ids do not depend on it.
        """
        return SampleStream(replace(self._plan, metadata=metadata))

    @property
    def file(self) -> Path | None:
        """The file of the stream, or None for other sources."""
        path: Path | None = getattr(self._plan.rows, "path", None)
        return path

    @property
    def reads_once(self) -> bool:
        """Whether only one pass is possible, because the source is an iterator."""
        return isinstance(getattr(self._plan.rows, "items", None), Iterator)

    @property
    def total(self) -> int | None:
        """The maximum number of samples, or None if it is unknown without reading them."""
        count: int | None = getattr(self._plan.rows, "count", None)
        if count is None or self._plan.max_samples is None:
            return count
        return min(count, self._plan.max_samples)

    @property
    def read(self) -> int:
        """The number of rows read so far, valid and invalid."""
        return self.skipped.read

    def __iter__(self) -> Iterator[Sample]:
        self.skipped = SkippedRows()
        samples = _read_samples(self._plan, self.skipped)
        most = self._plan.max_samples
        return islice(samples, None if most is None else min(most, sys.maxsize))

    def __next__(self) -> Sample:
        if self._own_pass is None:
            self._own_pass = iter(self)
        return next(self._own_pass)


def _read_samples(plan: StreamPlan, skipped: SkippedRows) -> Iterator[Sample]:
    is_written = plan.adapter is None and getattr(plan.rows, "is_text", False)
    with SeenIds() as seen:
        for position, found in plan.rows:
            index = skipped.read
            skipped.read += 1
            try:
                sample = _convert_row(plan, found, index)
                # ASCII ids, nearly all of them, skip the slower check. The parsers of files refuse
                # lone surrogates; rows in memory have passed no parser.
                if not sample.id.isascii() and replace_lone_surrogates(sample.id) != sample.id:
                    raise BadRow(
                        f"the id {sample.id!r:.80} contains a lone surrogate",
                        hint="the text was cut inside a character; replace the surrogate with "
                        "\\ufffd",
                    )
                if not is_written:
                    check_json_form(sample)
                if not plan.repeats:
                    sample = _claim_id(sample, plan.rows, seen, position)
                if plan.metadata is not None:
                    own = {**plan.metadata, "row_id": sample.id, **sample.metadata}
                    set_unchecked(sample, {"metadata": own})
            except BadRow as problem:
                problem.where = problem.where or plan.rows.where(position)
                if plan.on_bad_row == "fail":
                    raise
                skipped.count += 1
                if skipped.count <= plan.limits.max_problems:
                    # A traceback keeps its frames, and with them the row, in memory.
                    skipped.problems.append(problem.with_traceback(None))
            else:
                yield sample


def _convert_row(plan: StreamPlan, found: RowOutcome, index: int) -> Sample:
    if plan.adapter is None and type(found) is dict:
        if getattr(plan.rows, "has_typed_values", False):
            found = to_json_values(found)
        return read_row(found, index=index, fallback=plan.fallback)
    if isinstance(found, BadRow):
        raise found
    if isinstance(found, Sample):
        # A copy: the sample in the list of the caller must not change.
        return found.model_copy(update={"index": index} if found.index is None else None)
    if plan.adapter is None:
        return read_row(found, index=index, fallback=plan.fallback)
    try:
        # A copy of the row, so that `input` keeps the original.
        adapted = plan.adapter(dict(found))
    except Exception as error:
        raise BadRow(
            f"the adapter failed: {type(error).__name__}: {error}",
            hint="see the cause of this error for the traceback of the adapter",
        ) from error
    if not isinstance(adapted, Sample | dict):
        raise BadRow(
            f"the adapter returned {type(adapted).__name__}, not a Sample or a dict",
            hint="return a Sample, or a dict of a known layout",
        )
    # An adapter may be there to take the place of an image, say, which has no JSON form.
    original = found if is_json_form(found) else None
    if not isinstance(adapted, Sample):
        return read_row(adapted, index=index, original=original, fallback=plan.fallback)
    if adapted.index is None:
        adapted.index = index
    adapted.input = adapted.input or original or {}
    return adapted


def _claim_id(sample: Sample, rows: Rows, seen: SeenIds, position: int) -> Sample:
    """Return the sample under a unique id. Raises `BadRow` for a repeated id of the data."""
    first = seen.claim(sample.id, position)
    if first is None:
        return sample
    if not is_generated_id(sample):
        raise BadRow(
            f"the id {sample.id!r} is already used at {rows.where(first)}",
            hint="make the ids unique, or drop the column with adapter= to generate them",
        )
    # Equal rows without ids are valid data: each gets a numbered id.
    sample.id = seen.number(sample.id, position)
    return sample
