"""`assay gate`: fail the build when a run is below its threshold, or worse than a baseline."""

import json
from argparse import ArgumentParser, Namespace

from assay.errors import ConfigError
from assay.stats import (
    Check,
    GateRule,
    Outcome,
    Verdict,
    compare,
    find_shared_bounds,
    judge_gate,
    summarise_recorded,
)
from assay.store import Run, Store

from .arguments import add_flag, add_report_options
from .output import format_field, print_report
from .store_option import add_store_option, open_store


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="run id, unique prefix, or `latest`")
    parser.add_argument(
        "--min", dest="minimum", type=float, metavar="X", help="lowest mean score that passes"
    )
    add_flag(
        parser,
        "--proven",
        "require that the lower bound of the mean reaches --min, not only the mean",
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
        minimum=args.minimum,
        proven=args.proven,
        tolerance=args.tolerance,
        max_not_judged=args.max_not_judged,
    )
    with open_store(args) as store:
        run = store.run(args.run)
        verdict = _judge_recorded_run(store, run, rule, args)
    plain = {"run": run.id, "exit_status": verdict.exit_status}
    plain |= json.loads(verdict.model_dump_json())
    print_report(args, [format_field("run", run.id), *verdict.lines()], plain)
    return verdict.exit_status


def _judge_recorded_run(store: Store, run: Run, rule: GateRule, args: Namespace) -> Verdict:
    comparison = None
    if args.baseline is not None:
        baseline = store.run(args.baseline)
        if baseline.id == run.id:
            raise ConfigError(
                f"the baseline is the run to judge itself, {run.id!r}",
                where=f"--baseline {args.baseline}",
                hint="choose another run as the baseline",
            )
        bounds = find_shared_bounds(baseline.spec.config, run.spec.config)
        comparison = compare(baseline.results(), run.results(), bounds=bounds)
    summary = summarise_recorded(run.results(), run.spec.config)
    verdict = judge_gate(summary, rule, comparison=comparison)
    row = run.row()
    # The missing samples of an unfinished run could turn the verdict either way.
    if row.status == "completed" or args.allow_unfinished:
        return verdict
    total = row.spec.total
    of = "" if total is None else f" of {total * row.spec.repeats}"
    finished = Check(
        name="finished",
        outcome=Outcome.COULD_NOT_TELL,
        text=f"the run is {row.status}, with {row.totals.recorded}{of} results; resume it, "
        "or pass --allow-unfinished",
    )
    checks = (finished, *verdict.checks)
    return Verdict(outcome=Outcome.COULD_NOT_TELL, checks=checks, unscored=verdict.unscored)
