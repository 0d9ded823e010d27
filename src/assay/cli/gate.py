"""`assay gate`: fail the build when a run is below its threshold, or worse than a baseline."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from assay.errors import ConfigError
from assay.runner import list_worst
from assay.stats import (
    Check,
    GateRule,
    Outcome,
    Verdict,
    compare,
    judge_gate,
    summarise_recorded,
)
from assay.store import Run, RunRow, Store

from .arguments import add_flag, add_renamed_option, add_report_options
from .output import Line, Styled, format_field, measure_text_width, print_report
from .resume import build_next_command
from .run_summary import describe_status, format_score_lines
from .store_option import add_store_option, open_store
from .worst_samples import format_samples

_OUTCOME_STYLES = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "red",
    Outcome.COULD_NOT_TELL: "yellow",
}
# Enough to see what is wrong; `assay show` lists more.
_MAX_GATE_SAMPLES = 3


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="run id, unique prefix, or `latest`")
    add_renamed_option(
        parser,
        "--threshold",
        "--min",
        type=float,
        metavar="X",
        help="lowest mean score that passes",
    )
    add_flag(
        parser,
        "--proven",
        "require that the lower bound of the mean reaches --threshold, not only the mean",
    )
    parser.add_argument("--baseline", metavar="RUN", help="fail if the run is worse than this one")
    parser.add_argument(
        "--tolerance",
        type=float,
        metavar="X",
        help="largest drop of the mean below the baseline's (default: no statistically "
        "significant drop)",
    )
    parser.add_argument(
        "--max-not-judged",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="largest share of results without a judgement (default: 0.05)",
    )
    add_flag(
        parser,
        "--allow-unfinished",
        "judge also a run that was interrupted, failed or is still in progress",
    )
    add_store_option(parser)
    add_report_options(parser)


def main(args: Namespace) -> int:
    """Exit status: 0 passed, 1 failed, 3 inconclusive."""
    rule = GateRule(
        minimum=args.threshold,
        proven=args.proven,
        tolerance=args.tolerance,
        max_not_judged=args.max_not_judged,
    )
    with open_store(args) as store:
        run = store.run(args.run)
        summary = summarise_recorded(run.results(), run.spec.config)
        baseline = None if args.baseline is None else _find_baseline(store, run, args)
        comparison = None if baseline is None else compare(baseline, run, limit=0)
        verdict = judge_gate(summary, rule, comparison=comparison)
        if not args.allow_unfinished and (row := _find_unfinished(store, run)) is not None:
            verdict = _refuse_unfinished(verdict, run, row)
        # Samples of the best possible score are not among the reasons of a verdict.
        worst = [] if verdict.passed else list_worst(run, limit=_MAX_GATE_SAMPLES, summary=summary)
    gate, *checks = verdict.lines(width=measure_text_width())
    lines: list[Line] = [
        format_field("run", run.id),
        Styled(gate, _OUTCOME_STYLES[verdict.outcome]),
        *checks,
        *format_score_lines(summary, args.threshold),
    ]
    if worst:
        lines += ["worst samples", *format_samples(worst)]
    if not verdict.passed:
        lines += ["next:", *_format_gate_commands(run, baseline, args)]
    print_report(
        args,
        lines,
        {
            "run": run.id,
            "exit_status": verdict.exit_status,
            **json.loads(verdict.model_dump_json()),
            "worst": [entry.plain() for entry in worst],
        },
    )
    return verdict.exit_status


def _format_gate_commands(run: Run, baseline: Run | None, args: Namespace) -> Iterator[Line]:
    # By the id: what was typed, a prefix or `latest`, names another run soon.
    yield f"  {build_next_command(args, 'show', run.id)}"
    if baseline is not None:
        yield f"  {build_next_command(args, 'compare', baseline.id, run.id)}"


def _find_baseline(store: Store, run: Run, args: Namespace) -> Run:
    baseline = store.run(args.baseline)
    if baseline.id == run.id:
        raise ConfigError(
            f"the baseline is the run to judge itself, {run.id!r}",
            where=f"--baseline {args.baseline}",
            hint="choose another run as the baseline",
        )
    return baseline


def _refuse_unfinished(verdict: Verdict, run: Run, row: RunRow) -> Verdict:
    """Return the verdict as inconclusive, because of an unfinished run."""
    state = f"is {describe_status(row)}"
    finished = Check(
        name="finished",
        outcome=Outcome.COULD_NOT_TELL,
        text=f"the run {state}; resume it, or pass --allow-unfinished"
        if row.id == run.id
        else f"run {row.id!r}, whose rollouts were scored again, {state}; resume it and score "
        "again, or pass --allow-unfinished",
    )
    checks = (finished, *verdict.checks)
    return Verdict(outcome=Outcome.COULD_NOT_TELL, checks=checks, unscored=verdict.unscored)


def _find_unfinished(store: Store, run: Run) -> RunRow | None:
    """Return the run, or the one whose rollouts it scored again, if it has not ended."""
    # The missing samples of an unfinished run could turn the verdict either way.
    seen: set[str] = set()
    while (row := run.row()).status == "completed":
        seen.add(run.id)
        source = run.spec.config.get("rescored")
        # The configuration of an imported run is foreign text: it may name the run itself.
        if not isinstance(source, str) or source in seen:
            return None
        try:
            run = store.run(source)
        except ConfigError:
            # It was deleted, or only the scores were copied to this store: it cannot be resumed.
            return None
        if run.id != source:
            return None
    return row
