"""`assay export`: samples as files for trainers and other tools."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from assay.datasets import load_samples
from assay.errors import ConfigError, TokenError
from assay.export import (
    FAILED,
    FORMATS,
    NOT_JUDGED,
    TOO_LOW,
    Correction,
    EvaluationTexts,
    ExportOptions,
    ExportReport,
    Lengths,
    Selection,
    Split,
    export_samples,
    find_format,
    load_tokenizer,
)
from assay.formats import find_tools
from assay.stats import format_plural
from assay.store import Run
from assay.types import Sample, ToolSpec

from .arguments import add_count, add_flag, add_report_options, parse_finite_number
from .exit_status import EXIT_FAIL, EXIT_INCONCLUSIVE, EXIT_PASS
from .output import cut, format_fields, print_message, print_report
from .sample_input import SampleInput, open_sample_input, refuse_to_overwrite
from .store_option import add_store_option

if TYPE_CHECKING:
    from assay.train import Retokenizer

# Three lines of a terminal, which is enough to recognise a reason.
_MAX_REASON_WIDTH = 240
# The n-gram length that GPT-3 and later models were decontaminated with.
_OVERLAP_WORDS = 13
_MAX_LISTED_EXAMPLES = 5


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "format",
        metavar="FORMAT",
        help=f"write one of {', '.join(FORMATS)}, or the format of a plug-in by its name",
    )
    parser.add_argument(
        "source",
        metavar="RUN|SUMMARY|FILE",
        help="run id, unique prefix, or `latest`; a pytest summary; a file of samples; a bundle",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="file to write"
    )
    add_flag(parser, "--force", "overwrite the file if it exists")
    parser.add_argument(
        "--min-score",
        type=parse_finite_number,
        metavar="X",
        help="export only samples that score X or more; of pairs, the better answer; "
        "trl-kto: minimum score labelled as desirable",
    )
    valid = parser.add_mutually_exclusive_group()
    valid.add_argument(
        "--valid-only", action="store_true", help="export only samples with a valid score (default)"
    )
    valid.add_argument(
        "--all",
        action="store_true",
        help="export also samples without a valid score, where the format supports them",
    )
    add_flag(parser, "--best-of-group", "export only the best answer to each input")
    parser.add_argument(
        "--pairs",
        choices=["best-worst"],
        default="best-worst",
        help="choose the two answers of a pair (default: best-worst)",
    )
    parser.add_argument(
        "--margin",
        type=parse_finite_number,
        default=0.0,
        metavar="X",
        help="minimum score difference of a pair (default: any)",
    )
    add_flag(parser, "--no-labels", "ignore answers that people corrected in `assay view`")
    add_flag(parser, "--dedupe", "export each conversation once, ignoring ids and times")
    add_count(parser, "--limit", "write at most N rows")
    parser.add_argument(
        "--split",
        type=Split.parse,
        metavar="SHARES",
        help="write two files, as 0.9, or three, as 0.8/0.1/0.1; a sample's id decides",
    )
    add_count(parser, "--max-tokens", "export only samples of N tokens or fewer")
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FOLDER",
        help="count tokens with this tokenizer, and tokenize for trl-sft-tokens where no tokens "
        "are recorded (default: recorded tokens only)",
    )
    parser.add_argument(
        "--exclude-overlap",
        metavar="DATASET",
        help="drop samples that repeat prompts or ground truths of this evaluation set",
    )
    add_count(
        parser,
        "--overlap-words",
        "consecutive words that count as an overlap",
        default=_OVERLAP_WORDS,
    )
    add_store_option(parser)
    add_report_options(parser)


def main(args: Namespace) -> int:
    """Exit status: 0 written, 1 nothing to write, 3 written without rows that cannot be read."""
    # Before anything is read: a wrong suffix must not cost minutes.
    form = find_format(args.format)
    form.check_target(args.output, args.format)
    selection = Selection(
        min_score=args.min_score,
        valid_only=not args.all,
        best_of_group=args.best_of_group,
        margin=args.margin,
        dedupe=args.dedupe,
        limit=args.limit,
    )
    tokens = Tokens(args.tokenizer) if form.takes == "tokens" else None
    lengths: Lengths | None = None
    if args.max_tokens is not None and args.tokenizer is not None:
        lengths = Lengths.from_tokenizer(args.max_tokens, args.tokenizer)
    elif args.max_tokens is not None:
        lengths = Lengths.from_usage(args.max_tokens)
    elif args.tokenizer is not None and tokens is None:
        raise ConfigError(
            "--tokenizer has no effect with this format",
            hint="it counts for --max-tokens, and tokenizes for trl-sft-tokens",
        )
    with ExitStack() as stack:
        given = open_sample_input(args, stack)
        targets = [args.output] if args.split is None else args.split.files(args.output).values()
        others = () if args.exclude_overlap is None else (Path(args.exclude_overlap),)
        for target in targets:
            refuse_to_overwrite(target, (*given.files, *others))
        overlap: EvaluationTexts | None = None
        if args.exclude_overlap is not None:
            # Bad rows are not skipped here: an unreadable row could be the one that is repeated.
            evaluated = load_samples(args.exclude_overlap).with_repeats()
            overlap = EvaluationTexts(evaluated, words=args.overlap_words)
        options = ExportOptions(
            split=args.split, lengths=lengths, overlap=overlap, tokenise=tokens, force=args.force
        )
        samples: Iterable[Sample | Correction] = given.samples
        if given.run is not None and not args.no_labels:
            samples = _iterate_corrected(given.run)
        report = export_samples(
            samples, args.output, args.format, selection=selection, options=options
        )
    if tokens is not None and tokens.made:
        text = f"{tokens.made} samples have no recorded tokens; their text was retokenized"
        report.notes.insert(0, text)
    if given.unfinished is not None:
        report.notes.insert(0, given.unfinished)
    _print_export_report(args, given, report)
    # Also when nothing was written: an unreadable row might have been the one to write.
    if given.unread:
        return EXIT_INCONCLUSIVE
    return EXIT_PASS if report.rows else EXIT_FAIL


def _iterate_corrected(run: Run) -> Iterator[Sample | Correction]:
    """Yield the samples of a run, with the answers that people corrected."""
    labels = {label.key: label for label in run.labels() if label.answer}
    if not labels:
        yield from run.samples()
        return
    for recorded in run.samples_with_keys():
        label = labels.get(recorded.key)
        if label is None or label.answer is None:
            yield recorded.sample
        else:
            # The score of a label may be about the recorded answer: a correction replaces that.
            yield Correction(recorded.sample, label.answer, author=label.author)


class Tokens:
    """Adds tokens and a loss mask to samples: recorded ones, else retokenized and counted."""

    def __init__(self, tokenizer: Path | None) -> None:
        self._retokenizer: Retokenizer | None = None
        if tokenizer is not None:
            # Imported on demand: recorded tokens need none of the packages behind it.
            from assay import train

            self._retokenizer = train.Retokenizer(load_tokenizer(tokenizer))
        self.made = 0

    def __call__(self, sample: Sample) -> list[Sample]:
        from assay.train import tokenize_sample

        try:
            return tokenize_sample(sample)
        except TokenError:
            if self._retokenizer is None:
                raise
        tools = [ToolSpec.model_validate(tool["function"]) for tool in find_tools(sample)]
        found = self._retokenizer.samples(sample, tools=tools)
        self.made += 1
        return found


def _print_export_report(args: Namespace, given: SampleInput, report: ExportReport) -> None:
    # Omissions go to stderr, where they are also seen when stdout is a pipe.
    files = [
        f"{file} ({report.format}, {format_plural(rows, 'row')})"
        for file, rows in report.files.items()
    ]
    read = f"{report.read} read, {report.used} used"
    lines = format_fields({"source": cut(given.name, 66), "samples": read, "file": files})
    unread = {"count": given.unread, "problems": given.problems}
    print_report(args, lines, {"source": given.name, **report.json(), "not_read": unread})
    omissions = "\n".join(_format_left_out(given, report))
    if omissions and not args.json:
        print_message(omissions)


def _format_left_out(given: SampleInput, report: ExportReport) -> list[str]:
    left_out, lost = (
        [f"{times} {cut(reason, _MAX_REASON_WIDTH)}" for reason, times in counts.most_common()]
        for counts in (report.left_out, report.lost)
    )
    unread = given.stream.skipped if given.stream is not None and given.unread else None
    detailed = [each for each in report.examples if each.detail][:_MAX_LISTED_EXAMPLES]
    lines = [
        *format_fields({"not read": unread, "left out": left_out}),
        *(f"  {cut(each.sample, 40)}: {cut(each.detail, _MAX_REASON_WIDTH)}" for each in detailed),
        *format_fields({"not in format": lost, "note": report.notes}),
    ]
    return lines if report.rows else [*lines, f"nothing was written{_suggest_option(report)}"]


def _suggest_option(report: ExportReport) -> str:
    if not report.read:
        return ": the input has no samples"
    if report.format == "trl-sft-tokens" and report.left_out.keys() - {NOT_JUDGED, FAILED, TOO_LOW}:
        return "; --tokenizer FOLDER tokenizes the text where no tokens are recorded"
    if NOT_JUDGED in report.left_out:
        return "; --all exports samples that were not judged, where the format supports them"
    return ""
