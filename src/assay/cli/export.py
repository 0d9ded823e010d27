"""`assay export`: samples as files for trainers and other tools."""

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from math import isfinite
from pathlib import Path

from assay.datasets import load_samples
from assay.errors import ConfigError
from assay.export import (
    FAILED,
    FORMATS,
    NOT_JUDGED,
    TOO_LOW,
    EvaluationTexts,
    ExportOptions,
    ExportReport,
    Lengths,
    Selection,
    Split,
    export_samples,
    format_named,
)
from assay.stats import format_plural

from .eval_overrides import count
from .exit_status import EXIT_FAIL, EXIT_INCONCLUSIVE, EXIT_PASS
from .export_input import ExportInput, open_export_input
from .export_tokens import Tokens
from .store_option import add_store_option
from .terminal import cut, print_json, sanitize_lines

_EXPORT_LABEL_WIDTH = 14
_EXPORT_LINE_WIDTH = 80
_OVERLAP_WORDS = 13
_MAX_LISTED_EXAMPLES = 5


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "format", metavar="FORMAT", choices=FORMATS, help=f"one of {', '.join(FORMATS)}"
    )
    parser.add_argument(
        "source",
        metavar="RUN|SUMMARY|FILE",
        help="a run's id, its beginning, or latest; a summary of pytest; a file of samples; "
        "a bundle",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="the file to write"
    )
    parser.add_argument("--force", action="store_true", help="overwrite the file if it is there")
    _add_selection_options(parser)
    _add_filter_options(parser)
    add_store_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def _add_selection_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--min-score",
        type=parse_finite_number,
        metavar="X",
        help="only samples that score X or more; of pairs, the better answer; "
        "for trl-kto, from where an answer is good",
    )
    valid = parser.add_mutually_exclusive_group()
    valid.add_argument(
        "--valid-only", action="store_true", help="only samples with a valid score (default)"
    )
    valid.add_argument(
        "--all", action="store_true", help="also samples without one, where the format holds them"
    )
    parser.add_argument(
        "--best-of-group", action="store_true", help="only the best answer to each input"
    )
    parser.add_argument(
        "--pairs",
        choices=["best-worst"],
        default="best-worst",
        help="which two answers to an input make a pair (default: best-worst)",
    )
    parser.add_argument(
        "--margin",
        type=parse_finite_number,
        default=0.0,
        metavar="X",
        help="how much better the chosen answer of a pair must be (default: at all)",
    )
    parser.add_argument(
        "--dedupe", action="store_true", help="each conversation once, whatever its ids and times"
    )
    parser.add_argument("--limit", type=count, metavar="N", help="write N rows at most")


def _add_filter_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--split",
        type=Split.parse,
        metavar="SHARES",
        help="two files, as 0.9, or three, as 0.8/0.1/0.1; a sample's id decides",
    )
    parser.add_argument(
        "--max-tokens", type=count, metavar="N", help="only samples of N tokens or fewer"
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FOLDER",
        help="counts tokens, and makes them for trl-sft-tokens where none are recorded "
        "(default: as the model calls recorded them)",
    )
    parser.add_argument(
        "--exclude-overlap",
        metavar="DATASET",
        help="leave out samples that repeat prompts or ground truths of this evaluation set",
    )
    parser.add_argument(
        "--overlap-words",
        type=count,
        default=_OVERLAP_WORDS,
        metavar="N",
        help=f"words in a row that count as repeated (default: {_OVERLAP_WORDS})",
    )


def main(args: Namespace) -> int:
    """Exit status: 0 written, 1 nothing to write, 3 written, but not all could be read."""
    format_named(args.format).check_target(args.output, args.format)
    selection = Selection(
        min_score=args.min_score,
        valid_only=not args.all,
        best_of_group=args.best_of_group,
        margin=args.margin,
        dedupe=args.dedupe,
        limit=args.limit,
    )
    tokens = _build_sample_tokenizer(args)
    with ExitStack() as stack:
        given = open_export_input(args, stack)
        _refuse_to_overwrite_inputs(args, given)
        options = ExportOptions(
            split=args.split,
            lengths=_build_length_limit(args),
            overlap=_load_overlap_texts(args),
            tokenise=tokens,
            force=args.force,
        )
        report = export_samples(
            given.samples, args.output, args.format, selection=selection, options=options
        )
    report.notes[:0] = [*given.notes, *(() if tokens is None else tokens.notes())]
    _print_export_report(args, given, report)
    # A row that could not be read might have been the one to write.
    if given.unread:
        return EXIT_INCONCLUSIVE
    return EXIT_PASS if report.rows else EXIT_FAIL


def parse_finite_number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise ArgumentTypeError(f"{text!r} is not a number")
    return value


def _build_length_limit(args: Namespace) -> Lengths | None:
    if args.max_tokens is None:
        if args.tokenizer is not None and args.format != "trl-sft-tokens":
            raise ConfigError(
                "--tokenizer has nothing to do",
                hint="it counts for --max-tokens, and makes tokens for trl-sft-tokens",
            )
        return None
    if args.tokenizer is None:
        return Lengths.recorded(args.max_tokens)
    return Lengths.from_tokenizer(args.max_tokens, args.tokenizer)


def _load_overlap_texts(args: Namespace) -> EvaluationTexts | None:
    if args.exclude_overlap is None:
        return None
    # A row that cannot be read could be the one that is repeated.
    evaluated = load_samples(args.exclude_overlap).with_repeats()
    return EvaluationTexts(evaluated, words=args.overlap_words)


def _build_sample_tokenizer(args: Namespace) -> Tokens | None:
    return Tokens(args.tokenizer) if args.format == "trl-sft-tokens" else None


def _refuse_to_overwrite_inputs(args: Namespace, given: ExportInput) -> None:
    outputs = [args.output] if args.split is None else args.split.files(args.output).values()
    for output in outputs:
        for read in given.files:
            if output.exists() and read.exists() and os.path.samefile(output, read):
                raise ConfigError("is what is read: it would be lost", where=f"-o {output}")


def _print_export_report(args: Namespace, given: ExportInput, report: ExportReport) -> None:
    """The result to stdout; what is not in it to stderr, where it is seen in a pipe as well."""
    if args.json:
        unread = {"count": given.unread, "problems": given.problems}
        print_json({"source": given.name, **report.json(), "not_read": unread})
        return
    result = [
        _format_export_line("source", cut(given.name, _EXPORT_LINE_WIDTH - _EXPORT_LABEL_WIDTH)),
        _format_export_line("samples", f"{report.read} read, {report.used} used"),
        *(
            _format_export_line("file", f"{file} ({report.format}, {format_plural(rows, 'row')})")
            for file, rows in report.files.items()
        ),
    ]
    print(sanitize_lines("\n".join(result)))
    if rest := list(_format_left_out(given, report)):
        # After what it explains, also where both go to the same place.
        sys.stdout.flush()
        print(sanitize_lines("\n".join(rest)), file=sys.stderr)


def _format_left_out(given: ExportInput, report: ExportReport) -> Iterator[str]:
    if given.stream is not None and given.unread:
        yield _format_export_line("not read", str(given.stream.skipped))
    yield from _format_counts("left out", report.left_out)
    told = [each for each in report.examples if each.detail][:_MAX_LISTED_EXAMPLES]
    for each in told:
        yield f"  {cut(each.sample, 40)}: {cut(each.detail, 4 * _EXPORT_LINE_WIDTH)}"
    yield from _format_counts("no place for", report.lost)
    for note in report.notes:
        yield _format_export_line("note", note)
    if not report.rows:
        yield f"nothing was written{_suggest_export_option(report)}"


def _format_counts(label: str, counts: Counter[str]) -> Iterator[str]:
    for place, (what, times) in enumerate(counts.most_common()):
        yield _format_export_line(
            "" if place else label, f"{times} {cut(what, 3 * _EXPORT_LINE_WIDTH)}"
        )


def _suggest_export_option(report: ExportReport) -> str:
    if not report.read:
        return ": there are no samples"
    if report.format == "trl-sft-tokens" and report.left_out.keys() - {NOT_JUDGED, FAILED, TOO_LOW}:
        return "; --tokenizer FOLDER makes tokens of the text where none are recorded"
    if NOT_JUDGED in report.left_out:
        return "; --all takes samples that were not judged, where the format can hold them"
    return ""


def _format_export_line(label: str, text: str) -> str:
    return f"{label:<{_EXPORT_LABEL_WIDTH}}{text}"
