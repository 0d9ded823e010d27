"""`assay compare`: what got better or worse from one run to another, and if it could be chance."""

import json
from argparse import ArgumentParser, Namespace

from assay.stats import Comparison, Conclusion, find_shared_bounds
from assay.stats import compare as compare_results
from assay.store import PROVENANCE, Run

from .exit_status import EXIT_FAIL, EXIT_INCONCLUSIVE, EXIT_PASS
from .option_numbers import count
from .store_option import add_store_option, open_store
from .terminal import print_json, sanitize_lines


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("a", metavar="A", help="the baseline: a run's id, its beginning, or latest")
    parser.add_argument("b", metavar="B", help="the run to judge")
    parser.add_argument(
        "--limit", type=count, default=20, metavar="N", help="samples in each list (default: 20)"
    )
    parser.add_argument(
        "--fail-on-regression",
        action="store_true",
        help="exit 1 when B is worse, 3 when there are too few samples to tell",
    )
    add_store_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def main(args: Namespace) -> int:
    """Exit status 0; with `--fail-on-regression` 1 when worse, 3 when it cannot be told."""
    with open_store(args) as store:
        a, b = store.run(args.a), store.run(args.b)
        bounds = find_shared_bounds(a.spec.config, b.spec.config)
        comparison = compare_results(a.results(), b.results(), bounds=bounds, limit=args.limit)
    if args.json:
        print_json(
            {
                "a": a.id,
                "b": b.id,
                "configurations_differ_in": list_config_differences(a, b),
                "conclusion": str(comparison.conclusion),
                **json.loads(comparison.model_dump_json()),
            }
        )
    else:
        print(sanitize_lines("\n".join([*_format_compared_runs(a, b), *comparison.lines()])))
    return _choose_compare_exit_status(comparison) if args.fail_on_regression else EXIT_PASS


def list_config_differences(a: Run, b: Run) -> list[str]:
    """The parts of the configurations that are not the same."""
    old, new = a.spec.config, b.spec.config
    return sorted(key for key in {*old, *new} - PROVENANCE if old.get(key) != new.get(key))


def _format_compared_runs(a: Run, b: Run) -> list[str]:
    parts = ", ".join(list_config_differences(a, b)) or "nothing of their configurations"
    return [f"{'first run':<14}{a.id}", f"{'second run':<14}{b.id}", f"{'differ in':<14}{parts}"]


def _choose_compare_exit_status(comparison: Comparison) -> int:
    statuses = {Conclusion.WORSE: EXIT_FAIL, Conclusion.TOO_FEW: EXIT_INCONCLUSIVE}
    return statuses.get(comparison.conclusion, EXIT_PASS)
