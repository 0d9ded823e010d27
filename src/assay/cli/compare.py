"""`assay compare`: improvements and regressions between two runs, with their significance."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from assay.stats import Comparison, Conclusion, Pair, format_number
from assay.stats import compare as compare_results
from assay.store import Run
from assay.types import Sample

from .arguments import add_count, add_flag, add_report_options
from .config_difference import find_config_difference
from .exit_status import EXIT_FAIL, EXIT_INCONCLUSIVE, EXIT_PASS
from .output import Line, Styled, format_field, measure_line_width, print_report
from .store_option import add_store_option, open_store
from .worst_samples import find_reason, format_name, format_named, measure_id_width

_CONCLUSION_STYLES = {
    Conclusion.BETTER: "green",
    Conclusion.WORSE: "red",
    Conclusion.NO_DIFFERENCE_SHOWN: "bold",
    Conclusion.TOO_FEW: "yellow",
}
_ANSWER_FIELD_WIDTH = 12


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("a", metavar="A", help="baseline: run id, unique prefix, or `latest`")
    parser.add_argument("b", metavar="B", help="run to compare with it")
    add_count(parser, "--limit", "list N samples each", default=10)
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
        a, b = store.run(args.a), store.run(args.b)
        comparison = compare_results(a, b, limit=args.limit)
        changed = (*comparison.regressions, *comparison.improvements)
        answers = {pair.sample_id: _read_answers(a, b, pair) for pair in changed}
    differing = find_config_difference(a, b)
    plain = {
        "a": a.id,
        "b": b.id,
        **differing.plain(),
        "conclusion": str(comparison.conclusion),
        **json.loads(comparison.model_dump_json()),
        "answers": {sample_id: asdict(each) for sample_id, each in answers.items()},
    }
    conclusion, *headline = comparison.headline()
    lines: list[Line] = [
        Styled(conclusion, _CONCLUSION_STYLES[comparison.conclusion]),
        *headline,
        format_field("first run", a.id),
        format_field("second run", b.id),
        *differing.lines(),
    ]
    print_report(args, [*lines, *_format_changes(comparison, answers)], plain)
    # Without the option the command only reports: a script may compare runs that differ on purpose.
    if not args.fail_on_regression:
        return EXIT_PASS
    statuses = {Conclusion.WORSE: EXIT_FAIL, Conclusion.TOO_FEW: EXIT_INCONCLUSIVE}
    return statuses.get(comparison.conclusion, EXIT_PASS)


@dataclass(frozen=True)
class ChangedAnswers:
    """The answers of both runs to one sample, and the reason of the worse one's score."""

    old: str
    new: str
    expected: str
    reason: str


def _read_answers(a: Run, b: Run, pair: Pair) -> ChangedAnswers:
    is_worse = pair.difference < 0
    # Of several repeats those that show the change best.
    old = _choose_result(a, pair.sample_id, highest=is_worse)
    new = _choose_result(b, pair.sample_id, highest=not is_worse)
    return ChangedAnswers(
        old=old.response,
        new=new.response,
        expected="" if new.ground_truth is None else str(new.ground_truth),
        reason=find_reason(new if is_worse else old),
    )


def _choose_result(run: Run, sample_id: str, *, highest: bool) -> Sample:
    choose = max if highest else min
    # Every sample of a pair has a valid score.
    samples = run.samples(sample_id=sample_id, valid=True)
    return choose(samples, key=lambda sample: sample.reward or 0.0)


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
            "old answer": found.old,
            "new answer": found.new,
            "expected": found.expected,
            "reason": found.reason,
        }
        yield from format_named(named.items(), indent=4, field_width=_ANSWER_FIELD_WIDTH)
