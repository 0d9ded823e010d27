"""Failures of a run or of several: grouped with counts, as a dataset, and for export."""

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast, get_args
from urllib.parse import urlencode

from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from assay.errors import ConfigError
from assay.export import FORMATS, Selection, export_samples
from assay.runner import read_summary
from assay.store import Run, Store
from assay.types import Sample

from .failure_groups import (
    MAX_RESULTS_GROUPED,
    BadGroup,
    BadResults,
    BadSample,
    GroupedBy,
    find_bad_results,
    read_bodies,
)
from .page import (
    PageModel,
    build_page_routes,
    copy_fields,
    find_context,
    find_run,
    read_choice,
    read_number,
    read_parameter,
)
from .value_cache import ValueCache, build_run_key

_NEWEST_RUNS = 10
_SAMPLES_PER_PAGE = 50
_GROUPS_SHOWN = 40
# Room for all runs of a page, each with as many bad results as are grouped: values that push each
# other out would be computed again with each reload.
_BAD_RESULTS = ValueCache(max_results=(_NEWEST_RUNS + 2) * MAX_RESULTS_GROUPED)
EXPORT_FORMATS = tuple(
    name
    for name, form in FORMATS.items()
    if form.takes in ("answers", "prompts", "samples") and not form.only_parquet
)
"""Formats that write one file of lines, without further options."""


class FailureSource(PageModel):
    """A run whose bad results are counted."""

    id: str
    name: str
    created_at: str
    failed: int
    worse: int
    """Results with a worse score than `best`."""

    best: float
    """The best possible score."""

    low_is_good: bool


class FailureGroupView(PageModel):
    """Bad results with the same reason, metric or tool error."""

    by: GroupedBy
    value: str
    """With `N` and `'…'` where the texts differ in numbers and quoted values."""

    text: str
    """The reason itself where all have the same one, else `value`."""

    results: int
    runs: int
    example: str
    """The label of one of them."""

    query: str


class BadSampleView(PageModel):
    """One bad result in the list."""

    run: str
    key: str
    id: str
    repeat: int
    label: str
    score: float | None
    failed: str | None
    reason: str


class FailuresView(PageModel):
    """Bad results in groups; with `by` and `value` the samples of one group."""

    runs: tuple[FailureSource, ...]
    groups: tuple[FailureGroupView, ...]
    """The largest of each kind first."""

    groups_left_out: int
    ungrouped: int
    """Results beyond the limits of grouping."""

    transcripts_read: int
    """Samples whose tool errors were counted: failed ones and the worst scores."""

    by: GroupedBy | None
    value: str | None
    results: int
    """Bad results in all, or in the chosen group."""

    samples: tuple[BadSampleView, ...]
    start: int
    next: int | None
    query: str
    """The runs and the chosen group, as parameters of an address."""

    runs_query: str
    command: str
    """Converts the downloaded samples to a training format."""

    formats: tuple[str, ...]

    @property
    def bad_scores(self) -> str:
        """The word for bad scores: `Low`, `High` where low ones are good, `Bad` for both."""
        sides = {run.low_is_good for run in self.runs}
        return "Bad" if len(sides) > 1 else "High" if True in sides else "Low"


def read_failures(store: Store, request: Request) -> FailuresView:
    """Read the bad results of the runs of a request, or of the newest runs."""
    runs = _choose_runs(store, request)
    found = [_find_results(store, run) for run in runs]
    by, value = _read_chosen_group(request)
    start = read_number(request, "start") or 0
    groups = _merge_groups(found)
    chosen = _select_samples(found, groups, by, value)
    shown = chosen[start : start + _SAMPLES_PER_PAGE]
    end = start + len(shown)
    given = [("run", run.id) for run in runs]
    # Of each kind: a metric that is low everywhere must not hide the reasons.
    listed = [
        group
        for by_kind in get_args(GroupedBy)
        for group in islice((each for each in groups if each.by == by_kind), _GROUPS_SHOWN)
    ]
    query = urlencode([*given, *([("by", by), ("value", value)] if by and value else [])])
    return FailuresView(
        runs=tuple(
            FailureSource(
                id=run.id,
                name=run.spec.name,
                created_at=run.spec.created_at,
                failed=each.failed,
                worse=each.worse,
                best=each.best,
                low_is_good=each.low_is_good,
            )
            for run, each in zip(runs, found, strict=True)
        ),
        groups=tuple(
            FailureGroupView(
                by=group.by,
                value=group.value,
                text=_find_common_reason(group) or group.value,
                results=len(group.samples),
                runs=len({sample.run for sample in group.samples}),
                example=group.samples[0].label or group.samples[0].sample_id,
                query=urlencode([*given, ("by", group.by), ("value", group.value)]),
            )
            for group in listed
        ),
        groups_left_out=len(groups) - len(listed),
        ungrouped=sum(each.ungrouped for each in found),
        transcripts_read=sum(each.transcripts_read for each in found),
        by=by,
        value=value,
        results=len(chosen) if by else sum(each.failed + each.worse for each in found),
        samples=tuple(copy_fields(BadSampleView, each, id=each.sample_id) for each in shown),
        start=start,
        next=end if end < len(chosen) else None,
        query=query,
        runs_query=urlencode(given),
        command=shlex.join(["assay", "export", "openai-sft", "samples.jsonl", "-o", "train.jsonl"]),
        formats=EXPORT_FORMATS,
    )


def _choose_runs(store: Store, request: Request) -> list[Run]:
    wanted = [each for each in request.query_params.getlist("run") if each]
    if len(wanted) > _NEWEST_RUNS:
        raise ConfigError(f"at most {_NEWEST_RUNS} runs can be read together, not {len(wanted)}")
    if wanted:
        return [find_run(store, each) for each in dict.fromkeys(wanted)]
    return [
        store.run(row.id)
        for row in store.runs(limit=_NEWEST_RUNS)
        if (row.totals.failed or row.totals.valid) and "training" not in row.spec.config
    ]


def _find_results(store: Store, run: Run) -> BadResults:
    row = run.row()
    return _BAD_RESULTS.get(
        build_run_key(store, row),
        lambda: find_bad_results(run, read_summary(run)),
        results=1 + row.totals.recorded,
        cost=min(1 + row.totals.recorded, MAX_RESULTS_GROUPED),
    )


def _read_chosen_group(request: Request) -> tuple[GroupedBy | None, str | None]:
    by = cast(GroupedBy | None, read_choice(request, "by", get_args(GroupedBy)))
    return by, read_parameter(request, "value") if by else None


def _merge_groups(found: Sequence[BadResults]) -> list[BadGroup]:
    merged: dict[tuple[GroupedBy, str], BadGroup] = {}
    for results in found:
        for key, group in results.groups.items():
            # The same failure in several runs is one group.
            merged.setdefault(key, BadGroup(*key)).samples.extend(group.samples)
    return sorted(merged.values(), key=lambda group: (-len(group.samples), group.value))


def _select_samples(
    found: Sequence[BadResults],
    groups: Sequence[BadGroup],
    by: GroupedBy | None,
    value: str | None,
) -> list[BadSample]:
    if by is None:
        return [sample for results in found for sample in results.samples]
    for group in groups:
        if (group.by, group.value) == (by, value):
            return group.samples
    # A run has changed since the page with the link was shown.
    raise HTTPException(404, "no result belongs to this group any more")


def _find_common_reason(group: BadGroup) -> str | None:
    """Return the reason that all samples of a group share word for word, if there is one."""
    first = group.samples[0]
    if group.by in ("metric", "tool") or not first.reason:
        return None
    if any(sample.reason != first.reason for sample in group.samples):
        return None
    return first.reason if first.failed is None else f"{first.failed}: {first.reason}"


def _read_chosen(store: Store, request: Request) -> Iterator[Sample]:
    """Yield the whole samples of a request, one at a time."""
    runs = _choose_runs(store, request)
    found = [_find_results(store, run) for run in runs]
    by, value = _read_chosen_group(request)
    chosen = _select_samples(found, _merge_groups(found) if by else [], by, value)
    by_id = {run.id: run for run in runs}

    # A generator inside: a bad request is refused before the download begins.
    def read_all() -> Iterator[Sample]:
        for sample in chosen:
            for _, body in read_bodies(by_id[sample.run], [sample]):
                yield body

    return read_all()


def _send_dataset(request: Request) -> Response:
    """Send the dataset rows of the chosen samples: what `assay eval` takes as a dataset."""
    samples = _read_chosen(find_context(request).store, request)

    def write_rows() -> Iterator[str]:
        seen: set[str] = set()
        for sample in samples:
            # Repeats, and other runs of the same dataset, have the same row.
            if sample.id not in seen:
                seen.add(sample.id)
                yield f"{json.dumps(build_dataset_row(sample), ensure_ascii=True)}\n"

    return _send_lines(write_rows(), "failures.jsonl")


def _send_samples(request: Request) -> Response:
    """Send the chosen samples whole: what `assay export` and every other command reads."""
    samples = _read_chosen(find_context(request).store, request)
    return _send_lines((f"{sample.to_json()}\n" for sample in samples), "samples.jsonl")


def build_dataset_row(sample: Sample) -> dict[str, Any]:
    """Return the dataset row of a sample, with its id, so that runs can be paired later."""
    if sample.input:
        return {"id": sample.id, **sample.input}
    plain = sample.to_dict()
    return {key: plain[key] for key in ("id", "prompt", "ground_truth") if key in plain}


def _send_lines(lines: Iterator[str], name: str) -> Response:
    return StreamingResponse(
        lines,
        media_type="application/x-ndjson",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _send_export(request: Request) -> Response:
    """Send the chosen samples in one of the export formats."""
    name = read_choice(request, "format", EXPORT_FORMATS) or "sample"
    samples = _read_chosen(find_context(request).store, request)
    folder = TemporaryDirectory(prefix="assay-export-")
    delete: Callable[[], None] = folder.cleanup
    try:
        target = Path(folder.name) / f"{name}.jsonl"
        # All of them: bad results are what was asked for.
        report = export_samples(samples, target, name, selection=Selection(valid_only=False))
        if not report.rows:
            reasons = ", ".join(f"{count} {why}" for why, count in report.left_out.most_common(3))
            raise ConfigError(
                f"none of these samples can be written as {name}: {reasons or 'there are none'}",
                hint="download the samples themselves, or choose another format",
            )
    # The response deletes the folder after sending it. Without a response nothing else does.
    except BaseException:
        delete()
        raise
    return FileResponse(
        target,
        media_type="application/x-ndjson",
        filename=target.name,
        background=BackgroundTask(delete),
    )


ROUTES = [
    *build_page_routes("/failures", "failures.html", read_failures, section="failures"),
    Route("/failures/dataset.jsonl", _send_dataset, methods=["GET"]),
    Route("/failures/samples.jsonl", _send_samples, methods=["GET"]),
    Route("/failures/export", _send_export, methods=["GET"]),
]
