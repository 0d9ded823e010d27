"""`assay show`: a run and its worst samples, or the transcript of one sample."""

import heapq
import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from assay.errors import ConfigError
from assay.stats import summarise_recorded
from assay.store import ResultRow, Run
from assay.types import Sample, build_label

from .arguments import add_count, add_flag, add_report_options
from .labels import SessionLabel, build_session_label
from .output import (
    cut,
    format_field,
    measure_line_width,
    pad,
    print_json,
    render,
    sanitize_lines,
    sanitize_to_line,
)
from .run_summary import format_failures, format_retries
from .runs import run_to_dict
from .show_training import format_training, read_training, training_to_dict
from .store_option import add_store_option, build_next_command, open_store

_SHOWN_ID_WIDTH = 26
_SCORE_WIDTH = 18
_SHOWN_PLACE_WIDTH = 40
# Longer ids leave no room for a label in 80 columns.
_MAX_SHOWN_ID_CHARS = 60
_SHOW_LINE_WIDTH = 80
_MAX_LISTED_IDS = 5


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="run id, unique prefix, or `latest`")
    parser.add_argument(
        "sample",
        metavar="SAMPLE",
        nargs="?",
        help="sample id or unique prefix: show its transcript; ID#2 is its rollout number 2",
    )
    add_count(parser, "--limit", "list N samples", default=20)
    add_flag(parser, "--failed", "list only samples that failed")
    parser.add_argument("--repeat", type=int, metavar="N", help="show rollout N of the sample")
    add_flag(parser, "--full", "show long texts in full")
    add_store_option(parser)
    add_report_options(parser)


def main(args: Namespace) -> int:
    """Print a run, or one of its samples. Exit status 0."""
    with open_store(args) as store:
        run = store.run(args.run)
        if args.sample is None:
            _show_run(run, args)
        else:
            _show_sample(run, args)
    return 0


def _show_run(run: Run, args: Namespace) -> None:
    row = run.row()
    summary = summarise_recorded(run.results(), run.spec.config)
    retried, training = run.read_retries(), read_training(run)
    failures, failed = run.failure_groups(), sum(summary.failed.values())
    listed = select_worst(run.results(), limit=args.limit, failed_only=args.failed)
    entries = [_ListedSample.of(each, find_body(run, each)) for each in listed]
    if args.json:
        print_json(
            {
                "run": run_to_dict(row),
                "summary": json.loads(summary.model_dump_json()),
                "retried": asdict(retried),
                "failures": [asdict(group) for group in failures],
                "training": None if training is None else training_to_dict(training),
                "samples": [entry.plain() for entry in entries],
            }
        )
        return
    total = failed if args.failed else summary.results
    lines = [
        format_field("run", run.id),
        format_field("name", run.spec.name, columns=66),
        format_field("status", row.status),
        format_field("dataset", run.spec.dataset, columns=66)
        + (" (changed since the run started)" if row.dataset_changed else ""),
        # The model changes with every step, so a mean over all steps would be meaningless.
        *(summary.lines() if training is None else format_training(training)),
        *format_retries(retried),
        *format_failures(failures, failed),
        *_format_sample_list(entries, total, args),
    ]
    print(sanitize_lines("\n".join(lines)))


def select_worst(rows: Iterator[ResultRow], *, limit: int, failed_only: bool) -> list[ResultRow]:
    """Select failed samples first, then the lowest scores, then samples that were not judged."""
    chosen = (row for row in rows if row.boundary is not None or not failed_only)
    # The position in the run breaks ties; rows themselves cannot be compared.
    numbered = ((_rank_result(row), index, row) for index, row in enumerate(chosen))
    return [row for _, _, row in heapq.nsmallest(limit, numbered, key=lambda each: each[:2])]


def _rank_result(row: ResultRow) -> tuple[int, float]:
    if row.boundary is not None:
        return (0, 0.0)
    return (1, row.score) if row.valid and row.score is not None else (2, 0.0)


@dataclass(frozen=True)
class _ListedSample:
    """A sample in the list: its row, the reason of its result, and its label."""

    row: ResultRow
    reason: str
    label: str
    session: SessionLabel | None

    @classmethod
    def of(cls, row: ResultRow, sample: Sample) -> "_ListedSample":
        return cls(row, find_reason(sample), build_label(sample), build_session_label(sample))

    def lines(self) -> Iterator[str]:
        """Yield one line for a sample, two for a session.

        The id of a session is not cut: it is meaningless to read, and there to be copied.
        """
        row = self.row
        name = row.sample_id if not row.repeat else f"{row.sample_id} #{row.repeat}"
        if self.session is None or len(name) > _MAX_SHOWN_ID_CHARS:
            room = measure_line_width() - _SHOWN_ID_WIDTH - _SCORE_WIDTH - 4
            words = cut(" | ".join(filter(None, (self.reason, self.label))), room)
            yield f"  {pad(name, _SHOWN_ID_WIDTH)} {pad(_format_score(row), _SCORE_WIDTH)} {words}"
            return
        yield f"  {cut(f'{name} {self.label}', _SHOW_LINE_WIDTH - 2)}"
        folder = cut(self.session.place, _SHOWN_PLACE_WIDTH)
        cells = filter(None, (self.session.date, folder, _format_score(row), self.reason))
        yield f"    {cut(' | '.join(cells), measure_line_width() - 4)}"

    def plain(self) -> dict[str, Any]:
        row = self.row
        return {
            "id": row.sample_id,
            "label": self.label,
            "repeat": row.repeat,
            "status": row.status,
            "score": row.score if row.valid else None,
            "failed": row.boundary,
            "reason": self.reason,
            **({} if self.session is None else asdict(self.session)),
        }


def _format_sample_list(entries: list[_ListedSample], total: int, args: Namespace) -> Iterator[str]:
    if not entries:
        yield "no sample failed" if args.failed else "the run has no samples yet"
        return
    sessions = all(entry.session is not None for entry in entries)
    judged = any(entry.row.valid or entry.row.boundary is not None for entry in entries)
    if args.failed:
        yield "failed samples"
    elif sessions:
        yield "sessions, worst first; times in UTC" if judged else "sessions; times in UTC"
    else:
        yield "samples, worst first"
    for entry in entries:
        yield from (line.rstrip() for line in entry.lines())
    if len(entries) < total:
        yield f"  and {total - len(entries)} more; pass --limit to list more"
    yield "next:"
    yield f"  {build_next_command(args, 'show', args.run, entries[0].row.sample_id)}"


def _format_score(row: ResultRow) -> str:
    if row.boundary is not None:
        return f"{row.boundary} failed"
    return f"{row.score:.3f}" if row.valid and row.score is not None else "not judged"


def find_reason(sample: Sample) -> str:
    """Return the failure, the scorer's reason or its error; "" if there is none."""
    if sample.failure is not None:
        return f"{sample.failure.kind}: {sample.failure.message}"
    return (sample.score.reason or sample.score.error or "") if sample.score is not None else ""


def find_body(run: Run, row: ResultRow) -> Sample:
    """Load the whole sample of a result row."""
    rows = run.results(sample_id=row.sample_id)
    # Rows and bodies are read in the same order, but a sample may be recorded in between.
    for each, sample in zip(rows, run.samples(sample_id=row.sample_id), strict=False):
        if each.key == row.key:
            return sample
    raise ConfigError(f"sample {row.sample_id!r} was deleted", where=f"run {run.id!r}")


def _show_sample(run: Run, args: Namespace) -> None:
    wanted, repeat = (args.sample, args.repeat)
    if repeat is None:
        wanted, repeat = _split_repeat(run, args.sample)
    rows = find_rows(run, wanted)
    row = _choose_repeat(rows, repeat)
    sample = find_body(run, row)
    if args.json:
        print_json({"run": run.id, "repeat": row.repeat, "sample": json.loads(sample.to_json())})
        return
    from .sample_transcript import Transcript

    for part in Transcript(sample, row.repeat, len(rows), full=args.full).parts():
        render(part)


def _split_repeat(run: Run, name: str) -> tuple[str, int | None]:
    # `france#2` is a rollout of `france`, unless it is the id of a sample itself.
    sample_id, _, repeat = name.rpartition("#")
    if not (sample_id and repeat.isdecimal() and repeat.isascii()):
        return name, None
    is_id = next(run.results(sample_id=name), None) is not None
    known = next(run.results(sample_id=sample_id), None) is not None
    return (name, None) if is_id or not known else (sample_id, int(repeat))


def find_rows(run: Run, wanted: str) -> list[ResultRow]:
    """Find the rows of a sample by its id or a unique prefix of it."""
    if exact := list(run.results(sample_id=wanted)):
        return exact
    found: dict[str, list[ResultRow]] = {}
    for row in run.results():
        if wanted and row.sample_id.startswith(wanted) and len(found) <= _MAX_LISTED_IDS:
            found.setdefault(row.sample_id, []).append(row)
    if len(found) == 1:
        return next(iter(found.values()))
    where = f"run {run.id!r}"
    if not found:
        hint = f"`assay show {run.id}` lists its samples"
        raise ConfigError(f"sample {wanted!r} does not exist", where=where, hint=hint)
    named = ", ".join(map(repr, list(found)[:_MAX_LISTED_IDS])) + (
        ", …" if len(found) > _MAX_LISTED_IDS else ""
    )
    raise ConfigError(f"the prefix {wanted!r} matches several samples: {named}", where=where)


def _choose_repeat(rows: list[ResultRow], repeat: int | None) -> ResultRow:
    if repeat is None:
        return rows[0]
    for row in rows:
        if row.repeat == repeat:
            return row
    known = ", ".join(str(row.repeat) for row in rows)
    raise ConfigError(
        f"repeat {repeat} does not exist; recorded are {known}",
        where=f"sample {sanitize_to_line(rows[0].sample_id)}",
    )
