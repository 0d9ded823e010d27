"""`assay compare`: improvements and regressions between two runs, with their significance."""

import json
from argparse import ArgumentParser, Namespace

from assay.stats import Conclusion, find_shared_bounds
from assay.stats import compare as compare_results
from assay.store import PROVENANCE, Run

from .arguments import add_count, add_flag, add_report_options
from .exit_status import EXIT_FAIL, EXIT_INCONCLUSIVE, EXIT_PASS
from .output import format_field, print_report
from .store_option import add_store_option, open_store


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("a", metavar="A", help="baseline: run id, unique prefix, or `latest`")
    parser.add_argument("b", metavar="B", help="run to compare with it")
    add_count(parser, "--limit", "list N samples each", default=20)
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
        bounds = find_shared_bounds(a.spec.config, b.spec.config)
        comparison = compare_results(a.results(), b.results(), bounds=bounds, limit=args.limit)
    different = list_config_differences(a, b)
    parts = ", ".join(different) or "nothing of their configurations"
    fields = {"first run": a.id, "second run": b.id, "differ in": parts}
    plain = {
        "a": a.id,
        "b": b.id,
        "configurations_differ_in": different,
        "conclusion": str(comparison.conclusion),
        **json.loads(comparison.model_dump_json()),
    }
    runs = [format_field(label, text) for label, text in fields.items()]
    print_report(args, [*runs, *comparison.lines()], plain)
    # Without the option the command only reports: a script may compare runs that differ on purpose.
    if not args.fail_on_regression:
        return EXIT_PASS
    statuses = {Conclusion.WORSE: EXIT_FAIL, Conclusion.TOO_FEW: EXIT_INCONCLUSIVE}
    return statuses.get(comparison.conclusion, EXIT_PASS)


def list_config_differences(a: Run, b: Run) -> list[str]:
    """Return the keys in which the configurations differ."""
    old, new = a.spec.config, b.spec.config
    return sorted(key for key in {*old, *new} - PROVENANCE if old.get(key) != new.get(key))
