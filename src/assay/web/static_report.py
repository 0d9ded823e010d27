"""Runs, samples and their comparison as one HTML file that opens from disk.

The file has everything in it and requests nothing. Its policy allows the styles and the script that
were written into it, by their hashes, and nothing else.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from assay import __version__
from assay.errors import ConfigError
from assay.runner import RunReport, build_run_report
from assay.stats import find_score_range
from assay.store import Run, Store, TableQuery, now
from assay.types import Sample, check_file_target, reaches_threshold, write_private

from .charts import draw_element
from .compare_page import MAX_RUNS, CompareView, build_comparison, find_commit
from .failure_groups import read_table_rows
from .render import build_templates
from .run_page import find_marks, grade_score, is_low_good
from .runs_page import find_agent_name
from .static_files import read_static_files
from .transcript_pair_page import format_turn

MAX_REPORT_BYTES = 2_000_000
"""A report stays below this size: samples and transcripts beyond it are left out, and counted."""

MAX_REPORT_RUNS = 50
_COMPARED_SAMPLES = 40
# Of the size, for the lines of samples; transcripts share the rest.
_SHARE_OF_LINES = 0.55
_LINE_MARKUP_BYTES = 420
# The end of a line without a transcript, and the notes of a run.
_LINE_END_BYTES = 80
_NOTES_BYTES = 1000
_TEXTS_OF_A_LINE = 4
_MIN_EXCERPT_CHARS, _MAX_EXCERPT_CHARS = 40, 240
_MAX_TURN_CHARS = 4_000
_MAX_TURNS = 60
_FAILED, _NOT_FAILED = "not failed = unknown", "failed = unknown"


@dataclass(frozen=True)
class ReportTurn:
    """One turn of a transcript, cut with a note."""

    role: str
    text: str
    left_out: int


@dataclass(frozen=True)
class ReportSample:
    """One sample of the report."""

    line: Markup
    transcript: Markup | None
    """None where the size of the file left no room for it."""


@dataclass(frozen=True)
class RunSection:
    """One run of the report."""

    id: str
    name: str
    agent: str | None
    commit: str | None
    report: RunReport
    scale: tuple[float, float]
    passes: bool
    """Whether the mean reaches the threshold; False without one."""

    samples: tuple[ReportSample, ...] = ()
    samples_left_out: int = 0
    transcripts_left_out: int = 0


def write_static_report(
    store: Store,
    run_ids: Sequence[str],
    target: Path,
    *,
    compared: bool = True,
    force: bool = False,
) -> int:
    """Write the report of runs to a new file, and return its size in bytes.

    With `compared`, two to six runs are also compared with the first. Raises `ConfigError` if the
    file exists, unless `force` is True.
    """
    check_report_target(target, force=force)
    text = render_static_report(store, run_ids, compared=compared)
    try:
        write_private(target, text)
    except OSError as error:
        raise ConfigError(
            f"the file cannot be written: {error.strerror}",
            where=str(target),
            hint="check that the folder is writable",
        ) from None
    return len(text.encode())


def check_report_target(target: Path, *, force: bool) -> None:
    """Raise `ConfigError` when a report cannot or must not be written to this file."""
    check_file_target(target)
    if target.exists() and not force:
        raise ConfigError(f"{target} already exists", hint="pass --force to overwrite it")
    if not target.parent.is_dir():
        raise ConfigError(f"the folder {target.parent} does not exist")


def render_static_report(store: Store, run_ids: Sequence[str], *, compared: bool = True) -> str:
    """Return the report of runs as HTML."""
    runs = [store.run(each) for each in dict.fromkeys(run_ids)]
    if not 1 <= len(runs) <= MAX_REPORT_RUNS:
        raise ConfigError(f"a report has 1 to {MAX_REPORT_RUNS} runs, not {len(runs)}")
    templates = build_templates()
    comparison = None
    if compared and 2 <= len(runs) <= MAX_RUNS:
        comparison = build_comparison(store, runs, limit=_COMPARED_SAMPLES)
    # Rendered without samples first: they get the room that is left.
    empty = [_describe_section(run) for run in runs]
    taken = len(_render(templates, empty, comparison).encode()) + _NOTES_BYTES * len(runs)
    room = MAX_REPORT_BYTES - taken
    budget = _Budget(room, lines=sum(run.totals.recorded + run.totals.failed for run in runs))
    filled = [
        _fill_section(templates, run, each, budget) for run, each in zip(runs, empty, strict=True)
    ]
    return _render(templates, filled, comparison)


class _Budget:
    """The bytes that are left for lines and for transcripts."""

    def __init__(self, room: int, *, lines: int) -> None:
        self.lines = int(room * _SHARE_OF_LINES)
        self.transcripts = room - self.lines
        texts = (self.lines / max(lines, 1) - _LINE_MARKUP_BYTES) / _TEXTS_OF_A_LINE
        self.excerpt_chars = int(min(max(texts, _MIN_EXCERPT_CHARS), _MAX_EXCERPT_CHARS))


def _describe_section(run: Run) -> RunSection:
    report = build_run_report(run, limit=1)
    mean, threshold = report.summary.score.interval.mean, report.threshold
    return RunSection(
        id=run.id,
        name=run.spec.name,
        agent=find_agent_name(run.spec.config),
        commit=find_commit(run.spec.config),
        report=report,
        scale=find_score_range(report.summary),
        passes=mean is not None
        and threshold is not None
        and reaches_threshold(mean, threshold, low_is_good=is_low_good(run)),
    )


def _fill_section(
    templates: Environment, run: Run, section: RunSection, budget: _Budget
) -> RunSection:
    total = run.totals.recorded + run.totals.failed
    template = templates.get_template("_report_sample.html").module
    marks, low_is_good = find_marks(run, section.report.summary), is_low_good(run)
    samples: list[ReportSample] = []
    without = 0
    worst_first = TableQuery(filter=_NOT_FAILED, sort="score", descending=low_is_good)
    for row in read_table_rows(run, TableQuery(filter=_FAILED), worst_first):
        anchor = f"s-{hashlib.sha256(f'{run.id}/{row.key}'.encode()).hexdigest()[:12]}"
        most = budget.excerpt_chars
        grade = grade_score(row.score, marks, low_is_good=low_is_good)
        line = template.line(row, anchor, most, grade)  # type: ignore[attr-defined]  # a macro
        budget.lines -= len(line.encode()) + _LINE_END_BYTES
        if budget.lines < 0:
            break
        transcript: Markup | None = None
        if budget.transcripts > 0:
            found = run.find_result(row.key)
            body = None if found is None else found[1]
            turns = [] if body is None else list(_cut_turns(body))
            more = 0 if body is None else len(body.messages) - len(turns)
            text = template.transcript(row, turns, more)  # type: ignore[attr-defined]  # a macro
            if len(text.encode()) <= budget.transcripts:
                transcript = text
                budget.transcripts -= len(text.encode())
        without += transcript is None
        samples.append(ReportSample(line, transcript))
    return RunSection(
        **{
            **vars(section),
            "samples": tuple(samples),
            "samples_left_out": max(total - len(samples), 0),
            "transcripts_left_out": without,
        }
    )


def _cut_turns(sample: Sample) -> Iterator[ReportTurn]:
    for message in sample.messages[:_MAX_TURNS]:
        text = format_turn(message)
        yield ReportTurn(message.role, text[:_MAX_TURN_CHARS], max(len(text) - _MAX_TURN_CHARS, 0))


def _render(
    templates: Environment, sections: Sequence[RunSection], comparison: CompareView | None
) -> str:
    files = read_static_files()
    style = files["view.css"].decode()
    script = f"{files['keys.js'].decode()}\n{files['report.js'].decode()}"
    policy = (
        f"default-src 'none'; style-src '{_hash_source(style)}'; "
        f"script-src '{_hash_source(script)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return templates.get_template("report.html").render(
        policy=policy,
        # Files of the package, not data: neither contains the end of its own element.
        style=draw_element("style", Markup(style)),
        script=draw_element("script", Markup(script), type="module"),
        sections=sections,
        view=comparison,
        max_bytes=MAX_REPORT_BYTES,
        created_at=now(),
        version=__version__,
    )


def _hash_source(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
