"""`assay show`: a run and its worst samples, or the transcript of one sample."""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict

from assay.errors import ConfigError
from assay.stats import summarise_recorded
from assay.store import ResultRow, Run

from .arguments import add_count, add_flag, add_report_options
from .output import (
    Line,
    format_field,
    format_lines,
    print_json,
    render,
    sanitize_to_line,
)
from .run_summary import (
    describe_replayed,
    format_failures,
    format_replay,
    format_retries,
    format_score,
)
from .runs import run_to_dict
from .show_training import format_training, read_training, training_to_dict
from .store_option import add_store_option, build_next_command, open_store
from .worst_samples import ListedSample, find_body, format_samples, list_worst

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
    row = run.row()
    summary = summarise_recorded(run.results(), run.spec.config)
    retried, training = run.read_retries(), read_training(run)
    failures, failed = run.failure_groups(), sum(summary.failed.values())
    entries = list_worst(run, limit=args.limit, failed_only=args.failed)
    if args.json:
        print_json(
            {
                "run": run_to_dict(row),
                "summary": json.loads(summary.model_dump_json()),
                "retried": asdict(retried),
                "replay": describe_replayed(run.spec.config),
                "failures": [asdict(group) for group in failures],
                "training": None if training is None else training_to_dict(training),
                "samples": [entry.plain() for entry in entries],
            }
        )
        return
    fields = [
        format_field("run", run.id),
        format_field("name", run.spec.name, columns=66),
        format_field("status", row.status),
        format_field("dataset", run.spec.dataset, columns=66)
        + (" (changed since the run started)" if row.dataset_changed else ""),
        *format_replay(run.spec.config),
    ]
    listed = [
        *format_failures(failures, failed),
        *_format_worst(entries, failed if args.failed else summary.results, args),
    ]
    following = []
    if entries:
        command = build_next_command(args, "show", args.run, entries[0].row.sample_id)
        following = ["next:", f"  {command}"]
    # The model changes with every step, so a mean over all steps would be meaningless.
    if training is not None:
        lines: list[Line] = [*fields, *format_training(training), *format_retries(retried), *listed]
    else:
        threshold = entries[0].threshold if entries else None
        details = [*summary.detail_lines(), *format_retries(retried)]
        score = [*format_score(summary, threshold), *summary.count_lines()]
        # Runs of ingested sessions have no scores: what they are comes first.
        head = [*fields, *score] if summary.score.mean is None else [*score, *fields]
        lines = [*head, *listed, *(details if entries else [])]
    print(format_lines([*lines, *following], sys.stdout))


def _format_worst(entries: list[ListedSample], total: int, args: Namespace) -> Iterator[Line]:
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
