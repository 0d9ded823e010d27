"""`assay show`: a run and its worst samples, or the transcript of one sample."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain

from assay.errors import ConfigError
from assay.runner import ListedSample, build_run_report, find_body
from assay.store import ResultRow, Run

from .arguments import add_count, add_flag, add_report_options
from .output import (
    LABEL_WIDTH,
    Line,
    format_field,
    measure_line_width,
    measure_text_width,
    print_json,
    print_lines,
    render,
    sanitize_to_line,
)
from .resume import build_next_command
from .run_summary import (
    describe_status,
    format_failures,
    format_reasons,
    format_replay,
    format_retries,
    format_score_lines,
)
from .show_training import format_training
from .store_option import add_store_option, open_store
from .worst_samples import format_samples

_MAX_LISTED_IDS = 5


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        default="latest",
        help="run id, unique prefix, or `latest` (default: latest)",
    )
    parser.add_argument(
        "sample",
        metavar="SAMPLE",
        nargs="?",
        help="sample id or unique prefix: show its transcript; ID#2 is its rollout number 2",
    )
    add_count(parser, "--limit", "list N samples", default=10)
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
    report = build_run_report(run, limit=args.limit, failed_only=args.failed)
    if args.json:
        print_json(report.plain())
        return
    row, summary, entries = report.row, report.summary, report.samples
    room = measure_line_width() - LABEL_WIDTH
    changed = " (changed since the run started)" if row.dataset_changed else ""
    fields = [
        format_field("run", run.id),
        format_field("name", run.spec.name, columns=room),
        format_field("status", describe_status(row)),
        format_field("dataset", run.spec.dataset, columns=room - len(changed)) + changed,
        *([format_field("labels", report.labels.text)] if report.labels.total else []),
        *format_replay(run.spec.config),
    ]
    retries = format_retries(report.retried)

    def show(name: str) -> str:
        # By the id: what was typed, a prefix or `latest`, names another run soon.
        return build_next_command(args, "show", run.id, name)

    # So many that the reasons of both kinds are on the first screen.
    both = () if args.failed else (report.low_scores, report.not_judged)
    reasons = [each for each in both if each.groups]
    max_groups = max(4 // (len(reasons) + bool(report.failures) or 1), 1)
    listed = [
        *format_failures(report.failures[:max_groups], report.failed, show=show),
        *chain.from_iterable(
            format_reasons(each, show=show, max_groups=max_groups) for each in reasons
        ),
        *_format_worst(entries, report.failed if args.failed else summary.results, args),
    ]
    following = []
    if entries:
        following = ["next:", f"  {show(entries[0].name)}"]
    # The model changes with every step, so a mean over all steps would be meaningless.
    if report.training is not None:
        lines: list[Line] = [*fields, *format_training(report.training), *retries, *listed]
    else:
        width = measure_text_width()
        counts = summary.count_lines(width=width)
        score = [*format_score_lines(summary, report.threshold), *counts]
        # Runs of ingested sessions have no scores: what they are comes first.
        head = [*fields, *score] if summary.score.mean is None else [*score, *fields]
        details = [*summary.detail_lines(width=width), *retries] if entries else []
        lines = [*head, *listed, *details]
    print_lines([*lines, *following])


def _format_worst(entries: Sequence[ListedSample], total: int, args: Namespace) -> Iterator[Line]:
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
    yield from format_samples(entries)
    if len(entries) < total:
        yield f"  and {total - len(entries)} more; pass --limit to list more"


def _show_sample(run: Run, args: Namespace) -> None:
    wanted, repeat = (args.sample, args.repeat)
    if repeat is None:
        wanted, repeat = _split_repeat(run, args.sample)
    rows = find_rows(run, wanted, hint=f"`{build_next_command(args, 'show', run.id)}` lists them")
    row = _find_repeat(rows, repeat)
    sample = find_body(run, row)
    label = run.find_labels([row.key]).get(row.key)
    if args.json:
        plain = None if label is None else asdict(label)
        body = json.loads(sample.to_json())
        print_json({"run": run.id, "repeat": row.repeat, "sample": body, "label": plain})
        return
    from .sample_transcript import Transcript

    for part in Transcript(sample, row.repeat, len(rows), label, full=args.full).parts():
        render(part)


def _split_repeat(run: Run, name: str) -> tuple[str, int | None]:
    # `france#2` is a rollout of `france`, unless it is the id of a sample itself.
    sample_id, _, repeat = name.rpartition("#")
    if not (sample_id and repeat.isdecimal() and repeat.isascii()):
        return name, None
    is_id = next(run.results(sample_id=name), None) is not None
    known = next(run.results(sample_id=sample_id), None) is not None
    return (name, None) if is_id or not known else (sample_id, int(repeat))


def find_rows(run: Run, wanted: str, *, hint: str) -> list[ResultRow]:
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
        raise ConfigError(f"sample {wanted!r} does not exist", where=where, hint=hint)
    named = ", ".join(map(repr, list(found)[:_MAX_LISTED_IDS])) + (
        ", …" if len(found) > _MAX_LISTED_IDS else ""
    )
    raise ConfigError(f"the prefix {wanted!r} matches several samples: {named}", where=where)


def _find_repeat(rows: list[ResultRow], repeat: int | None) -> ResultRow:
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
