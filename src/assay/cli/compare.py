"""`assay compare`: improvements and regressions between two runs, with their significance."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from itertools import takewhile

from rich.cells import cell_len, set_cell_size

from assay.runner import (
    ChangedAnswers,
    ConfigDifference,
    RunComparison,
    build_run_comparison,
    build_run_label,
)
from assay.stats import Comparison, Conclusion, Pair, format_number
from assay.store import RunRow, SampleLabel

from .arguments import add_count, add_flag, add_report_options
from .exit_status import EXIT_FAIL, EXIT_INCONCLUSIVE, EXIT_PASS
from .output import (
    LABEL_WIDTH,
    Line,
    Styled,
    cut,
    format_field,
    measure_line_width,
    measure_text_width,
    print_report,
    sanitize_text,
    wrap_beside,
)
from .resume import build_next_command
from .store_option import add_store_option, open_store
from .worst_samples import format_name, format_named, measure_id_width

_CONCLUSION_STYLES = {
    Conclusion.BETTER: "green",
    Conclusion.WORSE: "red",
    Conclusion.NO_DIFFERENCE_SHOWN: "bold",
    Conclusion.TOO_FEW: "yellow",
}
_ANSWER_FIELD_WIDTH = 12
# A prompt may be a book; --json has all of it.
_MAX_DIFF_LINES = 40
_MAX_SETTING_LINES = 10
_MAX_LINES_OF_SETTING = 3
_DIFF_STYLES = {"-": "red", "+": "green", "@": "dim"}


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("a", metavar="A", help="baseline: run id, unique prefix, or `latest`")
    parser.add_argument("b", metavar="B", help="run to compare with it")
    add_count(parser, "--limit", "list N samples each", default=5)
    add_flag(
        parser,
        "--fail-on-regression",
        "exit 1 when B is worse, 3 when the samples are too few to decide",
    )
    add_store_option(parser)
    add_report_options(parser)


def main(args: Namespace) -> int:
    """Exit status 0; with `--fail-on-regression` 1 when worse, 3 when inconclusive."""
    with open_store(args) as store:
        found = build_run_comparison(store.run(args.a), store.run(args.b), limit=args.limit)
    comparison = found.comparison
    conclusion, *headline = comparison.headline(width=measure_text_width())
    lines: list[Line] = [
        Styled(conclusion, _CONCLUSION_STYLES[comparison.conclusion]),
        *headline,
        format_field("first run", _format_run_name(found.a)),
        format_field("second run", _format_run_name(found.b)),
        *format_config_difference(found.differing),
    ]
    lines += [*_format_changes(comparison, found.answers), *_format_next(found, args)]
    print_report(args, lines, found.plain())
    # Without the option the command only reports: a script may compare runs that differ on purpose.
    if not args.fail_on_regression:
        return EXIT_PASS
    statuses = {Conclusion.WORSE: EXIT_FAIL, Conclusion.TOO_FEW: EXIT_INCONCLUSIVE}
    return statuses.get(comparison.conclusion, EXIT_PASS)


def _format_next(found: RunComparison, args: Namespace) -> Iterator[Line]:
    """Yield the commands that show the transcripts of the sample that changed most."""
    changed = (*found.comparison.regressions, *found.comparison.improvements)
    if not changed:
        return
    sample_id = changed[0].sample_id
    answers = found.answers[sample_id]
    yield "next:"
    # By the ids: what was typed, a prefix or `latest`, names another run soon.
    for run, repeat in ((found.a, answers.old_repeat), (found.b, answers.new_repeat)):
        name = sample_id if not repeat else f"{sample_id}#{repeat}"
        yield f"  {build_next_command(args, 'show', run.id, name)}"


def _format_run_name(row: RunRow) -> str:
    label = build_run_label(row)
    # Most ids begin with the name.
    if not label or row.id.startswith(label):
        return row.id
    return f"{row.id}  {cut(label, max(measure_line_width() - LABEL_WIDTH - len(row.id) - 2, 1))}"


def format_config_difference(found: ConfigDifference) -> Iterator[Line]:
    """Yield the differences between configurations as lines of a report."""
    names = [*found.keys, *(["dataset"] if found.dataset is not None else [])]
    yield format_field("differ in", ", ".join(names) or "nothing of their configurations")
    width = measure_line_width()
    for line in found.settings[:_MAX_SETTING_LINES]:
        yield from wrap_beside("  ", line, max_lines=_MAX_LINES_OF_SETTING)
    if (more := len(found.settings) - _MAX_SETTING_LINES) > 0:
        yield f"  and {more} more settings"
    if found.dataset is not None:
        yield f"  {cut(f'dataset: {found.dataset}', width - 2)}"
    if found.prompt:
        yield "  prompt:"
    for line in _shift_to_changes(found.prompt[:_MAX_DIFF_LINES], width - 4):
        # Not `cut`, which would remove the indentation of the prompt.
        text = sanitize_text(line)
        if cell_len(text) > width - 4:
            text = f"{set_cell_size(text, width - 5)}…"
        style = _DIFF_STYLES.get(line[:1])
        yield f"    {text}" if style is None else ("    ", Styled(text, style))
    if (more := len(found.prompt) - _MAX_DIFF_LINES) > 0:
        yield f"    and {more} more lines"


def _shift_to_changes(diff: Sequence[str], room: int) -> Iterator[str]:
    """Yield the lines of a diff; a long line that is replaced begins shortly before its change."""
    place = 0
    while place < len(diff):
        rest = diff[place:]
        removed = list(takewhile(lambda line: line.startswith("-"), rest))
        added = list(takewhile(lambda line: line.startswith("+"), rest[len(removed) :]))
        if not removed or len(removed) != len(added):
            # At least one line: the next block may begin right behind it.
            taken = max(len(removed) + len(added), 1)
            yield from rest[:taken]
            place += taken
            continue
        pairs = list(zip(removed, added, strict=True))
        starts = [_count_shared(old[1:], new[1:]) - room // 4 for old, new in pairs]
        for lines in (removed, added):
            for line, start in zip(lines, starts, strict=True):
                is_visible = start < room // 2 or len(line) <= room
                yield line if is_visible else f"{line[0]}…{line[1 + start :]}"
        place += 2 * len(pairs)


def _count_shared(old: str, new: str) -> int:
    both = zip(old, new, strict=False)
    return sum(1 for _ in takewhile(lambda characters: characters[0] == characters[1], both))


def _format_changes(comparison: Comparison, answers: dict[str, ChangedAnswers]) -> Iterator[Line]:
    changes = {
        "regressions": (comparison.regressions, comparison.losses, "red"),
        "improvements": (comparison.improvements, comparison.wins, "green"),
    }
    for title, (pairs, count, style) in changes.items():
        if count:
            yield f"{title} ({count})"
            yield from _format_changed(pairs, comparison.labels, answers, style)
            if len(pairs) < count:
                yield f"  and {count - len(pairs)} more; pass --limit to list more"


def _format_changed(
    pairs: Sequence[Pair], labels: dict[str, str], answers: dict[str, ChangedAnswers], style: str
) -> Iterator[Line]:
    id_width = measure_id_width(pair.sample_id for pair in pairs)
    changes = [f"{format_number(pair.a)} -> {format_number(pair.b)}" for pair in pairs]
    width = max(map(len, changes), default=0)
    room = measure_line_width() - width - 4
    for pair, change in zip(pairs, changes, strict=True):
        name = format_name(labels.get(pair.sample_id, ""), pair.sample_id, room, id_width)
        yield ("  ", Styled(f"{change:<{width}}", style), f"  {name}")
        found = answers[pair.sample_id]
        named = {
            "repeats": _format_repeats(found),
            "old answer": found.old,
            "new answer": found.new,
            "expected": found.expected,
            "reason": found.reason,
            "old label": _format_label(found.old_label),
            "new label": _format_label(found.new_label),
        }
        yield from format_named(named.items(), indent=4, field_width=_ANSWER_FIELD_WIDTH)


def _format_repeats(found: ChangedAnswers) -> str:
    # The scores above are the means of the repeats, which say nothing about the answers below.
    if max(len(found.old_scores), len(found.new_scores)) < 2:
        return ""
    sides = (
        ", ".join(f"{score:.3g}" for score in scores)
        for scores in (found.old_scores, found.new_scores)
    )
    return " -> ".join(sides)


def _format_label(label: SampleLabel | None) -> str:
    """Return a person's label, such as `fail, by Ann: too short`; "" without one."""
    if label is None:
        return ""
    score = None if label.score is None else f"score {format_number(label.score)}"
    parts = (label.verdict, score, "corrected answer" if label.answer else None)
    words = ", ".join(filter(None, (*parts, f"by {label.author}" if label.author else None)))
    return f"{words}: {label.note}" if label.note else words
