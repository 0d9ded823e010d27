"""The task files of `assay quickstart`, and one evaluation of them with its progress."""

from argparse import Namespace
from pathlib import Path

from assay.datasets import SampleStream, Source
from assay.errors import ConfigError
from assay.runner import EvalConfig, EvalReport, Stop, evaluate
from assay.store import Store

from .example_files import list_examples
from .progress_bar import choose_display
from .signals import exit_interrupted, run_until_stopped


def find_task_file(name: str) -> Path:
    """Return a file of `examples/quickstart`. Raises `ConfigError` if it is not installed."""
    for path in list_examples("quickstart", name):
        return path
    raise ConfigError(f"the task file {name} is not installed", hint="install assay again")


def evaluate_with_display(
    rows: Source | SampleStream, config: EvalConfig, *, args: Namespace, store: Store, words: str
) -> EvalReport:
    """Evaluate and return the report; an interruption ends the process with status 130."""
    stop = Stop(grace_s=5.0)
    with choose_display(quiet=args.quiet) as display:
        display.print_line(words)
        report = run_until_stopped(
            lambda: evaluate(rows, config, store=store, watch=display.watch, stop=stop),
            stop,
            display,
        )
        if report.interrupted:
            again = " --train" if args.train else ""
            display.print_line(f"interrupted; start again with: assay quickstart{again}")
    # After the display has closed: the process ends here without a chance to restore the terminal.
    if report.interrupted:
        exit_interrupted()
    return report
